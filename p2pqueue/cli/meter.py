"""How does a command show how far the reading, fetching or writing of files is? On stderr, and on a terminal only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import click

from p2pqueue.cli import carrying, output, quantities
from p2pqueue.cli.invocation import Invocation

DRAWN_EVERY: Final = 0.1  # seconds
_SHORTEST: Final = 12  # columns that are left to what is read or written
SMOOTHED_OVER: Final = 2.0  # seconds: what is told of the speed is that of the last few


class Meter:
    """One line that is drawn again and again. A context, at whose end it is gone."""

    def __init__(self, invocation: Invocation, what: str) -> None:
        self._what = what
        self._shown = not invocation.quiet and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self._drawn_at = 0.0
        self._points: list[tuple[float, int]] = []

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and self._drawn_at:
            click.echo("\r\x1b[2K", nl=False, err=True)

    def __call__(self, done: int, size: int) -> None:
        """So many bytes of so many are done."""
        now = time.monotonic()
        if not self._shown or now - self._drawn_at < DRAWN_EVERY:
            return
        self._drawn_at = now
        self._points = [(at, was) for at, was in self._points if now - at < SMOOTHED_OVER] + [(now, done)]
        self._draw(self._line(done, size, (_columns() or 80) - 1))

    def look(self, told: Mapping[str, Any]) -> None:
        """Shows a transfer instead, as the node tells how it stands."""
        if self._shown:
            self._drawn_at = time.monotonic()
            self._draw(carrying.line_of(carrying.document_of(told), (_columns() or 80) - 1))

    def _draw(self, text: str) -> None:
        click.echo(f"\r\x1b[2K{text}", nl=False, err=True)

    def _line(self, done: int, size: int, columns: int) -> str:
        (since, was), (now, _) = self._points[0], self._points[-1]
        rate = (done - was) / (now - since) if now > since else 0.0
        speed = f"  {quantities.bytes_text(int(rate))}/s, {quantities.span((size - done) / rate)} left" if rate > 0 else ""
        rest = f"{quantities.bytes_text(done)}{speed}"
        bar = output.bar(done / size if size else 1.0, 24 if columns >= 100 else 10)
        what = output.cut(self._what, max(_SHORTEST, columns - 4 - len(bar) - len(rest)))
        return output.cut(f"{what}  {bar}  {rest}", columns)


def _columns() -> int:
    """The columns of the terminal that stderr is; 0 where it can't be told."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0
