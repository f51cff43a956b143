"""A job that kills its node is tried as often as it may be, and no more."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.node.stage import APP, said
from tests.integration.nodes import CommandLine, Program, node


def start(home: Home, number: int) -> Program:
    command = [sys.executable, "-m", "p2pqueue", "run", APP, "--slots", "2"]
    return Program(command, home.path, f"{home.path}-{number}")


@pytest.mark.parametrize("after", [0.0, 0.3], ids=["at once", "after a moment"])
def test_a_job_that_kills_its_node_ends_after_its_attempts_over_restarts(
    home: Home, identity: Identity, tmp_path: Path, after: float
) -> None:
    note = str(tmp_path / "note")
    line = CommandLine(home.path)
    other = line.json("enqueue", "nap", "seconds=0.05", "--priority", "-1")["id"]
    poison = line.json("enqueue", "kill_node", f"note={note}", f"after={after}", "--priority", "9")["id"]
    for number in range(3):
        program = start(home, number)
        assert program.process.wait(30) == -9
        program.lines.close()
        assert said(note) == [f"attempt {attempt}" for attempt in range(1, number + 2)]
    with node(home.path, APP, "--slots", "2"):
        shown = line.wait_for(poison, status="failed")
        assert shown["error"] == "worker lost"
        assert [attempt["status"] for attempt in shown["attempts"]] == ["lost"] * 3
        assert [attempt["attempt"] for attempt in shown["attempts"]] == [1, 2, 3]
        assert line.wait_for(other, status="succeeded")
        time.sleep(0.3)
        assert len(said(note)) == 3, "it is not tried again"
        again = line.json("enqueue", "echo", "value=1", "--wait")
        assert again["status"] == "succeeded"
