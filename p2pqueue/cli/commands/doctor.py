"""What is wrong with this home, and how is it mended?"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from p2pqueue.cli import edge, output, quantities
from p2pqueue.cli.commands.finding import Finding
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.opening import node_pid
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.home import Home

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
NEWEST_YEAR_MS = 4_102_444_800_000  # 2100: a clock beyond is not read
OLDEST_CLOCK = 1_767_225_600  # seconds, 2026-01-01: a clock before lost its battery
SLOW_SYNC = 0.05  # seconds for one durable write, above which enqueueing feels slow

_COLORS = {"ok": "green", "warning": "yellow", "wrong": "red"}


@click.command(
    "doctor",
    cls=Command,
    help="Look for what is wrong with this home and this machine, and say how to mend it. Exits 1 where something is wrong.",
    examples="""
    p2pqueue doctor
    p2pqueue doctor --json | jq '.checks[] | select(.verdict != "ok")'
    """,
)
@pass_invocation
def doctor_command(invocation: Invocation) -> int:
    """Looks for what is wrong."""
    home = invocation.home
    found = [finding for check in _CHECKS for finding in check(home)]
    wrong = any(finding.verdict == "wrong" for finding in found)
    invocation.result({"schema": 1, "ok": not wrong, "checks": [asdict(each) for each in found]}, lambda: _lines(found))
    return edge.ERROR if wrong else edge.DONE


def _lines(found: list[Finding]) -> list[str]:
    lines = []
    for each in found:
        lines.append(f"{output.colored(f'{each.verdict:<8}', _COLORS[each.verdict])} {each.check}: {plain(each.words)}")
        if each.mend:
            lines.append(f"         → {plain(each.mend)}")
    return lines


def _versions(home: Home) -> Iterator[Finding]:
    from p2pqueue import __version__

    yield Finding("p2pqueue", "ok", f"{__version__} on Python {'.'.join(map(str, sys.version_info[:3]))}, {sys.platform}")
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield Finding(
            "sqlite", "wrong", f"SQLite {sqlite3.sqlite_version} is too old", "use a Python with SQLite 3.37 or later (STRICT tables)"
        )
    else:
        yield Finding("sqlite", "ok", f"SQLite {sqlite3.sqlite_version}")


def _clock(home: Home) -> Iterator[Finding]:
    now = time.time()
    if not OLDEST_CLOCK < now < NEWEST_YEAR_MS / 1000:
        told = quantities.rfc3339(int(now * 1000))
        yield Finding("clock", "wrong", f"this machine believes it is {told}", "set the clock, or start its time service")
    else:
        yield Finding("clock", "ok", quantities.rfc3339(int(now * 1000)) or "")


def _space(home: Home) -> Iterator[Finding]:
    from p2pqueue.errors import NotInitialised, P2PQueueError
    from p2pqueue.identity import keys

    try:
        identity = keys.load(home)
    except P2PQueueError as error:
        mend = "" if isinstance(error, NotInitialised) else "put the file back, or restore a backup: `p2pqueue --home DIR restore PATH`"
        yield Finding("space", "wrong", str(error), mend)
        return
    except PermissionError as error:
        mend = "run as its owner, or choose your own home with --home"
        yield Finding("space", "wrong", f"{error.filename} can't be read by this user", mend)
        return
    yield Finding("space", "ok", f"{identity.space_name}, device {identity.label} ({identity.device_id[:8]}), {home.path}")
    loosened = keys.loosened_modes(home)
    for problem in loosened:
        words, _, mend = problem.partition("; run: ")
        yield Finding("modes", "wrong", words, f"run: {mend}" if mend else "")
    if not loosened:
        yield Finding("modes", "ok", "private to this user")


def _settings(home: Home) -> Iterator[Finding]:
    from p2pqueue.config import load_settings
    from p2pqueue.errors import P2PQueueError
    from p2pqueue.peers import options
    from p2pqueue.settings import TABLE

    try:
        slips = options.check(load_settings(home))
    except P2PQueueError as error:
        yield Finding("settings", "wrong", str(error), f"mend it in {home.config_file}, or in the environment")
        return
    for words in slips:
        yield Finding("settings", "warning", words, f"plug it in, or mend the name in {home.config_file}")
    if not slips:
        variables = [each.variable for each in TABLE if os.environ.get(each.variable)]
        places = [*([str(home.config_file)] if home.config_file.exists() else []), *variables]
        yield Finding("settings", "ok", f"by {', '.join(places)}" if places else "all as by default")


def _database(home: Home) -> Iterator[Finding]:
    from p2pqueue.cli.opening import open_reader
    from p2pqueue.errors import DiskFull, NotInitialised, P2PQueueError, ReadOnlyHome

    if not home.identity_file.exists():
        return  # told already
    mend = "stop the node, and restore a backup into a new home: `p2pqueue --home DIR restore PATH`"
    world = "see what is said of `disk` and `writing`"
    try:
        connection = open_reader(home)
    except NotInitialised:
        return  # told already
    except (P2PQueueError, sqlite3.Error, OSError) as error:
        yield Finding("database", "wrong", str(error), world if isinstance(error, (DiskFull, ReadOnlyHome)) else mend)
        return
    try:
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(5)")]
        kept_aside = _kept_aside(connection)
        (jobs,) = connection.execute("SELECT coalesce(sum(n), 0) FROM counts WHERE tbl = 'jobs'").fetchone()
    except sqlite3.Error as error:
        problems, jobs, kept_aside = [str(error)], 0, 0
    finally:
        connection.close()
    if problems != ["ok"]:
        yield Finding("database", "wrong", "; ".join(problems), mend)
    else:
        size = home.replica_file.stat().st_size
        yield Finding("database", "ok", f"sound, {quantities.counted(jobs, 'job')}, {quantities.bytes_text(size)}")
    if kept_aside:
        words = f"{quantities.counted(kept_aside, 'job')} that a program enqueued can't be read by this version, and didn't become any"
        yield Finding("enqueued", "wrong", words, "enqueue them again; they are kept in the table `deferred`, with the reason")


def _kept_aside(connection: sqlite3.Connection) -> int:
    try:
        (number,) = connection.execute("SELECT count(*) FROM deferred WHERE problem IS NOT NULL").fetchone()
    except sqlite3.OperationalError:  # a home that no program of this version has opened for writing
        return 0
    return int(number)


def _disk(home: Home) -> Iterator[Finding]:
    import shutil

    place = next((each for each in (home.path, *home.path.parents) if each.exists()), home.path)
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        yield Finding("disk", "wrong", f"{place}: {error.strerror}")
        return
    words = f"{quantities.bytes_text(usage.free)} free of {quantities.bytes_text(usage.total)}"
    reserve = _reserve(home, usage.total)
    if usage.free < reserve:
        words = f"{words}, of which {quantities.bytes_text(reserve)} stay reserved"
        yield Finding("disk", "warning", words, "free some: no file is stored now; the setting `reserve` says how much stays free")
    else:
        yield Finding("disk", "ok", words)
    if home.path.is_dir():
        yield from _writing(home)


def _reserve(home: Home, total: int) -> int:
    from p2pqueue.config import load_settings
    from p2pqueue.errors import P2PQueueError
    from p2pqueue.payload.store import reserved

    try:
        return reserved(total, load_settings(home).reserve)
    except P2PQueueError:  # told already
        return reserved(total)


def _writing(home: Home) -> Iterator[Finding]:
    path = home.path / f".doctor-{os.getpid()}"
    try:
        start = time.perf_counter()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, b"\0" * 4096)
            os.fsync(file)
        finally:
            os.close(file)
            os.unlink(path)
        taken = time.perf_counter() - start
    except OSError as error:
        mend = "check its owner and mode, and whether the disk is full or read-only"
        yield Finding("writing", "wrong", f"{home.path} can't be written: {error.strerror}", mend)
        return
    if taken > SLOW_SYNC:
        mend = "put the home on a faster disk if enqueueing feels slow"
        yield Finding("writing", "warning", f"a durable write takes {taken * 1000:.0f} ms", mend)
    else:
        yield Finding("writing", "ok", f"a durable write takes {taken * 1000:.1f} ms")


def _node(home: Home) -> Iterator[Finding]:
    from p2pqueue.errors import WorldError
    from p2pqueue.replica.door.doorbell import DoorbellClient

    pid = node_pid(home)
    if pid is None:
        yield Finding("node", "warning", "not running; jobs wait", "start it with `p2pqueue run APP`")
        return
    try:
        status = DoorbellClient(home.socket_path).request("status")
    except (WorldError, OSError) as error:
        words = f"pid {pid} runs, and its socket {home.socket_path} does not answer: {error}"
        yield Finding("node", "wrong", words, f"stop it (kill {pid}) and start it again")
        return
    tasks = ", ".join(status.get("tasks", ())) or "none"
    slots = quantities.counted(status["slots"], "slot") if status.get("slots") else "takes no jobs"
    yield Finding("node", "ok", f"pid {pid}, {slots}, tasks: {tasks}")


def _network(home: Home) -> Iterator[Finding]:
    from p2pqueue.cli.commands.reach import network
    from p2pqueue.config import load_settings
    from p2pqueue.errors import P2PQueueError, WorldError
    from p2pqueue.peers import options
    from p2pqueue.replica.door.doorbell import DoorbellClient

    told = None
    try:
        settings = load_settings(home)
        options.check(settings)
        if node_pid(home) is not None:
            told = DoorbellClient(home.socket_path).request("status").get("network")
    except (WorldError, OSError):
        yield Finding("network", "warning", "not tried, as the node doesn't answer", "see what is said of `node`")
        return
    except P2PQueueError:
        yield Finding("network", "warning", "not tried, as the settings can't be meant", "mend them first, and run `p2pqueue doctor` again")
        return
    yield from network(settings, told if isinstance(told, dict) else None)


def _programs(home: Home) -> Iterator[Finding]:
    import shutil

    found = shutil.which("ffmpeg")
    if found:
        yield Finding("ffmpeg", "ok", found)
    else:
        words = "not on PATH; tasks that need it wait for another device"
        yield Finding("ffmpeg", "warning", words, "install ffmpeg if this device shall do such jobs")


_CHECKS: tuple[Callable[[Home], Iterator[Finding]], ...] = (
    _versions, _clock, _space, _settings, _database, _disk, _node, _network, _programs,
)  # fmt: skip
