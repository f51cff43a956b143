"""Signals to a node that `p2pqueue run` started, with jobs and their programs under way."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.node.stage import APP, said
from tests.integration.nodes import CommandLine, Program, node


@pytest.fixture
def line(home: Home, identity: Identity) -> CommandLine:
    return CommandLine(home.path)


def wait(note: str, limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while not said(note):
        assert time.monotonic() < deadline, "the handler did not begin"
        time.sleep(0.02)


def ends(program: Program, within: float) -> float:
    """Waits for an orderly end; gives the seconds that it took."""
    began = time.monotonic()
    assert program.process.wait(within) == 0
    took = time.monotonic() - began
    program.wait_until_no_descendant_lives(2.0)
    return took


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_node_that_is_told_to_stop_releases_what_takes_too_long(line: CommandLine, tmp_path: Path, number: signal.Signals) -> None:
    note = str(tmp_path / "note")
    with node(line.home, APP, "--grace", "0.5s") as program:
        long = line.json("enqueue", "nap", "seconds=60", f"note={note}")["id"]
        wait(note)
        program.process.send_signal(number)
        assert 0.5 <= ends(program, 15) < 10
    shown = line.json("show", long)
    assert (shown["status"], shown["attempt"]) == ("queued", 0)
    assert [attempt["status"] for attempt in shown["attempts"]] == ["released"]
    with node(line.home, APP):
        shown = line.wait_for(long, status="running", limit=10)  # at once, not when a lease runs out
        line.json("cancel", long)


def test_a_node_that_is_told_to_stop_waits_for_what_ends_in_time(line: CommandLine, tmp_path: Path) -> None:
    note = str(tmp_path / "note")
    with node(line.home, APP, "--grace", "30s", "--slots", "1") as program:
        short = line.json("enqueue", "nap", "seconds=1", f"note={note}")["id"]
        waiting = line.json("enqueue", "echo")["id"]
        wait(note)
        program.process.terminate()
        ends(program, 20)
    assert line.json("show", short)["status"] == "succeeded"
    assert line.json("show", waiting)["status"] == "queued"


def test_a_second_signal_cuts_the_grace_short(line: CommandLine, tmp_path: Path) -> None:
    note = str(tmp_path / "note")
    with node(line.home, APP, "--grace", "60s") as program:
        long = line.json("enqueue", "nap", "seconds=60", f"note={note}")["id"]
        wait(note)
        program.process.terminate()
        time.sleep(0.3)
        assert program.process.poll() is None
        program.process.terminate()
        assert ends(program, 15) < 10
    assert line.json("show", long)["status"] == "queued"


def test_a_frozen_node_goes_on_where_it_was(line: CommandLine, tmp_path: Path) -> None:
    note = str(tmp_path / "note")
    with node(line.home, APP, "--stale-after", "1s", "--beat-every", "0.2s", "--slots", "1") as program:
        climbing = line.json("enqueue", "climb", "steps=30", "pause=0.05", f"note={note}")["id"]
        wait(note)
        program.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # longer than its lease lasts
        waiting = line.json("enqueue", "echo", "value=1")["id"]  # who enqueues is not held up
        cancelled = line.json("enqueue", "echo", "value=2")["id"]
        line.json("cancel", cancelled)
        assert line.json("show", waiting)["status"] == "queued"
        program.process.send_signal(signal.SIGCONT)
        assert line.wait_for(climbing, status="succeeded")["attempt"] == 1
        line.wait_for(waiting, status="succeeded")
        assert line.json("show", cancelled)["status"] == "cancelled"
    assert len(said(note)) == 30


def test_a_child_that_is_killed_from_outside_is_a_failed_attempt_and_says_so(line: CommandLine, tmp_path: Path) -> None:
    note = str(tmp_path / "note")
    with node(line.home, APP, "--slots", "1"):
        job = line.json("enqueue", "nap", "seconds=1", f"note={note}")["id"]
        wait(note)
        os.kill(_child_at_work(line), signal.SIGKILL)
        shown = line.wait_for(job, status="succeeded")
        assert [attempt["status"] for attempt in shown["attempts"]] == ["failed", "succeeded"]
        assert "killed by signal 9 (SIGKILL)" in shown["attempts"][0]["error"]


def _child_at_work(line: CommandLine) -> int:
    children = psutil.Process(line.json("status")["node"]["pid"]).children()
    return max(children, key=lambda child: sum(child.cpu_times()[:2])).pid
