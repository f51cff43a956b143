"""How does a command show how far the reading, fetching or writing of files is? On stderr, and on a terminal only."""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.invocation import Invocation

DRAWN_EVERY: Final = 0.1  # seconds
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
        click.echo(f"\r\x1b[2K{output.cut(self._line(done, size), (output.terminal_width() or 80) - 1)}", nl=False, err=True)

    def _line(self, done: int, size: int) -> str:
        (since, was), (now, _) = self._points[0], self._points[-1]
        rate = (done - was) / (now - since) if now > since else 0.0
        speed = f"  {quantities.bytes_text(int(rate))}/s, {quantities.span((size - done) / rate)} left" if rate > 0 else ""
        return f"{self._what}  {output.bar(done / size if size else 1.0)}  {quantities.bytes_text(done)}{speed}"
