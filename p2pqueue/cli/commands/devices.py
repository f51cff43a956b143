"""Which devices are of this space, and how do they stand to this one?

What only the running node knows (who is linked, over which path, how far) is asked of it; without a node the rows tell
the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import naming, output, quantities
from p2pqueue.cli.group import Group
from p2pqueue.cli.invocation import Invocation, pass_invocation
from p2pqueue.cli.opening import node_pid, reading, writing
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from p2pqueue.home import Home
    from p2pqueue.identity.members import Member


def complete_device(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Labels and ids that begin so."""

    def query(connection: sqlite3.Connection) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from p2pqueue.identity import members

        found = members.read(connection)
        named = [CompletionItem(each.label, help=each.device_id[:8]) for each in found if each.label.startswith(incomplete)]
        by_id = [CompletionItem(each.device_id, help=plain(each.label)) for each in found if each.device_id.startswith(incomplete)]
        return named + (by_id if incomplete else [])

    return naming.complete_from_rows(context, query)


@click.group(
    "devices",
    cls=Group,
    invoke_without_command=True,
    help="List the devices of the space, this one too, or rename and forget one.",
    examples="""
    p2pqueue devices
    p2pqueue devices --json | jq '.devices[] | select(.online)'
    p2pqueue devices rename 1b6bdf06 "big box"
    """,
)
@click.option("--all", "everything", is_flag=True, help="List forgotten devices too.")
@click.pass_context
def devices_command(context: click.Context, everything: bool) -> None:
    """Lists the devices, where no command below was named."""
    if context.invoked_subcommand is not None:
        return
    invocation = context.find_object(Invocation) or Invocation()
    from p2pqueue.identity import members
    from p2pqueue.jobs import local
    from p2pqueue.peers import seen

    with reading(invocation.home) as connection:
        known = members.read(connection)
        heard = seen.read(connection)
        here = local.this_device(connection)
    found = [each for each in (*known, *_told_by_joining(invocation.home, known)) if everything or not each.hidden]
    peers = _peers(invocation.home)
    shown = sorted(found, key=lambda each: (each.device_id != here, each.device_id not in (peers or ()), each.label.casefold()))
    documents = [_document(each, here, peers, heard.get(each.device_id)) for each in shown]
    invocation.result({"schema": 1, "devices": documents}, lambda: _lines(documents))


@devices_command.command(
    "rename",
    help="Give a device another name, on all devices.",
    examples="""
    p2pqueue devices rename 1b6bdf06 "big box"
    """,
)
@click.argument("device", shell_complete=complete_device)
@click.argument("label")
@pass_invocation
def rename_command(invocation: Invocation, device: str, label: str) -> None:
    """Renames a device."""
    from p2pqueue.identity import enrolling, keys, members

    label = keys.label_of(naming.name(label), "device")
    with writing(invocation.home) as replica:
        found = members.find(replica.read(members.read), device)
        own = keys.load(invocation.home)
        if found.device_id == own.device_id:
            keys.relabel(invocation.home, label)
        else:
            _check_right(own.role)
        replica.write(lambda writer: enrolling.rename(writer, found.device_id, label))
    if invocation.json:
        output.document({"schema": 1, "device": {"id": found.device_id, "label": label}})
    invocation.say(f"{found.device_id[:8]} is called {plain(label)}; it was {plain(found.label)}")


@devices_command.command(
    "forget",
    help="Leave a device out of lists that won't come back; when it does, it is listed again. This takes no right away.",
    examples="""
    p2pqueue devices forget old-laptop
    """,
)
@click.argument("device", shell_complete=complete_device)
@pass_invocation
def forget_command(invocation: Invocation, device: str) -> None:
    """Forgets a device."""
    from p2pqueue.cli.edge import Refusal
    from p2pqueue.identity import enrolling, keys, members

    peers = _peers(invocation.home) or {}
    with writing(invocation.home) as replica:
        found = members.find(replica.read(members.read), device)
        own = keys.load(invocation.home)
        if found.device_id == own.device_id:
            raise Refusal(f"{found.label} is this device itself; its home is {invocation.home.path}")
        if found.device_id in peers:
            raise Refusal(f"{found.label} is linked right now; stop its node first")
        _check_right(own.role)
        replica.write(lambda writer: enrolling.forget(writer, found.device_id))
    if invocation.json:
        output.document({"schema": 1, "device": {"id": found.device_id, "label": found.label}})
    invocation.say(f"{plain(found.label)} ({found.device_id[:8]}) is left out of lists until it comes back")


def _told_by_joining(home: Home, known: Sequence[Member]) -> list[Member]:
    """The device that let this one in, as long as no row tells of it: until the first link after `join`."""
    from p2pqueue.identity.keys import load
    from p2pqueue.identity.members import Member

    inviter = load(home).inviter
    if inviter is None or any(each.device_id == inviter[0] for each in known):
        return []
    return [Member(*inviter, role="", public_key=b"")]


def _check_right(role: str) -> None:
    from p2pqueue.errors import NotAllowed
    from p2pqueue.identity.roles import relays

    if not relays(role):
        raise NotAllowed(f"A device with the role {role} may not write about other devices; do it on a member's")


def _peers(home: Home) -> Mapping[str, Mapping[str, Any]] | None:
    """What the node knows of linked devices; None where none runs."""
    if node_pid(home) is None:
        return None
    from p2pqueue.errors import P2PQueueError
    from p2pqueue.replica.door.doorbell import DoorbellClient

    try:
        told = DoorbellClient(home.socket_path).request("devices").get("peers")
    except (P2PQueueError, OSError):
        return {}  # it just starts or stops
    return told if isinstance(told, dict) else {}


def _document(member: Member, here: str | None, peers: Mapping[str, Mapping[str, Any]] | None, heard_at: int | None) -> dict[str, Any]:
    own = member.device_id == here
    link = (peers or {}).get(member.device_id)
    address = link.get("address") if link else None
    if isinstance(address, (list, tuple)) and not address[1]:  # it was met by way of a mailbox: where it listens leads nowhere
        address = address[0]
    return {
        "id": member.device_id,
        "label": member.label,
        "role": member.role or None,
        "self": own,
        "online": peers is not None if own else link is not None,
        "revoked": member.revoked,
        "seen_at": quantities.rfc3339(max((at for at in (member.wrote_at, heard_at) if at is not None), default=None)),
        "path": link.get("path") if link else None,
        "rtt": link.get("rtt") if link else None,
        "clock_offset": link.get("clock_offset") if link else None,
        "address": ":".join(map(str, address)) if isinstance(address, (list, tuple)) else address,
        "version": link.get("version") if link else None,
        "why": link.get("why") if link else None,
    }


def _lines(documents: list[dict[str, Any]]) -> list[str]:
    rows = []
    for each in documents:
        state = "revoked" if each["revoked"] else "this device" if each["self"] else "online" if each["online"] else "offline"
        rows.append(
            (
                plain(each["label"]),
                state,
                each["role"] or "–",
                each["id"][:8],
                each["path"] or "–",
                _milliseconds(each["rtt"]),
                _milliseconds(each["clock_offset"], signed=True),
                _seen(each),
            )
        )
    colors = ["green" if each["online"] else None for each in documents]
    return output.table(("DEVICE", "STATE", "ROLE", "ID", "PATH", "RTT", "CLOCK", "LAST SEEN"), rows, colors=colors)


def _seen(document: dict[str, Any]) -> str:
    if document["online"]:
        return "now"
    return quantities.localised(document["seen_at"][:19] + "Z") if document["seen_at"] else "–"


def _milliseconds(seconds: Any, *, signed: bool = False) -> str:
    if not isinstance(seconds, (int, float)):
        return "–"
    value = seconds * 1000
    return f"{value:+.0f} ms" if signed else f"{value:.1f} ms"
