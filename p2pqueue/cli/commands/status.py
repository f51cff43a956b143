"""How do this device and its node stand?"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.home_shape import home_document
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.opening import node_pid, reading
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.home import Home


@click.command(
    "status",
    cls=Command,
    help="Show this device, its node, what is wrong with its settings, and how many jobs have which status.",
    examples="""
    p2pqueue status
    p2pqueue status --json | jq .counts
    """,
)
@pass_invocation
def status_command(invocation: Invocation) -> None:
    """Shows this device and its node."""
    from p2pqueue.identity.keys import load
    from p2pqueue.jobs import local, rows

    home = invocation.home
    with reading(home) as connection:
        counts, kept = rows.counts(connection), local.kept_limits(connection)
        heads = {author.hex(): seq for author, seq in connection.execute("SELECT author, seq FROM heads ORDER BY author")}
        digest = _digest(connection) if invocation.json else ""
    document = {
        **home_document(home, load(home)),
        "settings": _settings(home),
        "node": _node(home),
        "limits": kept,
        "counts": counts,
        "disk": {"used": _used(home), "free": _free(home)},
        "heads": heads,
        "digest": digest,
    }
    invocation.result(document, lambda: _status_lines(document))


def _status_lines(document: dict[str, Any]) -> list[str]:
    node = document["node"]
    counts = ", ".join(f"{n} {name}" for name, n in document["counts"].items() if n) or "none"
    disk, trouble = document["disk"], document["settings"]["trouble"]
    return output.pairs(
        [
            ("Device", f"{plain(document['label'])} ({document['device'][:8]}, {document['role']})"),
            ("Space", f"{plain(document['space_name'])} ({document['space'][:8]})"),
            ("Home", plain(document["home"])),
            *([("Settings", f"{plain(trouble)}; no node starts with it")] if trouble else []),
            ("Node", _node_words(node)),
            *_network_facts(node.get("network")),
            *_limit_facts((node.get("network") or {}).get("limits") or document["limits"], document["settings"]["metered"]),
            ("Jobs", counts),
            ("Disk", f"{quantities.bytes_text(disk['used'])} used, {quantities.bytes_text(disk['free'])} free"),
        ]
    )


def _settings(home: Home) -> dict[str, Any]:
    """Why no node could start with the settings as they stand, None where they can hold, and which interfaces are metered."""
    from p2pqueue.config import load_settings
    from p2pqueue.errors import P2PQueueError
    from p2pqueue.peers import options

    try:
        settings = load_settings(home)
        options.check(settings)
    except P2PQueueError as error:
        return {"trouble": str(error), "metered": []}
    return {"trouble": None, "metered": list(settings.metered)}


def _node(home: Home) -> dict[str, Any]:
    from p2pqueue.errors import WorldError
    from p2pqueue.replica.door.doorbell import DoorbellClient

    pid = node_pid(home)
    if pid is None:
        return {"running": False, "pid": None}
    try:
        told = DoorbellClient(home.socket_path).request("status")
    except (WorldError, OSError):
        return {"running": True, "pid": pid}  # it just starts or stops
    return {
        "running": True,
        "pid": pid,
        "started_at": quantities.rfc3339(told.get("started_at")),
        "slots": told.get("slots"),
        "jobs": told.get("running", []),
        "tasks": told.get("tasks", []),
        "network": told.get("network"),
    }


def _network_facts(network: dict[str, Any] | None) -> list[tuple[str, str]]:
    """How the node is linked, a line for each peer."""
    if not network:
        return []
    if not network["online"]:
        off = "nobody to link to yet" if network.get("wanted") else "offline; `p2pqueue online` begins it again"
        return [("Network", plain(network.get("trouble") or off))]
    listening = network.get("listening") or {}
    facts = [("Network", f"listens on port {listening.get('port', '?')}")]
    for peer in network["peers"]:
        slower = f"; slower, as {peer['why']}" if peer.get("why") else ""
        rtt = f", {peer['rtt'] * 1000:.1f} ms" if isinstance(peer.get("rtt"), float) else ""
        facts.append(("Peer", plain(f"{peer['label'] or peer['device'][:8]} by {peer['path']}{rtt}{slower}")))
    facts += _origin_facts(network)
    parts = [(network.get(part) or {}).get("trouble") for part in ("discovery", "uploads", "mailbox")]
    troubles = [network.get("trouble"), *parts, *(each["why"] for each in network["refused"])]
    facts += [("Trouble", plain(str(trouble))) for trouble in dict.fromkeys(troubles) if trouble]
    told = [each["address"] for each in network["refused"]]
    facts += [("Trouble", plain(_unreached(each))) for each in network.get("unreached", ()) if each["address"] not in told and each["why"]]
    carried = {lane: size for lane, size in network["carried"].items() if size}
    if carried:
        facts.append(("Fetched", ", ".join(f"{quantities.bytes_text(size)} by {lane}" for lane, size in carried.items())))
    return facts


def _origin_facts(network: dict[str, Any]) -> list[tuple[str, str]]:
    """What goes over the origin, where one is set."""
    from urllib.parse import urlsplit

    origin, mailbox, uploads = network.get("origin"), network.get("mailbox"), network.get("uploads")
    if not origin:
        return []
    parts = [urlsplit(origin).netloc.rpartition("@")[2] if origin.startswith(("http://", "https://")) else origin]
    if mailbox and mailbox.get("looked") is not None:
        others = f", of {quantities.counted(mailbox['devices'], 'other device')}" if mailbox.get("devices") else ""
        parts.append(f"mail looked at {quantities.span(mailbox['looked'])} ago{others}")
    if uploads and uploads.get("sent"):
        parts.append(f"{quantities.bytes_text(uploads['sent'])} uploaded")
    return [("Origin", plain("; ".join(parts)))]


def _limit_facts(limits: dict[str, Any], metered: list[str]) -> list[tuple[str, str]]:
    """What slows files down: by the running node, else what was set for the next one."""
    facts = []
    if limits.get("rate"):
        facts.append(("Limit", f"{quantities.bytes_text(limits['rate'])}/s of files in each direction"))
    if limits.get("all_paused") or limits.get("paused"):
        paused = "all transfers" if limits["all_paused"] else f"transfers with {quantities.counted(len(limits['paused']), 'device')}"
        facts.append(("Paused", f"{paused}; `p2pqueue limit --resume all` lets them go"))
    if limits.get("metered") and metered:
        facts.append(("Metered", "interfaces are used for files; `p2pqueue limit --no-metered` leaves them alone"))
    return facts


def _unreached(peer: dict[str, Any]) -> str:
    """Why nobody is linked at an address of `--peer`."""
    host, port = peer["address"]
    again = f"again in {quantities.span(peer['again_in'])}" if peer["again_in"] else "being tried now"
    return f"{host}:{port}: {peer['why']}; tried {quantities.counted(peer['tries'], 'time')}, {again}"


def _node_words(node: dict[str, Any]) -> str:
    if not node["running"]:
        return "not running; start it with `p2pqueue run`"
    if "slots" not in node:
        return f"pid {node['pid']}, which does not answer now"
    tasks = quantities.counted(len(node["tasks"]), "task")
    busy = f"{len(node['jobs'])} of {quantities.counted(node['slots'], 'slot')} busy" if node["slots"] else "takes no jobs"
    return f"running, pid {node['pid']}, {busy}, {tasks}"


def _digest(connection: sqlite3.Connection) -> str:
    """One hash over all that has not ended: equal on devices that hold the same."""
    from hashlib import blake2b

    from p2pqueue.replica.schema import stored_tables
    from p2pqueue.replica.statements import shapes_of
    from p2pqueue.replica.syncing.comparing import digests

    taken = digests(connection, shapes_of(stored_tables(connection)))
    return blake2b(b"".join(name.encode() + b"\0" + value for name, value in sorted(taken.items())), digest_size=16).hexdigest()


def _used(home: Home) -> int:
    total, folders = 0, [str(home.path)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue  # a working folder that ended meanwhile
    return total


def _free(home: Home) -> int:
    import shutil

    return shutil.disk_usage(home.path).free
