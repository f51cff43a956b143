"""How does a shell learn to complete commands, job ids and task names?"""

from __future__ import annotations

import click

from p2pqueue.cli import output
from p2pqueue.cli.invocation import Command

_WHERE = {
    "bash": 'eval "$(p2pqueue completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(p2pqueue completion zsh)"   in ~/.zshrc, after compinit',
    "fish": "p2pqueue completion fish > ~/.config/fish/completions/p2pqueue.fish",
}


@click.command(
    "completion",
    cls=Command,
    help="Print the script by which a shell completes commands, options, job ids, statuses and task names.",
    examples="\n".join(_WHERE.values()),
)
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Prints the completion script of a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}.")
    output.line(kind(context.find_root().command, {}, "p2pqueue", "_P2PQUEUE_COMPLETE").source())
