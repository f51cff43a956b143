"""A node that is told to stop in mid-job gives the job back, leaves no child, and says so by its exit code."""

from __future__ import annotations

import signal
import time

import pytest

from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.nodes import ROOT, CommandLine, Program, node

APPLICATION = str(ROOT / "tests" / "integration" / "kills" / "app.py")


def _start_endless(cli: CommandLine) -> str:
    job: str = cli.json("enqueue", "endless", "number=1")["id"]
    next(seen for seen in cli.follow(job) if seen["phase"] == "at it")
    return job


def _await_end(program: Program, limit: float) -> float:
    started = time.monotonic()
    program.process.wait(limit)
    return time.monotonic() - started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_mid_job_releases_the_job_and_leaves_no_child(home: Home, identity: Identity, number: signal.Signals) -> None:
    cli = CommandLine(home.path)
    with node(home.path, APPLICATION, "--grace", "0.2") as stopped:
        job = _start_endless(cli)
        stopped.process.send_signal(number)
        _await_end(stopped, 15)
        stopped.wait_until_no_descendant_lives(0.5)
    assert stopped.process.returncode in (0, 130)
    shown = cli.json("show", job)
    assert (shown["status"], shown["attempt"]) == ("queued", 0)  # the attempt was given back
    assert [attempt["status"] for attempt in shown["attempts"]] == ["released"]


def test_a_second_signal_cuts_the_grace(home: Home, identity: Identity) -> None:
    cli = CommandLine(home.path)
    with node(home.path, APPLICATION, "--grace", "50") as stopped:
        job = _start_endless(cli)
        stopped.process.terminate()
        time.sleep(0.3)
        stopped.process.terminate()
        assert _await_end(stopped, 20) < 15
        stopped.wait_until_no_descendant_lives(0.5)
    assert cli.json("show", job)["status"] == "queued"


def test_another_node_takes_a_released_job_at_once(home: Home, identity: Identity) -> None:
    cli = CommandLine(home.path)
    with node(home.path, APPLICATION, "--grace", "0.2") as first:
        job = _start_endless(cli)
        first.process.terminate()
        _await_end(first, 15)
    with node(home.path, APPLICATION, "--grace", "0.2"):
        started = time.monotonic()
        cli.wait_for(job, status="running", attempt=1)
        assert time.monotonic() - started < 10  # not after the 45 s of a stale lease
