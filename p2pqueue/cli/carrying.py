"""How is a transfer told in one line: how far it is, how fast, from whom, and why it stands still?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pqueue.cli import output, quantities
from p2pqueue.cli.output import plain


def transfer_line(told: Mapping[str, Any]) -> str:
    """A transfer as `files` and `watch` show it."""
    size, verified = told["size"], told["verified"]
    parts = [
        plain(told["name"]),
        output.bar(verified / size if size else 0.0),
        f"{quantities.bytes_text(verified)} of {quantities.bytes_text(size)}",
    ]
    if told["rate"]:
        parts.append(f"{quantities.bytes_text(int(told['rate']))}/s")
    if told["eta"] is not None:
        parts.append(f"{quantities.span(told['eta'])} left")
    used = [each for each in told["sources"] if each["bytes"] or each["state"] == "used"]
    parts += [f"from {plain(each['name'][:8])} by {each['lane']}" for each in used[:4]]
    if told["why"]:
        parts.append(f"stands still: {plain(told['why'])}")
    return "  ".join(parts)
