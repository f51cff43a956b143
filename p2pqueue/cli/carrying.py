"""How are transfers told: how far each is, how fast, from whom, and why one stands still?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.invocation import Invocation
from p2pqueue.cli.output import plain

_SOURCE = ("name", "lane", "bytes", "rate", "state")


def document_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """A transfer as `--json` tells it; `told` is what the node says."""
    return {**told, "sources": [dict(zip(_SOURCE, each, strict=True)) for each in told["sources"]]}


def line_of(transfer: Mapping[str, Any]) -> str:
    """The same for people."""
    size, verified = transfer["size"], transfer["verified"]
    so_far = f"{quantities.bytes_text(verified)} of {quantities.bytes_text(size)}"
    parts = [plain(transfer["name"]) or "files", output.bar(verified / size if size else 0.0), so_far]
    if transfer["rate"]:
        parts.append(f"{quantities.bytes_text(int(transfer['rate']))}/s")
    if transfer["eta"] is not None:
        parts.append(f"{quantities.span(transfer['eta'])} left")
    used = [each for each in transfer["sources"] if each["bytes"] or each["state"] == "used"]
    parts += [f"from {plain(each['name'][:8])} by {each['lane']}" for each in used[:4]]
    if transfer["why"]:
        parts.append(f"stands still: {plain(transfer['why'])}")
    return "  ".join(parts)


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
            click.echo(f"{back}\x1b[J" + "".join(f"{output.cut(line_of(each), width - 1)}\n" for each in found), nl=False)
            drawn = len(found)
        else:
            for each in found:
                output.line(line_of(each))
