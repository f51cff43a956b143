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
_LONGEST_NAME = 24  # columns of a name where a line has to fit


def document_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """A transfer as `--json` tells it; `told` is what the node says."""
    kept = {key: value for key, value in told.items() if key != "content"}
    return {**kept, "sources": [dict(zip(_SOURCE, each, strict=True)) for each in told["sources"]]}


def line_of(transfer: Mapping[str, Any], columns: int = 0) -> str:
    """The same for people, in a line of so many columns; 0 for as many as it needs."""
    if not columns:
        return _line(transfer, bar=24, with_bytes=True)
    for bar, with_bytes in ((24, True), (24, False), (10, False)):
        text = _line(transfer, bar=bar, with_bytes=with_bytes, longest=_LONGEST_NAME)
        if output.width(text) <= columns:
            break
    return output.cut(text, columns)


def _line(transfer: Mapping[str, Any], *, bar: int, with_bytes: bool, longest: int = 0) -> str:
    size, verified = transfer["size"], transfer["verified"]
    parts = [output.cut(plain(transfer["name"]) or "files", longest)]
    if size or transfer["failed"]:
        share, so_far = verified / size if size else 0.0, quantities.bytes_text(verified)
        still = longest and (transfer["why"] or transfer["failed"])  # the words need the room
        parts += [f"{share * 100:.0f} %" if still else output.bar(share, bar), f"{so_far} of {quantities.bytes_text(size)}"]
    elif not transfer["name"]:
        parts.append("waiting for its manifest")
    if transfer["rate"] and not transfer["why"]:
        parts.append(f"{quantities.bytes_text(int(transfer['rate']))}/s")
    if transfer["eta"] is not None and not transfer["why"]:
        parts.append(f"{quantities.span(transfer['eta'])} left")
    if transfer["failed"]:
        return "  ".join([*parts, f"failed: {plain(transfer['why'])}"])
    if transfer["why"]:
        parts.append(f"stands still: {plain(transfer['why'])}")
    used = [each for each in transfer["sources"] if size and (each["bytes"] or each["state"] == "used")]
    for each in used[:_MOST_SOURCES]:
        amount = f" ({quantities.bytes_text(each['bytes'])})" if with_bytes and each["bytes"] else ""
        parts.append(f"from {plain(each['label'] or each['name'][:8])} by {each['lane']}{amount}")
    return "  ".join(parts)


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
