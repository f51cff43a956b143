from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.workers.running import processes, workdir
from tests.integration.children.stage import lives, until

ROOT = Path(__file__).parents[3]


class Lonely:
    """A node's process that runs one handler, and all that belongs to it."""

    def __init__(self, folder: Path, task: str, **args: Any) -> None:
        self.note = folder / "note"
        words = [sys.executable, "-m", "tests.integration.children.lonely", str(folder), task]
        self.process = subprocess.Popen(
            [*words, json.dumps({"note": str(self.note)} | args)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "started\n"

    def family(self) -> set[int]:
        """The ids of all processes below it now."""
        return {each.pid for each in processes.descendants(self.process.pid)}

    async def kill(self, family: set[int]) -> float:
        """Kills it by -9; gives the seconds until nothing of its family lives."""
        begin = time.monotonic()
        self.process.kill()
        self.process.wait()
        await until(lambda: not any(lives(pid) for pid in family), within=5.0)
        return time.monotonic() - begin


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[Any]:
    made: list[Lonely] = []

    def make(task: str, **args: Any) -> Lonely:
        made.append(Lonely(tmp_path, task, **args))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


@pytest.mark.parametrize(
    ("task", "args", "reason"),
    [
        ("sleep_async", {}, "an ordinary handler"),
        ("ignore_term", {}, "deaf to TERM, with a deaf program"),
        ("run_program", {}, "programs of programs"),
        ("leave_daemon", {"wait": 30.0}, "a daemon that left group and session"),
        ("fork_tree", {"depth": 3}, "sessions of their own all over"),
        ("stop_oneself", {}, "frozen: it can't end itself"),
        ("hold_the_interpreter", {}, "stuck in C: its watching thread never runs"),
        ("spin", {}, "busy in Python all the time"),
    ],
)
async def test_two_seconds_after_a_node_was_killed_nothing_of_it_lives(lonely: Any, task: str, args: dict[str, Any], reason: str) -> None:
    node = lonely(task, **args)
    await until(lambda: node.note.exists() and node.note.read_text() != "")
    await asyncio.sleep(0.2)
    family = node.family()
    assert len(family) >= 2
    assert await node.kill(family) < 2.0, reason


async def test_children_end_themselves_where_the_guard_was_killed_before(lonely: Any) -> None:
    node = lonely("run_program")
    await until(lambda: node.note.exists() and node.note.read_text() != "")
    family = node.family()
    (guard,) = [pid for pid in family if b"p2pqueue.workers.running.guard" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(guard, signal.SIGKILL)
    assert await node.kill(family) < 2.0


async def test_a_node_that_was_killed_while_its_children_start_leaves_nothing(lonely: Any) -> None:
    for pause in (0.0, 0.01, 0.03, 0.1):
        node = lonely("sleep_async", seconds=30.0)
        await asyncio.sleep(pause)
        assert await node.kill(node.family()) < 2.0


async def test_folders_that_a_killed_node_left_are_removed_at_the_next_start(lonely: Any, tmp_path: Path) -> None:
    node = lonely("leave_files")
    await until(lambda: node.note.exists() and node.note.read_text() != "")
    await node.kill(node.family())
    assert len(list((tmp_path / "work").iterdir())) == 1
    assert workdir.sweep(tmp_path / "work") == 1
    assert list((tmp_path / "work").iterdir()) == []
