"""What a running node says to the person who started it."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_working import wait_for


def test_a_node_tells_what_it_took_back_what_it_runs_and_that_it_stops(p2p: CommandLine) -> None:
    with p2p.node() as node:
        job_id = p2p("enqueue", "sleep", "seconds=60").id
        wait_for(p2p, job_id, "running")
        node.process.kill()
        node.process.wait()
    with p2p.node("-v") as node:
        wait_for(p2p, job_id, "running")
        assert node.stop(signal.SIGTERM) == 0
        told = node.errors.read_text()
    assert "took back 1 job of an earlier run" in told
    assert f"job {job_id[:13]} sleep: attempt 2 of 3 started" in told
    assert "stopping: waiting up to 1 s for 1 job; once more to stop at once" in told
    assert f"job {job_id[:13]} sleep: attempt 2 released after" in told
    assert told.rstrip().endswith("stopped")


def test_a_node_with_q_says_nothing_when_it_stops(p2p: CommandLine) -> None:
    with p2p.node("-q") as node:
        assert node.stop(signal.SIGTERM) == 0
        assert node.errors.read_text() == ""


def test_command_tasks_that_may_not_run_are_named_at_the_start(p2p: CommandLine, tmp_path: Path) -> None:
    commands = tmp_path / "media.toml"
    commands.write_text('[tasks.shout]\ncommand = ["echo", "a"]\n\n[tasks.whisper]\ncommand = ["echo", "b"]\n')
    told = p2p("run", str(commands), "--burst").err
    assert "2 tasks wait until the node is started with --allow-exec: shout, whisper" in told
    assert "--allow-exec" not in p2p("run", str(commands), "--burst", "--allow-exec").err


def test_a_command_task_that_is_allowed_by_name_runs_and_no_other_program_does(p2p: CommandLine, tmp_path: Path) -> None:
    commands = tmp_path / "media.toml"
    commands.write_text('[tasks.shout]\ncommand = ["echo", "a"]\n\n[tasks.whisper]\ncommand = ["echo", "b"]\n')
    with p2p.node("--allow-task", "shout", "--allow-task", "exec", app=str(commands)) as node:
        assert p2p("enqueue", "shout", "--wait", "--json").json["result"] == "a"
        for words in (["enqueue", "whisper"], ["exec", "--", "echo", "c"]):
            waiting = p2p("--json", *words).json["id"]
            assert "--allow-exec" in p2p("show", waiting, "--json").json["why"]
        told = node.errors.read_text()
    assert "1 task waits until the node is started with --allow-exec: whisper" in told
    assert "allowed by name, and no command task of this node: exec" in told


def test_an_application_without_a_task_is_told_of_in_one_line(p2p: CommandLine, tmp_path: Path) -> None:
    application = tmp_path / "none.py"
    application.write_text("from p2pqueue import Queue\n\nqueue = Queue('texts')\n")
    told = [line for line in p2p("run", str(application), "--burst").err.splitlines() if "warning" in line]
    assert told == [f"warning: {application} has no tasks; decorate its functions with @queue.task()"]
    assert p2p("run", str(application), "--burst", "-q").err == ""


def test_a_node_that_takes_no_jobs_promises_no_slots(p2p: CommandLine) -> None:
    with p2p.node("--no-work") as node:
        assert node.ready["slots"] == p2p("status", "--json").json["node"]["slots"] == 0
        for told in (p2p("status").out, p2p("doctor", check=None).out):
            assert "takes no jobs" in told
            assert "slot" not in told
    told = p2p("run", "--no-work", "--burst").out
    assert "takes no jobs" in told
    assert "slot" not in told
