from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.integration.cli.conftest import APP, CommandLine, RunningNode, ids

Worked = tuple[CommandLine, RunningNode]


def wait_for(p2p: CommandLine, job_id: str, status: str, *, patience: float = 20.0) -> None:
    """Waits until a job has this status."""
    deadline = time.monotonic() + patience
    while (found := p2p("show", job_id, "--json").json["status"]) != status:
        assert time.monotonic() < deadline, found


def test_the_ready_line_is_one_object_and_all_that_run_says_on_stdout(p2p: CommandLine) -> None:
    with p2p.node() as node:
        ready = node.ready
        assert ready["ready"] is True
        assert ready["pid"] == node.process.pid
        assert ready["home"] == str(p2p.home)
        assert ready["label"] == "box"
        assert ready["slots"] == 2
        assert set(ready["tasks"]) >= {"echo", "sleep", "fail", "copy"}
        assert ready.keys() >= {"device", "space", "socket"}
        socket = Path(ready["socket"])
        assert (socket.stat().st_mode & 0o777, socket.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        p2p("enqueue", "echo", "text=hello", "--wait")  # this handler prints, in the node's own process
        assert node.stop() == 0
        assert node.process.stdout is not None
        assert node.process.stdout.read() == ""
    assert "printed by an inline handler" in node.errors.read_text()


def test_enqueue_and_wait_exits_as_the_job_ended(worked: Worked) -> None:
    p2p, _ = worked
    done = p2p("enqueue", "echo", "text=hello", "--wait", "--json").json
    assert (done["status"], done["result"], done["progress"]) == ("succeeded", "hello", 1.0)
    assert (done["worker_label"], done["error"]) == ("box", None)
    failed = p2p("enqueue", "fail", "message=no luck", "--wait", check=1)
    assert "no luck" in failed.err
    assert "no luck" in p2p("result", failed.id, check=1).err
    late = p2p("enqueue", "sleep", "seconds=30", "--wait", "--wait-timeout", "300ms", check=6)
    assert p2p("result", late.id, check=6).out == ""
    p2p("cancel", late.id)
    assert "was cancelled" in p2p("result", late.id, check=7).err
    p2p("watch", late.id, check=7)
    p2p("watch", done["id"], failed.id, check=1)


def test_values_are_read_by_the_annotations_of_a_known_task(worked: Worked) -> None:
    p2p, _ = worked
    assert p2p("enqueue", "add", "a=2", "--wait", "--json").json["result"] == {"sum": 3}
    assert p2p("enqueue", "echo", "text=720", "--wait", "--json").json["result"] == "720"
    assert p2p("enqueue", "add", "-", "b=5", "--wait", "--json", stdin='{"a": 1}').json["result"] == {"sum": 6}
    assert "takes a whole number" in p2p("enqueue", "add", "a=two", check=2).err
    assert "misses a" in p2p("enqueue", "add", check=2).err
    assert "no parameter 'c'" in p2p("enqueue", "add", "a=1", "c=2", check=2).err
    assert "write -f source=PATH" in p2p("enqueue", "copy", "source=x", check=2).err


def test_the_jobs_of_a_device_are_listed_by_its_label_and_by_the_id_that_devices_shows(worked: Worked) -> None:
    p2p, _ = worked
    job_id = p2p("enqueue", "add", "a=2", "--wait").id
    device = p2p("devices", "--json").json["devices"][0]["id"]
    for named in (device, device[:8], device[:8].upper(), "box", "Box"):
        assert job_id in ids(p2p("list", "--json", "--device", named))


def test_an_unknown_task_is_taken_with_a_warning(worked: Worked) -> None:
    p2p, _ = worked
    told = p2p("enqueue", "nowhere", "x=1")
    assert "no node here has had the task 'nowhere'; " in told.err
    assert "no node here has had the task 'ecco' (did you mean 'echo'?)" in p2p("enqueue", "ecco").err
    assert "nowhere" in p2p("show", told.id, "--json").json["why"]


def test_files_go_in_and_come_out(worked: Worked, tmp_path: Path) -> None:
    p2p, _ = worked
    source = tmp_path / "some text.txt"
    source.write_text("hello " * 1000)
    job_id = p2p("enqueue", "copy", "-f", f"source={source}", "--wait").id
    assert p2p("result", job_id).out.startswith("p2pq1-")
    p2p("result", job_id, "-o", str(tmp_path / "out.txt"))
    assert (tmp_path / "out.txt").read_text() == source.read_text()
    assert p2p("result", job_id, "-o", "-").out == source.read_text()
    p2p("result", job_id, "-o", f"{tmp_path / 'folder'}/")
    assert (tmp_path / "folder" / "some text.txt").read_text() == source.read_text()
    told = p2p("result", job_id, "--json").json
    assert [(each["name"], each["size"]) for each in told["files"]] == [("some text.txt", 6000)]
    again = p2p("enqueue", "copy", "-f", f"source={told['files'][0]['manifest']}", "--wait", "--json").json
    assert (again["status"], again["input_size"]) == ("succeeded", 6000)


def test_several_files_whose_names_differ_in_letter_case_alone_do_not_overwrite_one_another(worked: Worked, tmp_path: Path) -> None:
    p2p, _ = worked
    source = tmp_path / "ab"
    source.write_text("firstsecond")
    job_id = p2p("enqueue", "split", "-f", f"source={source}", "--wait").id
    p2p("result", job_id, "-o", "-", check=2)
    p2p("result", job_id, "-o", str(tmp_path / "parts"))
    parts = list((tmp_path / "parts").iterdir())
    assert len({path.name.casefold() for path in parts}) == 2
    assert sorted(path.read_text() for path in parts) == ["first", "second"][::-1] or {path.read_text() for path in parts} == {
        "first",
        "second",
    }


def test_acting_on_jobs_by_id_prefix_and_choice(worked: Worked) -> None:
    p2p, _ = worked
    later = [p2p("enqueue", "parked", "--title", f"number {n}", "-q").id for n in range(3)]
    assert p2p("pause", later[0]).out.strip() == later[0]
    assert p2p("show", later[0], "--json").json["status"] == "paused"
    assert "resume" in p2p("show", later[0], "--json").json["why"]
    p2p("resume", later[0])
    assert p2p("show", later[0], "--json").json["status"] == "queued"
    dry = p2p("cancel", "--all", "--task", "parked", "--dry-run", "--json").json
    assert (len(dry["jobs"]), dry["dry_run"]) == (3, True)
    assert "--yes" in p2p("cancel", "--all", check=2).err  # nobody can be asked
    p2p("cancel", "--all", later[0], check=2)
    p2p("cancel", check=2)
    told = p2p("cancel", "--all", "--task", "parked", "--yes", "--json").json
    assert sorted(job["id"] for job in told["jobs"]) == sorted(later)
    assert all(job["status"] == "cancelled" for job in told["jobs"])
    refused = p2p("cancel", later[0], check=1)
    assert "cancelled" in refused.err
    mixed = p2p("delete", later[0], "ffffffff", later[1], check=3)
    assert mixed.out.split() == [later[0], later[1]]
    assert p2p("show", later[0], check=3).out == ""
    assert p2p("delete", later[2], "--json").json["jobs"] == [{"id": later[2], "deleted": True}]


def test_a_job_is_retried_and_its_attempts_are_shown(worked: Worked) -> None:
    p2p, _ = worked
    job_id = p2p("enqueue", "fail", "--wait", check=1).id
    p2p("retry", job_id)
    assert p2p("watch", job_id, check=1).out
    shown = p2p("show", job_id, "--json").json
    assert [run["status"] for run in shown["attempts"]] == ["failed", "failed"]
    assert "ValueError" in shown["attempts"][0]["traceback"]
    told = p2p("show", job_id).out
    assert "Traceback" in told
    assert "Attempts" in told


def test_watch_tells_progress_as_lines_and_as_json(worked: Worked) -> None:
    p2p, _ = worked
    job_id = p2p("enqueue", "sleep", "seconds=1").id
    seen = [json.loads(line) for line in p2p("watch", job_id, "--json").out.splitlines()]
    fractions = [job["progress"] for job in seen]
    assert seen[-1]["status"] == "succeeded"
    assert fractions == sorted(fractions)
    assert len(set(fractions)) > 4  # live, not only what the row gets every two seconds
    assert "succeeded" in p2p("watch", job_id).out
    p2p("watch", check=2)


def test_logs_are_printed_and_followed(worked: Worked) -> None:
    p2p, _ = worked
    job_id = p2p("enqueue", "sleep", "seconds=0.5").id
    assert "sleeping in attempt 1" in p2p("logs", "-f", job_id).out
    assert "sleeping in attempt 1" in p2p("logs", job_id).out
    failed = p2p("enqueue", "fail", "--wait", check=1).id
    assert "about to fail" in p2p("logs", failed).out
    p2p("logs", failed, "--attempt", "9", check=3)
    waiting = p2p("enqueue", "sleep", "--delay", "1h").id
    assert "has not run yet" in p2p("logs", waiting).err


def test_tasks_and_status_tell_what_is_here(worked: Worked) -> None:
    p2p, node = worked
    tasks = {task["name"]: task for task in p2p("tasks", "--json").json["tasks"]}
    assert tasks["add"]["parameters"][0]["annotation"] == "int"
    assert "Gives back the text." in p2p("tasks").out
    p2p("enqueue", "echo", "--wait")
    status = p2p("status", "--json").json
    assert (status["node"]["running"], status["node"]["pid"], status["node"]["slots"]) == (True, node.process.pid, 2)
    assert len(status["digest"]) == 32
    assert status["counts"]["succeeded"] >= 1
    assert sum(status["heads"].values()) > 0
    assert f"pid {node.process.pid}" in p2p("status").out
    assert p2p("doctor", "--json").json["ok"] is True


def test_a_second_node_on_the_same_home_is_refused_with_the_pid(worked: Worked) -> None:
    p2p, node = worked
    refused = p2p("run", str(APP), check=5)
    assert str(node.process.pid) in refused.err
    assert refused.out == ""
    assert p2p("enqueue", "echo", "text=still here", "--wait", "--json").json["result"] == "still here"


def test_a_stopped_node_leaves_no_job_running_and_exits_0(p2p: CommandLine) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with p2p.node() as node:
            job_id = p2p("enqueue", "sleep", "seconds=60").id
            wait_for(p2p, job_id, "running")
            began = time.monotonic()
            assert node.stop(number) == 0
            assert time.monotonic() - began < 8  # 1 s of grace, then TERM and KILL
        shown = p2p("show", job_id, "--json").json
        assert shown["status"] == "queued"
        assert shown["attempt"] == 0  # an orderly stop gives the attempt back
        assert shown["attempts"][-1]["status"] == "released"
        p2p("cancel", job_id)


def test_a_second_signal_stops_at_once(p2p: CommandLine) -> None:
    with p2p.node("--grace", "50") as node:
        job_id = p2p("enqueue", "sleep", "seconds=60").id
        wait_for(p2p, job_id, "running")
        node.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert node.process.poll() is None
        began = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - began < 8
    assert p2p("show", job_id, "--json").json["status"] == "queued"


def test_a_job_of_a_killed_node_is_taken_up_by_the_next(p2p: CommandLine) -> None:
    with p2p.node() as node:
        job_id = p2p("enqueue", "sleep", "seconds=2").id
        wait_for(p2p, job_id, "running")
        node.process.kill()
        node.process.wait()
    assert p2p("status", "--json").json["node"]["running"] is False
    assert "is gone" in p2p("show", job_id, "--json").json["why"]
    assert "is gone" in p2p("list").out
    with p2p.node():
        p2p("watch", job_id)
    shown = p2p("show", job_id, "--json").json
    assert shown["status"] == "succeeded"
    assert len(shown["attempts"]) == 2


def test_a_program_runs_as_a_job(p2p: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("hello")
    with p2p.node("--allow-exec", app=None):
        out = str(tmp_path / "out.txt")
        p2p("exec", "-i", str(tmp_path / "in.txt"), "-o", out, "--wait", "--", "sh", "-c", "tr a-z A-Z < {1} > {out}")
        assert Path(out).read_text() == "HELLO"
        assert p2p("exec", "--wait", "--json", "--", "echo", "-n", "{{}}").json["result"] == "{}"
        assert "exit status 3" in p2p("exec", "--max-attempts", "1", "--wait", "--", "sh", "-c", "exit 3", check=1).err
    p2p("exec", check=2)
    p2p("exec", "--", "cat", "{1}", check=2)
    p2p("exec", "-o", "a/x", "-o", "b/x", "--", "true", check=2)
    with p2p.node():
        told = p2p("exec", "--", "true")
        waiting = told.id
        assert "the job waits: box runs no programs: start its node with --allow-exec" in told.err
        assert "--allow-exec" in p2p("show", waiting, "--json").json["why"]


def test_burst_ends_when_nothing_is_left(p2p: CommandLine) -> None:
    done = [p2p("enqueue", "add", "a=1").id for _ in range(3)]
    ended = p2p("run", str(APP), "--burst", "--json")
    assert json.loads(ended.out)["ready"] is True
    assert sorted(ids(p2p("list", "--json", "--status", "succeeded"))) == sorted(done)


def test_an_app_that_can_not_be_loaded_is_told_in_words(p2p: CommandLine, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name\n")
    for app in (str(broken), str(tmp_path / "missing.py"), "no_such_module:queue", "json:queue"):
        refused = p2p("run", app, check=None)
        assert refused.code in (1, 2, 3), refused
        assert refused.out == ""
        assert refused.err.strip()


@pytest.mark.parametrize(
    "setting", [["--slots", "0"], ["--slots", "many"], ["--grace", "soon"], ["--max-input", "big"], ["--beat-every", "1h"]]
)
def test_settings_that_can_not_be_meant_are_refused(p2p: CommandLine, setting: list[str]) -> None:
    assert "internal error" not in p2p("run", str(APP), *setting, check=2).err


def test_settings_come_from_the_flag_the_environment_and_the_file_in_that_order(p2p: CommandLine) -> None:
    assert p2p("config", "set", "slots", "3").err
    assert p2p("config", "get", "slots").out.strip() == "3"
    assert p2p("config", "get", "slots", P2PQUEUE_SLOTS="4").out.strip() == "4"
    assert p2p("config", "get", "--json").json["settings"]["slots"] == 3
    assert json.loads(p2p("run", "--burst", "--json", P2PQUEUE_SLOTS="4").out)["slots"] == 4
    assert json.loads(p2p("run", "--burst", "--json", "--slots", "5", P2PQUEUE_SLOTS="4").out)["slots"] == 5
    assert Path(p2p("config", "path").out.strip()).read_text().strip() == "slots = 3"
    p2p("config", "set", "slotz", "3", check=2)
    p2p("config", "set", "slots", "-3", check=2)
    p2p("config", "get", "slotz", check=2)


def test_ctrl_c_while_waiting_exits_130_and_the_job_goes_on(worked: Worked) -> None:
    p2p, _ = worked
    process = p2p.start("enqueue", "sleep", "seconds=2", "--wait")
    assert process.stdout is not None
    job_id = process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"the job goes on: `p2pqueue watch {job_id}` follows it" in err
    p2p("watch", job_id)
