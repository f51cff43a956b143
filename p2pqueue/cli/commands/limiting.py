"""How are the transfers of the running node slowed down, stopped and let go?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from p2pqueue.cli import quantities
from p2pqueue.cli.commands.devices import complete_device
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.opening import check_initialised, reading
from p2pqueue.cli.output import plain

ALL = "all"


@click.command(
    "limit",
    cls=Command,
    help="Limit the file transfers of the running node, until it ends; without arguments, show the limits. "
    "RATE is in bytes a second for each direction, such as 2MB, or `none`. The setting `rate` holds from the start.",
    short_help="Slow down, stop and let go the file transfers of the running node.",
    examples="""
    p2pqueue limit 2MB
    p2pqueue limit none
    p2pqueue limit --pause laptop
    p2pqueue limit --resume all
    """,
)
@click.argument("rate", required=False)
@click.option("--pause", metavar="DEVICE", multiple=True, shell_complete=complete_device, help="Stop transfers with a device, or with all.")
@click.option(
    "--resume", metavar="DEVICE", multiple=True, shell_complete=complete_device, help="Let them go again; `all` lets go everything."
)
@click.option("--metered/--no-metered", default=None, help="Whether files take the interfaces of the setting `metered`.")
@pass_invocation
def limit_command(invocation: Invocation, rate: str | None, pause: Sequence[str], resume: Sequence[str], metered: bool | None) -> None:
    """Reads and changes the limits."""
    from p2pqueue.replica.door.doorbell import DoorbellClient

    check_initialised(invocation.home)
    fields: dict[str, Any] = {"pause_all": ALL in pause, "resume_all": ALL in resume}
    fields |= {"pause": _ids(invocation, pause), "resume": _ids(invocation, resume), "metered": metered}
    if rate is not None:
        fields["rate"] = _rate(rate)
    limits: dict[str, Any] = DoorbellClient(invocation.home.socket_path).request("limit", **fields)
    invocation.result({"schema": 1, "limits": limits}, lambda: _lines(invocation, limits))


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
    lines = [f"rate     {rate}", f"metered  {'used' if limits['metered'] else 'not used'}"]
    if limits["all_paused"]:
        lines.append("paused   all transfers")
    if limits["paused"]:
        with reading(invocation.home) as connection:
            labels = {each.device_id: each.label for each in members.read(connection)}
        lines.append(f"paused   {', '.join(plain(labels.get(device, device[:8])) for device in limits['paused'])}")
    return lines
