"""A job that kills its node is tried as often as it may be, and no more."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from p2pqueue import Queue
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.node.stage import APP, became, said, words
from tests.integration.nodes import Program, node


def start(home: Home, number: int) -> Program:
    command = [sys.executable, "-m", "p2pqueue", "run", APP, "--slots", "2"]
    return Program(command, home.path, f"{home.path}-{number}")


@pytest.mark.parametrize("after", [0.0, 0.3], ids=["at once", "after a moment"])
def test_a_job_that_kills_its_node_ends_after_its_attempts_over_restarts(
    home: Home, identity: Identity, tmp_path: Path, after: float
) -> None:
    note = str(tmp_path / "note")
    with Queue("node-tests", home=home) as queue:
        other = queue.enqueue("nap", {"seconds": 0.05}, priority=-1, max_attempts=9)  # it may run beside the poison, and die with it
        poison = queue.enqueue("kill_node", {"note": note, "after": after}, priority=9)
        for number in range(2):
            program = start(home, number)
            assert program.process.wait(30) == -9
            program.lines.close()
            program.wait_until_no_descendant_lives(5.0)
            assert said(note) == [f"attempt {attempt}" for attempt in range(1, number + 2)]
        with node(home.path, APP, "--slots", "2"):
            became(poison, "failed")
            assert poison.error == "worker lost"
            assert words(poison) == ["lost"] * 2
            assert [attempt.number for attempt in poison.attempts] == [1, 2]
            assert other.result(20) == 0.05
            assert queue.enqueue("echo", {"value": 1}).result(20) == 1
            time.sleep(0.2)
            assert len(said(note)) == 2, "it is not tried again"


def test_a_job_that_kills_its_child_spares_the_node_and_the_others(home: Home, identity: Identity) -> None:
    with Queue("node-tests", home=home) as queue, node(home.path, APP, "--slots", "2"):
        poison = queue.enqueue("crash")
        others = [queue.enqueue("echo", {"value": number}) for number in range(5)]
        assert [job.result(20) for job in others] == list(range(5))
        became(poison, "failed")
        assert words(poison) == ["failed", "failed"]
