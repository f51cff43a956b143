"""How are settings read and written from the command line?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import output
from p2pqueue.cli.group import Group
from p2pqueue.cli.invocation import Invocation, pass_invocation
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.settings import Setting


def _complete_setting(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from p2pqueue.settings import TABLE

    return [CompletionItem(each.name, help=each.doc) for each in TABLE if each.name.startswith(incomplete)]


@click.group("config", cls=Group, help="Read and write the settings of this home (config.toml).")
def config_command() -> None:
    """Groups the commands about settings."""


@config_command.command(
    "get",
    help="Print one setting, or all: flag, variable and file as they take effect now.",
    short_help="Print one setting, or all, as they take effect now.",
    examples="""
    p2pqueue config get
    p2pqueue config get slots
    """,
)
@click.argument("name", required=False, shell_complete=_complete_setting)
@pass_invocation
def get_command(invocation: Invocation, name: str | None) -> None:
    """Prints settings."""
    from p2pqueue.config import load_settings
    from p2pqueue.settings import TABLE, find_setting

    chosen = [find_setting(name)] if name is not None else list(TABLE)
    settings = load_settings(invocation.home)
    values = {each.name: getattr(settings, each.name) for each in chosen}
    if name is not None and not invocation.json:
        output.line(plain(chosen[0].text(values[chosen[0].name])))
        return
    lines = [(each.name, plain(each.text(values[each.name])), each.doc) for each in chosen]
    invocation.result({"schema": 1, "settings": values}, lambda: output.table(("SETTING", "VALUE", "MEANS"), lines))


@config_command.command(
    "set",
    help="Write one setting. A node takes it up when it starts.",
    examples="""
    p2pqueue config set slots 2
    p2pqueue config set retention 30d
    p2pqueue config set tags gpu,blender
    """,
)
@click.argument("name", shell_complete=_complete_setting)
@click.argument("value")
@pass_invocation
def set_command(invocation: Invocation, name: str, value: str) -> None:
    """Writes a setting."""
    from p2pqueue.config import set_setting
    from p2pqueue.settings import find_setting

    known = find_setting(name)
    _check_networking(invocation, known, value)
    written = set_setting(invocation.home, name, value)
    if invocation.json:
        output.document({"schema": 1, "settings": {known.name: written}})
    invocation.say(f"{known.name} = {plain(known.text(written))}")
    _tell_node(invocation)


@config_command.command(
    "unset",
    help="Take one setting out of config.toml, so that its default holds again.",
    short_help="Take one setting out, so that its default holds.",
    examples="""
    p2pqueue config unset slots
    """,
)
@click.argument("name", shell_complete=_complete_setting)
@pass_invocation
def unset_command(invocation: Invocation, name: str) -> None:
    """Takes a setting out."""
    from p2pqueue.config import load_settings, unset_setting
    from p2pqueue.settings import find_setting

    known = find_setting(name)
    stood = unset_setting(invocation.home, name)
    value = getattr(load_settings(invocation.home), known.name)
    if invocation.json:
        output.document({"schema": 1, "settings": {known.name: value}})
    invocation.say(f"{known.name} = {plain(known.text(value))}{'' if stood else '; it was not set'}")
    _tell_node(invocation)


def _check_networking(invocation: Invocation, known: Setting, value: str) -> None:
    """Refuses what no node could start with, and warns of what may be a slip."""
    from p2pqueue.peers import options
    from p2pqueue.settings import merged

    if known.name not in options.CHECKED:
        return
    for words in options.check(merged({known.name: known.parse(value)})):
        invocation.warn(plain(words))


def _tell_node(invocation: Invocation) -> None:
    from p2pqueue.cli.opening import node_pid

    if node_pid(invocation.home) is not None:
        invocation.say("the running node takes it up when it starts again")


@config_command.command(
    "path",
    help="Print where the settings stand.",
    examples="""
    p2pqueue config path
    ${EDITOR} "$(p2pqueue config path)"
    """,
)
@pass_invocation
def path_command(invocation: Invocation) -> None:
    """Prints the path of config.toml."""
    path = invocation.home.config_file
    invocation.result({"schema": 1, "path": str(path)}, lambda: [str(path)])
