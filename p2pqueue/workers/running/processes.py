"""Which processes belong to a worker process, and how do they all end?

A child leads a session and a process group of its own, and where the system allows it is made the one that orphans
below it fall to. So while it lives, everything it ever started is below it, a daemon that forked twice and left the
group too. For the time after its death each carries a mark in its environment.

Zombies count as dead: nothing runs in them, and `killpg(group, 0)` would still find them.

Linux is read from /proc; elsewhere psutil answers the same questions, slower, and without the mark.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

MARK_VARIABLE = "P2PQUEUE_CHILD"  # in the environment of a child and of all that it starts
KILL_PATIENCE = 0.45  # seconds within which the killed are gone, unless a device holds them
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
STEP = 0.003  # seconds between two looks at processes that are ending

_PROC = sys.platform.startswith("linux") and os.path.exists("/proc/self/stat")
_PR_SET_CHILD_SUBREAPER = 36
_DEAD_STATES = "ZX"


class Process(NamedTuple):
    """One line of the process table; `started` tells processes apart that had the same id one after the other."""

    pid: int
    parent: int
    group: int
    session: int
    started: float
    alive: bool


class Root(NamedTuple):
    """A worker process, by its id, when it started, and the mark that its descendants carry."""

    pid: int
    started: float
    mark: str


Known = set[tuple[int, float]]  # processes by (pid, started)


def look(pid: int) -> Process | None:
    """The process of that id, None where there is none."""
    if not _PROC:
        return _look_by_psutil(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    rest = text[text.rindex(b")") + 2 :].split(None, 20)  # the name before may hold spaces and brackets
    alive = rest[0].decode() not in _DEAD_STATES
    return Process(pid, int(rest[1]), int(rest[2]), int(rest[3]), float(rest[19]), alive)


def root_of(pid: int, mark: str) -> Root:
    """The root for a worker process that was just started."""
    found = look(pid)
    return Root(pid, found.started if found else 0.0, mark)


def table() -> dict[int, Process]:
    """All processes by their ids. Costs milliseconds: asked only when something has to end."""
    found = (look(pid) for pid in _pids())
    return {process.pid: process for process in found if process is not None}


def descendants(pid: int) -> list[Process]:
    """What runs below a living process, itself left out. Cheap where there is nothing."""
    listed = _children(pid)
    if listed is None:
        everything = table()
        return [each for each in _below({pid}, everything) if each.alive]
    below: list[Process] = []
    while listed:
        child = listed.pop()
        process = look(child)
        if process is not None and process.alive:
            below.append(process)
        listed += _children(child) or ()
    return below


def members(root: Root, known: Known) -> list[Process]:
    """All living processes that belong to a root, dead or alive: of its group and session, below it or below
    those already known, or carrying its mark. What is found is added to `known`."""
    everything = table()
    mine = {root.pid} if _is(everything.get(root.pid), root.started) else set()
    for process in everything.values():
        is_own = process.group == root.pid or process.session == root.pid
        if process.started >= root.started and (is_own or (process.pid, process.started) in known or _is_marked(process, root)):
            mine.add(process.pid)
    found = [everything[pid] for pid in mine]
    found += [each for each in _below(mine, everything) if each.pid not in mine]
    alive = [each for each in found if each.alive and each.pid != os.getpid()]
    known.update((each.pid, each.started) for each in alive)
    return alive


def terminate(root: Root, known: Known) -> None:
    """Sends TERM to the whole group at once, and to all descendants that left it. Adds whom it reached to `known`."""
    listed = descendants(root.pid)
    known.update((each.pid, each.started) for each in listed)
    send_group(root.pid, signal.SIGTERM)
    for each in listed:
        if each.group != root.pid:
            send(each, signal.SIGTERM)


def kill(root: Root, known: Known, *, spare: Collection[int] = (), patience: float = KILL_PATIENCE) -> bool:
    """Kills all that belong to a root, except those to spare, and says whether they are gone.

    Each is frozen first, so that none forks while the others are looked for. Blocks for up to `patience` seconds.
    """
    until = time.monotonic() + patience
    frozen: Known = set()
    while True:
        alive = [each for each in members(root, known) if each.pid not in spare]
        if not alive:
            return True
        fresh = [each for each in alive if (each.pid, each.started) not in frozen]
        for each in fresh:
            send(each, getattr(signal, "SIGSTOP", signal.SIGTERM))
        frozen.update((each.pid, each.started) for each in fresh)
        late = time.monotonic() > until
        if not fresh or late:
            for each in alive:
                send(each, KILL)
        if late:
            time.sleep(STEP)
            return not [each for each in members(root, known) if each.pid not in spare]
        if not fresh:
            time.sleep(STEP)


def send(process: Process, number: int) -> None:
    """Sends a signal to a process, unless its id has passed to another one."""
    found = look(process.pid)
    if found is None or found.started != process.started:
        return
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or a program of another user (sudo), which is not ours to end


def send_group(group: int, number: int) -> None:
    """Sends a signal to a whole process group at once; nothing where it is gone."""
    if not hasattr(os, "killpg"):
        return
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def is_alive(pid: int, started: float) -> bool:
    """Says whether that very process still runs."""
    found = look(pid)
    return found is not None and found.started == started and found.alive


def memory(pid: int) -> int:
    """Bytes of memory that a process and all below it hold for themselves."""
    return sum(_own_memory(each) for each in (pid, *(process.pid for process in descendants(pid))))


def adopt_orphans() -> bool:
    """Makes this process the one that orphans below it fall to, and says whether the system can do that."""
    if not _PROC:
        return False
    import ctypes

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def reap() -> bool:
    """Collects all children of this process that have died, and says whether none is left."""
    if not hasattr(os, "waitpid"):
        return True
    try:
        while os.waitpid(-1, getattr(os, "WNOHANG", 1))[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _is(process: Process | None, started: float) -> bool:
    return process is not None and process.started == started


def _below(roots: Collection[int], everything: dict[int, Process]) -> Iterator[Process]:
    by_parent: dict[int, list[Process]] = {}
    for process in everything.values():
        by_parent.setdefault(process.parent, []).append(process)
    waiting = list(roots)
    seen = set(roots)
    while waiting:
        for process in by_parent.get(waiting.pop(), ()):
            if process.pid not in seen:
                seen.add(process.pid)
                waiting.append(process.pid)
                yield process


def _is_marked(process: Process, root: Root) -> bool:
    if not (_PROC and root.mark and process.alive):
        return False
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return f"{MARK_VARIABLE}={root.mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def _children(pid: int) -> list[int] | None:
    """Ids of the direct children, those of each thread; None where the system doesn't list them."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:
        return [] if _PROC and _lists_children() else None
    except OSError:
        return []
    return found


def _lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _own_memory(pid: int) -> int:
    if not _PROC:
        import psutil

        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            resident, shared = file.read().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _pids() -> Iterator[int]:
    if _PROC:
        return (int(name) for name in os.listdir("/proc") if name.isdigit())
    import psutil

    return iter(psutil.pids())


def _look_by_psutil(pid: int) -> Process | None:
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            alive = process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            group = os.getpgid(pid) if hasattr(os, "getpgid") else 0
            session = os.getsid(pid) if hasattr(os, "getsid") else 0
            return Process(pid, process.ppid(), group, session, process.create_time(), alive)
    except (psutil.Error, OSError):
        return None
