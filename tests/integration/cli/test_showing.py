"""What `show` and `logs` tell of a job that ran more than once."""

from __future__ import annotations

import json
import time
from pathlib import Path

from p2pqueue.cli.quantities import counted
from tests.integration.cli.conftest import CommandLine, RunningNode

Worked = tuple[CommandLine, RunningNode]


def test_attempts_are_numbered_through_whatever_their_count_says(worked: Worked) -> None:
    p2p, _ = worked
    job_id = p2p("enqueue", "fail", "message=first", "--wait", check=1).id
    p2p("retry", job_id)
    p2p("watch", job_id, check=1)
    attempts = p2p("show", job_id, "--json").json["attempts"]
    assert [(each["run"], each["attempt"]) for each in attempts] == [(1, 1), (2, 1)]
    told = p2p("show", job_id).out
    assert "Attempt: 1 of 1" in told
    assert "retried" in told
    assert told.index("attempt #1 failed") < told.index("retried") < told.index("attempt #2 started")
    assert "about to fail" in p2p("logs", job_id, "--attempt", "2").out
    assert "has had 2 attempts" in p2p("logs", job_id, "--attempt", "3", check=3).err


def test_a_job_that_was_retried_and_waits_tells_so(p2p: CommandLine) -> None:
    job_id = p2p("enqueue", "never", "--max-attempts", "5").id
    assert "Attempt: 0 of 5" in p2p("show", job_id).out
    p2p("cancel", job_id)
    p2p("retry", job_id)
    assert p2p("show", job_id).out.rstrip().endswith("retried")


def test_the_error_of_a_job_that_waits_for_its_next_attempt_is_called_the_last(worked: Worked) -> None:
    p2p, _ = worked
    job_id = p2p("enqueue", "sleep", "seconds=9", "--timeout", "100ms").id
    deadline = time.monotonic() + 20
    while "Last error:" not in p2p("show", job_id).out:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    p2p("cancel", job_id)


def test_one_of_something_is_counted_without_an_s() -> None:
    assert [counted(number, "task") for number in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]


def test_a_log_is_printed_as_one_object_or_followed_as_one_for_each_piece(worked: Worked) -> None:
    p2p, _ = worked
    job_id = p2p("enqueue", "sleep", "seconds=0.5").id
    followed = [json.loads(line) for line in p2p("logs", "-f", "--json", job_id).out.splitlines()]
    assert "".join(each["log"] for each in followed) == "sleeping in attempt 1\n"
    whole = {"schema": 1, "id": job_id, "run": 1, "attempt": 1, "worker_label": "box", "log": "sleeping in attempt 1\n", "whole": True}
    assert p2p("logs", "--json", job_id).json == whole
    assert followed[0] == whole
    waiting = p2p("enqueue", "sleep", "--delay", "1h").id
    nothing = dict.fromkeys(("run", "attempt", "worker_label", "log"))
    assert p2p("logs", "--json", waiting).json == {"schema": 1, "id": waiting, "whole": False} | nothing
    p2p("cancel", waiting)


def test_a_log_is_followed_in_whole_lines_as_objects(p2p: CommandLine, tmp_path: Path) -> None:
    app = tmp_path / "dots.py"
    app.write_text("""
import time
from p2pqueue import Queue

queue = Queue("dots")

@queue.task
def dots() -> None:
    for _ in range(5):
        print("é", end="", flush=True)
        time.sleep(0.15)
    print("!", flush=True)
    print("end", end="")
""")
    with p2p.node(app=app):
        job_id = p2p("enqueue", "dots").id
        pieces = [json.loads(line)["log"] for line in p2p("logs", "-f", "--json", job_id).out.splitlines()]
    assert "".join(pieces) == "ééééé!\nend"
    assert pieces[0].startswith("ééééé!\n")
