"""Which commands does `p2pqueue` have, and where do they live?

A command's module is imported only when that command is used; the one-line descriptions stand here so that
`p2pqueue --help` imports none.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from p2pqueue.cli import edge
from p2pqueue.cli.invocation import Invocation, global_options

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("init", "Make this device's key and a new space."),
        "run": ("run", "Run the node, which does the jobs of this device."),
        "demo": ("demo", "Show the whole story on this machine, with a real video."),
    },
    "Jobs": {
        "enqueue": ("enqueue", "Enqueue one job."),
        "exec": ("exec", "Enqueue a program as a job."),
        "list": ("looking", "List jobs."),
        "show": ("showing", "Show one job, its attempts and why it waits."),
        "watch": ("following", "Follow jobs until they end."),
        "logs": ("logs", "Print what a job wrote."),
        "result": ("result", "Print a job's result, or save its file."),
        "cancel": ("acting", "Cancel jobs."),
        "pause": ("acting", "Pause jobs."),
        "resume": ("acting", "Resume paused jobs."),
        "retry": ("acting", "Run ended jobs again."),
        "delete": ("acting", "Delete jobs."),
    },
    "Files": {
        "share": ("sharing", "Share files and folders without a job."),
        "get": ("getting", "Get what was shared, by its manifest."),
        "files": ("files", "List, pin, verify and evict the files of this device."),
    },
    "Devices": {
        "invite": ("pairing", "Make a code that lets one device in."),
        "join": ("pairing", "Come into the space of the device that made a code."),
        "devices": ("devices", "List, rename and forget the space's devices."),
        "offline": ("networking", "Stop all networking of the running node."),
        "online": ("networking", "Begin its networking again."),
        "limit": ("limiting", "Slow down, stop and let go the file transfers of this device."),
        "identity": ("identity", "Renew the key of a device that was cloned."),
        "origin": ("origin", "Run a store for devices that are never there at the same time."),
    },
    "This device": {
        "status": ("status", "Show this device, its node and its counts."),
        "tasks": ("looking", "List the tasks that this device knows."),
        "config": ("settings", "Read and write settings."),
        "prune": ("keeping", "Drop what ended longer ago than retention."),
        "backup": ("keeping", "Write a sound copy of the space's rows and keys."),
        "restore": ("keeping", "Make a home from a backup."),
        "doctor": ("doctor", "Look for what is wrong, and say how to mend it."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
}
COMPLETE = "_P2PQUEUE_COMPLETE"  # the variable by which a shell asks for completions
COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}


class Commands(click.Group):
    """The commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"p2pqueue.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command, or says which one may be meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=2)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; a reader of stdout that went away is told by another error than click's own exit code."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise edge.ReaderGone from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by subject, without importing one."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


@click.pass_context
def _root(context: click.Context) -> None:
    """A job queue on your own devices: each goes on alone, and no server is needed."""


cli = Commands(
    "p2pqueue",
    callback=_root,
    help=_root.__doc__,
    params=list(global_options(nested=False)),
    context_settings={"auto_envvar_prefix": "P2PQUEUE", "help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command tells more, with examples: p2pqueue COMMAND --help",
    no_args_is_help=True,
)


def run(words: Sequence[str]) -> int:
    """Runs the words of a command line to their exit code."""
    invocation = Invocation()
    return edge.guard(
        lambda: cli.main(list(words), prog_name="p2pqueue", complete_var=COMPLETE, standalone_mode=False, obj=invocation),
        verbosity=lambda: invocation.verbose,
        as_json=lambda: invocation.json or _asks_for_json(words),
    )


def _asks_for_json(words: Sequence[str]) -> bool:
    """Says whether `--json` was typed, also where the words could not be understood."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)
