"""How is the demo shown on a terminal?"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from p2pqueue.cli.edge import DONE, ERROR, Refusal
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation

if TYPE_CHECKING:
    from p2pqueue.demo.network import Kind

_BAR = 40  # characters
_LINE_EVERY = 0.1  # of the work, where no bar can be drawn


class _Terminal:
    """Tells the story by numbered steps; a bar that moves where there is a terminal, a line now and then elsewhere."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr
        self._draws = (sys.stderr if to_stderr else sys.stdout).isatty()
        self._number = 0
        self._bar = False
        self._next_line = 0.0

    def step(self, words: str) -> None:
        self._end_bar()
        self._number += 1
        self._next_line = 0.0
        click.secho(f"{self._number}. {words}", bold=True, err=self._to_stderr)

    def fact(self, words: str) -> None:
        self._end_bar()
        click.echo(f"   {words}", err=self._to_stderr)

    def progress(self, fraction: float, phase: str) -> None:
        if self._draws:
            done = "#" * round(fraction * _BAR)
            click.echo(f"\r   [{done:-<{_BAR}}] {fraction:4.0%} {phase:<32.32}", nl=False, err=self._to_stderr)
            self._bar = True
        elif fraction >= self._next_line:
            click.echo(f"   {fraction:4.0%} {phase}", err=self._to_stderr)
            self._next_line = fraction + _LINE_EVERY

    def _end_bar(self) -> None:
        if self._bar:
            click.echo(err=self._to_stderr)
            self._bar = False


@click.command(
    "demo",
    cls=Command,
    help="Show the whole story on this machine, with three devices and a real video, in under three minutes: they pair, link and "
    "share; a killed worker's job is taken over; two that were parted come to hold the same. Where the system allows it, each device "
    "is a host of its own (a network namespace), else all are on the loopback interface. Nothing of it stays behind.",
    examples="""
    p2pqueue demo
    p2pqueue demo --interface lo
    p2pqueue demo --keep
    """,
)
@click.option("--interface", type=click.Choice(["lo"]), help="Play on the loopback interface, also where hosts of its own can be had.")
@click.option("--keep", is_flag=True, help="Leave the folder with the video, the result and the homes.")
@click.option("--within", type=click.Path(path_type=Path), hidden=True)
@click.option("--on", "kind", type=click.Choice(["namespaces", "lo"]), default="lo", hidden=True)
@pass_invocation
def demo_command(invocation: Invocation, interface: str | None, keep: bool, within: Path | None, kind: Kind) -> int:
    """Plays the demo; in a process of its own, which the first one tidies up after."""
    if within is not None:
        return _tell(invocation, within, kind, keep=keep)
    from p2pqueue.demo.playing import play

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # all that was started goes in this case too
    options = ["--json"] * invocation.json + ["--no-color"] * (not invocation.color) + ["--quiet"] * invocation.quiet
    code, folder = play(options + ["-v"] * invocation.verbose, loopback=interface is not None, keep=keep)
    if keep:
        invocation.say(f"the folder is {folder}")
    return code if code >= 0 else ERROR


def _tell(invocation: Invocation, folder: Path, kind: Kind, *, keep: bool) -> int:
    from p2pqueue.demo.device import StoryBroken
    from p2pqueue.demo.network import NetworkFailed
    from p2pqueue.demo.playing import ends_with_stdin
    from p2pqueue.demo.stage import stage
    from p2pqueue.demo.story import tell

    with ends_with_stdin(folder, keep=keep):
        try:
            with stage(folder, kind) as made:
                told = tell(made, _Terminal(to_stderr=invocation.json))
        except (StoryBroken, NetworkFailed) as error:
            raise Refusal(f"the demo did not go as told: {error}") from error
    invocation.result(told.document(), lambda: ["", f"All of it came true in {told.took:.0f} s."])
    return DONE
