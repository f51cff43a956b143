"""Signals to a node that `p2pqueue run` started, with jobs and their programs under way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue import Queue
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.node.stage import APP, became, said, told, words
from tests.integration.nodes import Program, node


@pytest.fixture
def queue(home: Home, identity: Identity) -> Iterator[Queue]:
    with Queue("node-tests", home=home) as made:
        yield made


@pytest.fixture
def note(tmp_path: Path) -> str:
    return str(tmp_path / "note")


def ends(program: Program, within: float) -> float:
    """Waits for an orderly end; gives the seconds that it took."""
    began = time.monotonic()
    assert program.process.wait(within) == 0
    took = time.monotonic() - began
    program.wait_until_no_descendant_lives(2.0)
    return took


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_node_that_is_told_to_stop_releases_what_takes_too_long(queue: Queue, home: Home, note: str, number: signal.Signals) -> None:
    with node(home.path, APP, "--grace", "0.5s") as program:
        long = queue.enqueue("program", {"seconds": 60, "note": note})
        told(note)
        program.process.send_signal(number)
        assert 0.5 <= ends(program, 20) < 10
    assert (long.status, long.row.attempt, words(long)) == ("queued", 0, ["released"])
    with node(home.path, APP):
        became(long, "running", within=10)  # at once, not when a lease runs out
        long.cancel()
        became(long, "cancelled")


def test_a_node_that_is_told_to_stop_waits_for_what_ends_in_time(queue: Queue, home: Home, note: str) -> None:
    with node(home.path, APP, "--grace", "30s", "--slots", "1") as program:
        short = queue.enqueue("nap", {"seconds": 1.5, "note": note})
        told(note)
        program.process.terminate()
        time.sleep(0.2)
        waiting = queue.enqueue("echo")
        ends(program, 30)
    assert (short.status, waiting.status) == ("succeeded", "queued")


def test_a_second_signal_cuts_the_grace_short(queue: Queue, home: Home, note: str) -> None:
    with node(home.path, APP, "--grace", "60s") as program:
        long = queue.enqueue("nap", {"seconds": 60, "note": note})
        told(note)
        program.process.terminate()
        time.sleep(0.3)
        assert program.process.poll() is None
        program.process.terminate()
        assert ends(program, 20) < 10
    assert (long.status, words(long)) == ("queued", ["released"])


def test_a_frozen_node_goes_on_where_it_was(queue: Queue, home: Home, note: str) -> None:
    with node(home.path, APP, "--stale-after", "1s", "--beat-every", "0.2s", "--slots", "1") as program:
        climbing = queue.enqueue("climb", {"steps": 20, "pause": 0.05, "note": note})
        told(note)
        program.process.send_signal(signal.SIGSTOP)
        time.sleep(1.3)  # longer than its lease lasts
        waiting, cancelled = queue.enqueue("echo", {"value": 1}), queue.enqueue("echo", {"value": 2})  # nobody is held up
        cancelled.cancel()
        assert (waiting.status, cancelled.status) == ("queued", "cancelled")
        program.process.send_signal(signal.SIGCONT)
        assert climbing.result(20) == list(range(20))
        assert waiting.result(20) == 1
        assert (cancelled.status, words(cancelled), climbing.row.attempt) == ("cancelled", [], 1)
    assert len(said(note)) == 20


def test_a_cancel_of_a_frozen_nodes_job_is_heeded_when_it_goes_on(queue: Queue, home: Home, note: str) -> None:
    with node(home.path, APP, "--slots", "1") as program:
        job = queue.enqueue("nap", {"seconds": 60, "note": note})
        told(note)
        program.process.send_signal(signal.SIGSTOP)
        job.cancel()
        assert job.status == "cancelled"
        program.process.send_signal(signal.SIGCONT)
        assert queue.enqueue("echo", {"value": 1}).result(20) == 1, "its slot is free again"
        assert (job.status, words(job)) == ("cancelled", ["cancelled"])


def test_a_child_that_is_killed_from_outside_is_a_failed_attempt_and_says_so(queue: Queue, home: Home, note: str) -> None:
    with node(home.path, APP, "--slots", "1"):
        job = queue.enqueue("tell_pid", {"note": note, "seconds": 1.0})
        told(note)
        os.kill(int(said(note)[0]), signal.SIGKILL)
        assert job.result(20) == 2
        assert words(job) == ["failed", "succeeded"]
        assert "killed by signal 9 (SIGKILL)" in (job.attempts[0].error or "")
