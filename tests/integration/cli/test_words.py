"""What the command line says to somebody who types something for the first time."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from p2pqueue.cli import quantities
from tests.integration.cli.conftest import CommandLine, RunningNode

Worked = tuple[CommandLine, RunningNode]


def test_a_file_without_its_parameter_is_answered_with_the_only_one_there_is(worked: Worked) -> None:
    p2p, _ = worked
    assert "write -f source=README.md" in p2p("enqueue", "copy", "-f", "README.md", check=2).err


def test_enqueue_with_wait_tells_a_small_result_on_stderr(worked: Worked) -> None:
    p2p, _ = worked
    told = p2p("enqueue", "echo", "text=a\nb", "--wait")
    assert "result: a\\nb\n" in told.err
    assert told.out.strip().count("\n") == 0
    assert "result:" not in p2p("enqueue", "add", "a=1", "--wait").err


def test_tasks_of_an_earlier_node_are_told_apart_from_those_of_the_running_one(p2p: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("from p2pqueue import Queue\n\nqueue = Queue('other')\n\n\n@queue.task\ndef bygone() -> None: ...\n")
    p2p("run", str(other), "--burst", "-q")
    with p2p.node():
        marked = {task["name"]: task["running"] for task in p2p("tasks", "--json").json["tasks"]}
        assert (marked["bygone"], marked["echo"]) == (False, True)
        assert "no running node here has the task 'bygone'" in p2p("enqueue", "bygone").err
        assert "waits" not in p2p("enqueue", "echo").err
    assert not any(task["running"] for task in p2p("tasks", "--json").json["tasks"])


def test_what_is_no_application_is_answered_with_what_is_one(p2p: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# Hello")
    assert "name a Python file with a queue (tasks.py), a module with one (tasks:queue)" in p2p("run", "README.md", check=2).err


def test_the_time_that_a_job_waits_for_is_told_as_it_is_here(p2p: CommandLine) -> None:
    job_id = p2p("enqueue", "later", "--at", "2090-06-01T12:00", real=True, TZ="America/New_York").id
    for words in (("list",), ("show", job_id)):
        assert "scheduled for 2090-06-01 12:00:00" in p2p(*words, real=True, TZ="America/New_York").out
    assert p2p("show", job_id, "--json").json["why"].endswith("2090-06-01T16:00:00Z")
    p2p.environment["TZ"] = "America/New_York"
    watching = p2p.start("watch", job_id)
    try:
        assert watching.stdout is not None
        assert "scheduled for 2090-06-01 12:00:00" in watching.stdout.readline()
    finally:
        watching.terminate()
        watching.communicate(timeout=20)


def test_since_is_read_with_and_without_ago() -> None:
    assert abs(quantities.since("2h ago") - quantities.since("2h")) < 1000


@pytest.mark.parametrize("typed", ["high", "1.5", "99999999999"])
def test_a_priority_that_is_none_is_refused_in_words(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        quantities.priority(typed)
