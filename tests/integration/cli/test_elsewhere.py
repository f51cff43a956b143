"""What is told of files whose contents are not on this device."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.integration.cli.conftest import APP, CommandLine
from tests.integration.cli.test_pairing import invited
from tests.integration.cli.test_pairing_by_node import online, wait_until
from tests.integration.cli.test_twin import NET, address


def test_a_restored_home_says_that_a_backup_carries_no_files_and_where_they_lie(p2p: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("hello")
    one, two = (p2p("enqueue", task, "-f", f"source={source}").id for task in ("copy", "split"))
    p2p("run", str(APP), "--burst", "-q")
    hints = p2p("result", two).err
    assert hints.count("save them with") == 1
    assert "-o FOLDER/" in hints
    p2p("backup", str(tmp_path / "copy"))
    again = CommandLine(tmp_path / "again", dict(p2p.environment))
    told = again("restore", str(tmp_path / "copy"), "--label", "attic").err
    assert "a backup carries no files" in told
    assert "author" not in told
    for job_id in (one, two):
        assert "it lies on box, which made it" in again("result", job_id, "-o", str(tmp_path / "out"), check=1).err


def test_a_backup_into_no_folder_names_the_folder(p2p: CommandLine, tmp_path: Path) -> None:
    assert f"there is no folder {tmp_path / 'none'}\n" in p2p("backup", str(tmp_path / "none" / "copy"), check=3).err


def test_a_file_that_is_elsewhere_is_described_without_being_fetched(p2p: CommandLine, tmp_path: Path) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    source = tmp_path / "clip.bin"
    source.write_bytes(os.urandom(3_000_000))
    with other.node(*NET, "--no-work", app=None) as node:
        with p2p.node(*NET, "--peer", node.ready["addresses"][0]):
            wait_until(lambda: online(other) == {"box": True, "laptop": True})
            one, two = (p2p("enqueue", task, "-f", f"source={source}", "--wait").id for task in ("copy", "split"))
            wait_until(lambda: all(other("result", job, "--json", check=None).code == 0 for job in (one, two)))
            (file,) = other("result", one, "--json").json["files"]
            assert (file["name"], file["size"], file["here"]) == ("clip.bin", 3_000_000, False)
            assert "clip.bin, 3.0 MB, on box" in other("result", one).err
            assert [each["size"] for each in other("result", two, "--json").json["files"]] == [1_500_000, 1_500_000]
            assert sum(other("status", "--json").json["node"]["network"]["carried"].values()) < 100_000
            other("result", one, "-o", str(tmp_path / "saved.bin"))
            assert (tmp_path / "saved.bin").read_bytes() == source.read_bytes()
            assert "clip.bin, 3.0 MB, here" in other("result", one).err
        told = other("result", two)
        assert "on box" in told.err
        assert told.err.count("a file, ") == 2


def test_a_task_that_a_linked_device_has_is_enqueued_without_a_warning(p2p: CommandLine) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with p2p.node(*NET, app=None) as node:
        invitation = p2p.start("invite", "--json")
        assert invitation.stdout is not None
        code = json.loads(invitation.stdout.readline())["code"]
        other("join", code, "--peer", address(node), "--label", "laptop")
        invitation.communicate(timeout=30)
        assert "no node here has had the task 'echo'" in p2p("enqueue", "echo", "text=a").err
        with other.node(*NET):
            wait_until(lambda: p2p("enqueue", "echo", "text=a", "--delay", "1h").err == "")
            assert "(did you mean 'echo'?)" in p2p("enqueue", "ecco").err


def test_tasks_of_linked_devices_are_listed_with_the_devices_that_have_them(p2p: CommandLine) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "worker")
        invitation.ended()
    with p2p.node(*NET, "--no-work", app=None) as node:
        assert p2p("tasks", "--json").json["tasks"] == []
        with other.node(*NET, "--peer", address(node)):
            wait_until(lambda: p2p("tasks", "--json").json["tasks"])
            tasks = {task["name"]: task for task in p2p("tasks", "--json").json["tasks"]}
            device = other("status", "--json").json["device"]
            assert tasks["echo"] == {"name": "echo", "running": False, "devices": [{"id": device, "label": "worker"}]}
            assert [line.split()[:2] for line in p2p("tasks").out.splitlines() if line.startswith("echo ")] == [["echo", "worker"]]
            own = {task["name"]: task for task in other("tasks", "--json").json["tasks"]}
            assert (own["echo"]["running"], own["echo"]["devices"]) == (True, [{"id": device, "label": "worker"}])
    assert p2p("tasks", "--json").json["tasks"] == []


def test_following_a_log_says_where_it_is_when_another_device_runs_the_job(p2p: CommandLine) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "worker")
        invitation.ended()
    with p2p.node(*NET, "--no-work", app=None) as node, other.node(*NET, "--peer", address(node)):
        job = p2p("enqueue", "echo", "text=hello").id
        told = p2p("logs", "-f", job)
        (document,) = (json.loads(line) for line in p2p("logs", "-f", job, "--json").out.splitlines())
        assert p2p("logs", job, "--json").json == document
    assert (told.out, "is on worker, which makes it" in told.err) == ("", True)
    assert (document["worker_label"], document["log"], document["whole"]) == ("worker", None, False)


def test_who_enqueues_a_program_hears_which_device_would_have_to_allow_it(p2p: CommandLine) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "worker")
        invitation.ended()
    with p2p.node(*NET, "--no-work", app=None) as node:
        assert p2p("exec", "--", "true").err == "warning: the job waits: box takes no jobs\n"
        with other.node(*NET, "--peer", address(node)):
            why = "box takes no jobs, and worker runs no programs: start its node with --allow-exec"
            wait_until(lambda: p2p("exec", "--", "true").err == f"warning: the job waits: {why}\n")
            assert {job["why"] for job in p2p("list", "--json").json["jobs"]} == {why}
