"""How is the demo shown on a terminal?"""

from __future__ import annotations

import signal
import sys

import click

from p2pqueue.cli.invocation import Command, Invocation, pass_invocation

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
            click.echo(f"\r   [{done:-<{_BAR}}] {fraction:4.0%} {phase:<20.20}", nl=False, err=self._to_stderr)
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
    help="Show the whole story on this machine, with a real video, in under two minutes.",
    examples="""
    p2pqueue demo
    p2pqueue demo --keep
    """,
)
@click.option("--keep", is_flag=True, help="Leave the folder with the video, the result and the home.")
@pass_invocation
def demo_command(invocation: Invocation, keep: bool) -> None:
    """Makes a video, transcodes it as a job, kills the node half-way, and gets the result all the same."""
    from p2pqueue.demo.stage import StoryBroken, stage
    from p2pqueue.demo.story import tell

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the node and the folder go in this case too
    with stage(keep=keep) as made:
        try:
            told = tell(made, _Terminal(to_stderr=invocation.json))
        except StoryBroken as error:
            raise click.ClickException(f"the demo did not go as told: {error}") from error
        if keep:
            invocation.say(f"the folder is {made.folder}")
    ending = f"All of it came true in {told.took:.0f} s."
    invocation.result(told.document(), lambda: ["", ending])
