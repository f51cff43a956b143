"""How is a space kept: pruned, backed up, restored?

A backup is one private SQLite file: the rows, and in a table of its own the space's keys, though not the device's. A
restored home is a new device of the space.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click

from p2pqueue.cli import edge, output, quantities
from p2pqueue.cli.home_shape import home_document, home_facts
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.opening import check_initialised, open_shelf, words, writing
from p2pqueue.cli.output import plain

_KEYS = "backup_of_keys"  # the table of a backup that holds the space's keys
_SHORTEST = 86_400.0  # seconds: what ended is kept for a day at least, since other devices may still ask for it


@click.command(
    "prune",
    cls=Command,
    help="Drop jobs that ended longer ago than retention, with their logs and files. A node does so by itself.",
    examples="""
    p2pqueue prune
    p2pqueue prune --older-than 2d
    """,
)
@click.option("--older-than", type=quantities.duration, metavar="D", help="Another age than the setting `retention`; at least a day.")
@pass_invocation
def prune_command(invocation: Invocation, older_than: float | None) -> None:
    """Drops what ended long ago."""
    from p2pqueue.config import load_settings
    from p2pqueue.jobs.local import forget_inputs
    from p2pqueue.replica.retention import prune_all
    from p2pqueue.workers.tidying import log_folders, needed, tidy

    if older_than is not None and older_than < _SHORTEST:
        raise click.BadParameter("jobs are kept for at least a day.", param_hint="--older-than")
    age = load_settings(invocation.home, {"retention": older_than}).retention
    with writing(invocation.home) as replica:
        dropped = sum(prune_all(replica, int(age * 1000)))
        replica.write(lambda writer: forget_inputs(writer.connection))
        folders = log_folders(invocation.home)
        still = replica.read(lambda connection: needed(connection, folders))
    with closing(open_shelf(invocation.home)) as shelf:
        tidy(invocation.home, shelf, folders, still)
    invocation.result({"schema": 1, "dropped": dropped}, lambda: [f"dropped {quantities.counted(dropped, 'row')}"])


@click.command(
    "backup",
    cls=Command,
    help="""Write a sound copy of the space's rows and keys into one private file, also while a node runs.

    The files of jobs are not in it. Whoever has it can read the space and join it: keep it as you keep a key.
    """,
    examples="""
    p2pqueue backup /media/stick/studio.p2pqueue
    """,
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_invocation
def backup_command(invocation: Invocation, path: Path, force: bool) -> None:
    """Writes a backup."""
    from p2pqueue import wire
    from p2pqueue.identity.keys import export_space, load
    from p2pqueue.jobs.opening import carry_out_deferred
    from p2pqueue.private import sync_dir
    from p2pqueue.replica.file.backup import backup

    check_initialised(invocation.home)
    if path.is_dir():
        raise edge.Refusal(f"{path} is a folder; name the file to write", edge.USAGE)
    if not path.absolute().parent.is_dir():
        raise edge.Refusal(f"there is no folder {path.absolute().parent}", edge.NOT_FOUND)
    if path.exists() and not force:
        raise edge.Refusal(f"{path} is there already; choose another name, or add --force")
    exported = wire.pack(export_space(load(invocation.home)))
    carry_out_deferred(invocation.home)
    part = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        with words():
            backup(invocation.home.replica_file, part)
            _add_keys(part, exported)
        os.replace(part, path)
        sync_dir(path.absolute().parent)
    finally:
        with suppress(OSError):
            part.unlink()
    size = path.stat().st_size
    invocation.result({"schema": 1, "path": str(path), "size": size}, lambda: [plain(path)])
    invocation.say(f"{quantities.bytes_text(size)}; it holds the keys of the space, so keep it private, and no files' contents")


@click.command(
    "restore",
    cls=Command,
    help="""Make this home, which must have no space yet, from a backup. This device becomes a new one of the space.

    A backup has the jobs and their results, but not the contents of files.
    """,
    examples="""
    p2pqueue --home ~/studio-again restore /media/stick/studio.p2pqueue
    """,
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--label", metavar="L", help="A name for this device.  [default: the host's name]")
@pass_invocation
def restore_command(invocation: Invocation, path: Path, label: str | None) -> None:
    """Makes a home from a backup."""
    from p2pqueue.errors import AlreadyInitialised
    from p2pqueue.identity import keys
    from p2pqueue.jobs.opening import open_replica
    from p2pqueue.replica.file.backup import restore

    home = invocation.home
    for taken in (home.identity_file, home.replica_file):
        if taken.exists():
            raise AlreadyInitialised(f"the home {home.path} has a space already; restore into another one, with --home")
    exported = _read_keys(path)
    home.ensure()
    try:
        with words():
            restore(path, home.replica_file)
            _drop_keys(home.replica_file)
        identity = keys.restore(home, exported, label)
    except BaseException:
        for left in (home.replica_file, home.replica_file.with_name(home.replica_file.name + "-wal")):
            left.unlink(missing_ok=True)
        raise
    logging.getLogger("p2pqueue.replica").setLevel(logging.ERROR)  # that it goes on under a new author is meant here
    open_replica(home, identity).close()
    facts = home_facts(home, identity, more=", a new one")
    invocation.result(home_document(home, identity), lambda: output.pairs(facts))
    invocation.say("a backup carries no files: their contents lie on the devices that made them")


def _add_keys(path: Path, exported: bytes) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
        connection.execute(f"CREATE TABLE {_KEYS} (exported BLOB NOT NULL) STRICT")
        connection.execute(f"INSERT INTO {_KEYS} VALUES (?)", (exported,))


def _read_keys(path: Path) -> dict[str, Any]:
    from p2pqueue import wire
    from p2pqueue.errors import DamagedHome, MalformedMessage

    with open(path, "rb"):
        pass  # says in the system's words what is wrong with the path
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"  # it may lie where nothing can be written
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            (exported,) = connection.execute(f"SELECT exported FROM {_KEYS}").fetchone()
            found: dict[str, Any] = wire.unpack(exported)
    except (sqlite3.DatabaseError, TypeError, MalformedMessage) as error:
        raise DamagedHome(f"{path} is no backup of p2pqueue, or is damaged ({error})") from error
    return found


def _drop_keys(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")  # the keys stand in the file `identity` alone
        connection.execute(f"DROP TABLE IF EXISTS {_KEYS}")
