"""How was this command called: for which home, with which output, and who opens what?

One `Invocation` goes through a command. It opens things on first use, so that a command pays only for what it needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import output

if TYPE_CHECKING:
    from p2pqueue.home import Home


@dataclass
class Invocation:
    """The global options of one call."""

    home_path: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: int = 0
    color: bool = True

    @property
    def home(self) -> Home:
        """The home that this call is about."""
        from p2pqueue.home import Home

        return Home.find(self.home_path)

    def say(self, words: str) -> None:
        """Tells the person something on stderr, unless `-q`. The words are already plain."""
        if not self.quiet:
            click.echo(words, err=True)

    def warn(self, words: str) -> None:
        """Tells the person on stderr about something that will not go as expected; `-q` silences it too."""
        if not self.quiet:
            click.secho(f"warning: {words}", err=True, fg="yellow")

    def result(self, document: Any, lines: Callable[[], list[str]]) -> None:
        """Writes the result: one JSON object with `--json`, else the lines for people."""
        if self.json:
            output.document(document() if callable(document) else document)
        else:
            for text in lines():
                output.line(text)


def _set_home(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value == "":
        raise click.BadParameter("an empty text names no folder.")
    if value is not None:
        context.find_object(Invocation).home_path = value  # type: ignore[union-attr]


def _set(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            setattr(context.find_object(Invocation), name, value)

    return callback


def _set_color(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value or os.environ.get("NO_COLOR"):
        invocation = context.find_object(Invocation)
        if invocation is not None:
            invocation.color = False
        context.find_root().color = context.color = False


def _show_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("p2pqueue")
        except PackageNotFoundError:
            number = "(not installed)"
        python = ".".join(map(str, sys.version_info[:3]))
        click.echo(f"p2pqueue {number}, Python {python}")
        context.exit()


def global_options(*, nested: bool) -> list[click.Option]:
    """The options that every command takes; `nested` ones, after the subcommand, stay out of its help."""
    shared: dict[str, Any] = {"expose_value": False, "hidden": nested, "allow_from_autoenv": not nested}
    return [
        click.Option(["--home"], metavar="DIR", callback=_set_home, help="The folder of this device's space.", **shared),
        click.Option(["--json"], is_flag=True, callback=_set("json"), help="Print one JSON object; an error is one on stderr.", **shared),
        click.Option(["-q", "--quiet"], is_flag=True, callback=_set("quiet"), help="Print results and errors only.", **shared),
        click.Option(["-v", "--verbose"], count=True, callback=_set("verbose"), help="Say more; show tracebacks.", **shared),
        click.Option(["--no-color"], is_flag=True, callback=_set_color, help="Print without colours (also NO_COLOR).", **shared),
        click.Option(
            ["--version"], is_flag=True, is_eager=True, callback=_show_version, help="Print the version.",
            expose_value=False, hidden=nested, allow_from_autoenv=False,
        ),
    ]  # fmt: skip


class Command(click.Command):
    """A command that also takes the global options after its name, and shows examples in its help."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        taken = {option for parameter in self.params for option in parameter.opts}
        self.params.extend(option for option in global_options(nested=True) if not taken & set(option.opts))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, as they are typed, and where the global options are told."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples.strip().splitlines():
                    formatter.write(f"{' ' * formatter.current_indent}{example.strip()}\n")
        formatter.write_paragraph()
        formatter.write_text("Global options (--home, --json, -q, -v, --no-color) are told by: p2pqueue --help")


pass_invocation = click.make_pass_decorator(Invocation)
