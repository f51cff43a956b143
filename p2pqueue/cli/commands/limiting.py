"""How are the transfers of the running node slowed down, stopped and let go?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from p2pqueue.cli import quantities
from p2pqueue.cli.commands.devices import complete_device
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.opening import check_initialised, node_pid, reading, writing
from p2pqueue.cli.output import plain

ALL = "all"


@click.command(
    "limit",
    cls=Command,
    help="""Limit the file transfers of this device; without arguments, show the limits.

    RATE is in bytes a second for each direction, such as 2MB, or `none`. What is set holds at once, and for every later
    run of the node, over the setting `rate`, until --reset.
    """,
    short_help="Slow down, stop and let go the file transfers of this device.",
    examples="""
    p2pqueue limit 2MB
    p2pqueue limit none
    p2pqueue limit --pause laptop
    p2pqueue limit --resume all
    p2pqueue limit --reset
    """,
)
@click.argument("rate", required=False)
@click.option("--pause", metavar="DEVICE", multiple=True, shell_complete=complete_device, help="Stop transfers with a device, or with all.")
@click.option(
    "--resume", metavar="DEVICE", multiple=True, shell_complete=complete_device, help="Let them go again; `all` lets go everything."
)
@click.option("--metered/--no-metered", default=None, help="Whether files take the interfaces of the setting `metered`.")
@click.option("--reset", is_flag=True, help="Go back to the settings first: their rate, nothing paused, no metered interfaces.")
@pass_invocation
def limit_command(
    invocation: Invocation, rate: str | None, pause: Sequence[str], resume: Sequence[str], metered: bool | None, reset: bool
) -> None:
    """Reads and changes the limits."""
    check_initialised(invocation.home)
    fields: dict[str, Any] = {"pause_all": ALL in pause, "resume_all": ALL in resume, "reset": reset}
    fields |= {"pause": _ids(invocation, pause), "resume": _ids(invocation, resume), "metered": metered}
    if rate is not None:
        fields["rate"] = _rate(rate)
    is_running = node_pid(invocation.home) is not None
    limits = _by_node(invocation, fields) if is_running else _for_next_node(invocation, fields)
    invocation.result({"schema": 1, "limits": limits}, lambda: _lines(invocation, limits))
    if not is_running:
        invocation.say("no node runs here; that holds from the start of the next node")


def _by_node(invocation: Invocation, fields: dict[str, Any]) -> dict[str, Any]:
    from p2pqueue.replica.door.doorbell import DoorbellClient

    limits: dict[str, Any] = DoorbellClient(invocation.home.socket_path).request("limit", **fields)
    return limits


def _for_next_node(invocation: Invocation, fields: dict[str, Any]) -> dict[str, Any]:
    from p2pqueue.config import load_settings
    from p2pqueue.jobs import local
    from p2pqueue.payload import limiting

    setting = load_settings(invocation.home).rate
    with reading(invocation.home) as connection:
        kept = local.kept_limits(connection)
    limits = limiting.limits_of(setting, kept)
    limiting.change(limits, fields, setting=setting)
    if limiting.changes(fields):
        kept = limiting.to_keep(limits, fields, kept)
        with writing(invocation.home) as replica:
            replica.write(lambda writer: local.keep_limits(writer.connection, kept))
    return limiting.tell(limits, setting=setting)


def _rate(text: str) -> int:
    from p2pqueue.settings import find_setting

    value = find_setting("rate").parse("0" if text.strip().lower() == "none" else text, where="RATE")
    assert isinstance(value, int)
    return value


def _ids(invocation: Invocation, names: Sequence[str]) -> list[str]:
    wanted = [name for name in names if name != ALL]
    if not wanted:
        return []
    from p2pqueue.identity import members

    with reading(invocation.home) as connection:
        known = members.read(connection)
    return [members.find(known, name).device_id for name in wanted]


def _lines(invocation: Invocation, limits: dict[str, Any]) -> list[str]:
    from p2pqueue.identity import members

    rate = f"{quantities.bytes_text(limits['rate'])}/s in each direction" if limits["rate"] else "no limit"
    if limits["rate"] != limits["rate_setting"]:
        setting = f"{quantities.bytes_text(limits['rate_setting'])}/s" if limits["rate_setting"] else "no limit"
        rate = f"{rate}; the setting `rate` says {setting}"
    lines = [f"rate     {rate}", f"metered  {'used' if limits['metered'] else 'not used'}"]
    if limits["all_paused"]:
        lines.append("paused   all transfers")
    if limits["paused"]:
        with reading(invocation.home) as connection:
            labels = {each.device_id: each.label for each in members.read(connection)}
        lines.append(f"paused   {', '.join(plain(labels.get(device, device[:8])) for device in limits['paused'])}")
    return lines
