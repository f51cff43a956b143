"""How are transfers told: how far each is, how fast, from whom, and why one stands still?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.invocation import Invocation
from p2pqueue.cli.opening import node_pid
from p2pqueue.cli.output import plain

_SOURCE = ("name", "lane", "bytes", "rate", "state", "label")
_MOST_SOURCES = 4  # that are told in a line
_NARROWER = ((24, 24, True), (24, 24, False), (24, 10, False), (14, 0, False))  # columns of a name, of a bar, and whether bytes are told


def document_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """A transfer as `--json` tells it; `told` is what the node says."""
    kept = {key: value for key, value in told.items() if key != "content"}
    return {**kept, "sources": [dict(zip(_SOURCE, each, strict=True)) for each in told["sources"]]}


def line_of(transfer: Mapping[str, Any], columns: int = 0) -> str:
    """The same for people, in a line of so many columns; 0 for as many as it needs."""
    if not columns:
        return "  ".join([_name(transfer), *_how_far(transfer, bar=24), *_how_fast(transfer), *_from_whom(transfer, with_bytes=True)])
    still = bool(transfer["why"])  # then the words need the room
    for longest, bar, with_bytes in _NARROWER[still:]:
        words = [*_how_fast(transfer), *_from_whom(transfer, with_bytes=with_bytes)]
        text = "  ".join([output.cut(_name(transfer), longest), *_how_far(transfer, bar=bar), *words])
        if output.width(text) <= columns:
            return text
    if still:
        share = _how_far(transfer, bar=0)[:1]
        text = "  ".join([output.cut(_name(transfer), _NARROWER[-1][0]), *share, *_how_fast(transfer)])
    return output.cut(text, columns)


def _name(transfer: Mapping[str, Any]) -> str:
    return plain(transfer["name"]) or "files"


def _how_far(transfer: Mapping[str, Any], *, bar: int) -> list[str]:
    size, verified = transfer["size"], transfer["verified"]
    if not transfer["name"] and not transfer["failed"]:
        return ["waiting for its manifest"]
    share = verified / size if size else 0.0
    so_far = f"{quantities.bytes_text(verified)} of {quantities.bytes_text(size)}"
    return [output.bar(share, bar) if bar else f"{share * 100:.0f} %", so_far]


def _how_fast(transfer: Mapping[str, Any]) -> list[str]:
    """How fast it goes on, or why it doesn't."""
    if transfer["why"]:
        return [f"{'failed' if transfer['failed'] else 'stands still'}: {plain(transfer['why'])}"]
    rate = [f"{quantities.bytes_text(int(transfer['rate']))}/s"] if transfer["rate"] else []
    return [*rate, *([f"{quantities.span(transfer['eta'])} left"] if transfer["eta"] is not None else [])]


def _from_whom(transfer: Mapping[str, Any], *, with_bytes: bool) -> list[str]:
    if transfer["failed"] or not transfer["size"]:
        return []
    parts = []
    for each in [each for each in transfer["sources"] if each["bytes"] or each["state"] == "used"][:_MOST_SOURCES]:
        amount = f" ({quantities.bytes_text(each['bytes'])})" if with_bytes and each["bytes"] else ""
        parts.append(f"from {plain(each['label'] or each['name'][:8])} by {each['lane']}{amount}")
    return parts


def transfers(invocation: Invocation) -> list[dict[str, Any]]:
    """Those of the running node, if one runs."""
    from p2pqueue.errors import P2PQueueError
    from p2pqueue.replica.door.doorbell import DoorbellClient

    if node_pid(invocation.home) is None:
        return []
    try:
        told = DoorbellClient(invocation.home.socket_path).request("transfers")
    except P2PQueueError:
        return []
    return [document_of(each) for each in told.get("transfers", ())]


def follow(invocation: Invocation) -> None:
    """Shows the transfers of the running node as they go on. Raises `NodeNotRunning`."""
    from p2pqueue.replica.door.doorbell import DoorbellClient

    drawn, last = 0, None
    for event in DoorbellClient(invocation.home.socket_path).stream("transfers"):
        found = [document_of(each) for each in event.get("transfers", ())]
        if found == last:
            continue
        last = found
        if invocation.json:
            output.document({"schema": 1, "transfers": found})
        elif output.on_terminal():
            width = output.terminal_width() or 80
            back = f"\x1b[{drawn}F" if drawn else ""
            click.echo(f"{back}\x1b[J" + "".join(f"{line_of(each, width - 1)}\n" for each in found), nl=False)
            drawn = len(found)
        else:
            for each in found:
                output.line(line_of(each))
