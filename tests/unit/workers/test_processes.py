from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from p2pqueue.workers.running import processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
SHELL = ["sh", "-c", "sleep 60 & sleep 60 & wait"]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        process.kill()
        process.wait()


def start(started: list[subprocess.Popen[bytes]], words: list[str]) -> processes.Root:
    mark = os.urandom(4).hex()
    process = subprocess.Popen(words, start_new_session=True, env={**os.environ, processes.MARK_VARIABLE: mark})
    started.append(process)
    return processes.root_of(process.pid, mark)


def wait_for(root: processes.Root, count: int) -> list[processes.Process]:
    until = time.monotonic() + 10
    while len(found := processes.descendants(root.pid)) < count:
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


def test_a_process_is_known_by_its_id_and_its_start(started: list[subprocess.Popen[bytes]]) -> None:
    root = start(started, SLEEP)
    found = processes.look(root.pid)
    assert found is not None
    assert (found.parent, found.group, found.session, found.alive) == (os.getpid(), root.pid, root.pid, True)
    assert processes.is_alive(root.pid, root.started)
    assert not processes.is_alive(root.pid, root.started + 1)


def test_a_zombie_counts_as_dead(started: list[subprocess.Popen[bytes]]) -> None:
    root = start(started, ["true"])
    until = time.monotonic() + 10
    while processes.is_alive(root.pid, root.started):
        assert time.monotonic() < until
    os.killpg(root.pid, 0)  # the group is still there for the kernel
    assert processes.members(root, set()) == []
    assert processes.kill(root, set())


def test_what_runs_below_is_found_and_killed(started: list[subprocess.Popen[bytes]]) -> None:
    root = start(started, SHELL)
    below = wait_for(root, 2)
    begin = time.monotonic()
    assert processes.kill(root, set())
    assert time.monotonic() - begin < 0.5
    assert not any(processes.is_alive(each.pid, each.started) for each in below)


def test_those_to_spare_stay(started: list[subprocess.Popen[bytes]]) -> None:
    root = start(started, SHELL)
    below = wait_for(root, 2)
    processes.kill(root, set(), spare=(root.pid, below[0].pid))
    assert processes.is_alive(below[0].pid, below[0].started)
    assert not processes.is_alive(below[1].pid, below[1].started)
    processes.kill(root, set())


def test_orphans_are_found_by_their_group_and_by_their_mark(started: list[subprocess.Popen[bytes]]) -> None:
    root = start(started, ["sh", "-c", "sleep 60 & setsid sleep 60 & wait"])
    below = wait_for(root, 2)
    os.kill(root.pid, 9)
    started[0].wait()
    assert {each.pid for each in processes.members(root, set())} == {each.pid for each in below}
    assert processes.kill(root, set())


def test_a_signal_never_hits_a_process_that_got_the_id_later(started: list[subprocess.Popen[bytes]]) -> None:
    root = start(started, SLEEP)
    found = processes.look(root.pid)
    assert found is not None
    processes.send(found._replace(started=found.started - 1), 9)
    assert processes.is_alive(root.pid, root.started)


def test_a_group_that_is_gone_is_no_error() -> None:
    processes.send_group(2**22 + 1, 15)
    assert processes.look(2**22 + 1) is None
    assert processes.descendants(2**22 + 1) == []


def test_memory_counts_what_runs_below(started: list[subprocess.Popen[bytes]]) -> None:
    program = "x = bytearray(50 << 20); print(flush=True); import time; time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert processes.memory(os.getpid()) > processes.memory(process.pid) > 50 << 20
