"""How does a command with further commands below it behave like the others?"""

from __future__ import annotations

from typing import Any

import click

from p2pqueue.cli.invocation import Command, global_options


class Group(click.Group):
    """A group whose commands show examples, and that takes the global options itself."""

    command_class = Command

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.params.extend(global_options(nested=True))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, as they are typed."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples.strip().splitlines():
                    formatter.write(f"{' ' * formatter.current_indent}{example.strip()}\n")
