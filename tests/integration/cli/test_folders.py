"""Folders as inputs and outputs of jobs, as they are typed: on one device, and on its way to another one and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_pairing import invited
from tests.integration.cli.test_pairing_by_node import online, wait_until
from tests.integration.cli.test_sharing import assert_same
from tests.integration.cli.test_twin import NET

MIB = 1024**2
TASKS = """
[tasks.shout]
command = 'mkdir {output} && for f in {input}/*.txt; do tr a-z A-Z < "$f" > {output}/$(basename "$f"); done'
shell = true
output = "loud"

[tasks.mirror]
command = ["cp", "-a", "{input}", "{output}"]
output = "copy"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of small texts."""
    base = tmp_path / "words"
    base.mkdir()
    for number in range(5):
        (base / f"{number}.txt").write_text(f"word {number}")
    return base


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Command tasks that take a folder and make one."""
    path = tmp_path / "tasks.toml"
    path.write_text(TASKS)
    return path


def test_a_program_takes_folders_and_makes_one(p2p: CommandLine, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with p2p.node("--allow-exec", app=None):
        words = ("exec", "-i", f"{folder}{os.sep}", "-o", f"{out}{os.sep}", "--wait", "--", "cp", "-r", "{1}", "{out}")
        assert f"saved {out}" in p2p(*words).err
        assert_same(folder, out)
        assert f"{out} is there already" in p2p(*words, check=1).err
        assert_same(folder, out)
        listed = p2p("exec", "-i", str(folder), "--wait", "--json", "--", "ls", "{1}").json["result"]
        assert listed.split() == [f"{number}.txt" for number in range(5)]


def test_a_command_task_takes_a_folder_and_makes_one(p2p: CommandLine, folder: Path, tasks: Path, tmp_path: Path) -> None:
    with p2p.node("--allow-exec", app=tasks):
        job = p2p("enqueue", "shout", "-f", f"input={folder}", "--wait").id
        told = p2p("result", job)
        assert "loud, 30 B, here" in told.err
        p2p("result", job, "-o", str(tmp_path / "saved"))
        assert sorted(each.name for each in (tmp_path / "saved").iterdir()) == [f"{number}.txt" for number in range(5)]
        assert (tmp_path / "saved" / "3.txt").read_text() == "WORD 3"
        p2p("result", job, "-o", f"{tmp_path / 'into'}{os.sep}")
        assert (tmp_path / "into" / "loud" / "3.txt").read_text() == "WORD 3"
        assert "is there already" in p2p("result", job, "-o", f"{tmp_path / 'into'}{os.sep}", check=1).err
        assert "save it as a whole" in p2p("result", job, "-o", "-", check=None).err
        again = p2p("enqueue", "mirror", "-f", f"input={told.out.strip()}", "--wait").id  # by its manifest
        p2p("result", again, "-o", str(tmp_path / "again"))
        assert_same(tmp_path / "saved", tmp_path / "again")


@pytest.mark.timeout(150)  # many programs begin and end
def test_a_folder_goes_to_the_device_that_works_and_what_it_made_comes_back(
    p2p: CommandLine, folder: Path, tasks: Path, tmp_path: Path
) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    (folder / "deep").mkdir()
    with (folder / "deep" / "large.bin").open("wb") as file:  # by reference, from where it lies
        file.write(os.urandom(MIB))
        file.truncate(65 * MIB)
    with other.node(*NET, "--allow-exec", app=tasks) as node:
        with p2p.node(*NET, "--no-work", "--peer", node.ready["addresses"][0], app=None):
            wait_until(lambda: online(other) == {"box": True, "laptop": True})
            job = p2p("enqueue", "mirror", "-f", f"input={folder}").id
            wait_until(lambda: p2p("show", job, "--json").json["status"] == "succeeded")
            shown = p2p("show", job, "--json").json
            assert (shown["input_name"], shown["input_size"]) == ("words", 65 * MIB + 30)
            assert shown["worker_label"] == "laptop"
            p2p("result", job, "-o", str(tmp_path / "saved"))
            assert_same(folder, tmp_path / "saved")
            held = {each["name"]: each for each in other("files", "--json").json["files"]}
            assert (held["words"]["kind"], held["words"]["fetched"], held["words"]["state"]) == ("folder", True, "here")
            assert held["copy"]["kind"] == "folder"
