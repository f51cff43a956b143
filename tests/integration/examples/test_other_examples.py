"""The examples without video really run, through a node."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.nodes import ROOT, CommandLine, node

ECHO = str(ROOT / "examples" / "echo.py")
WORDCOUNT = str(ROOT / "examples" / "wordcount.py")
COMMANDS = str(ROOT / "examples" / "commands.toml")
TALKING = str(ROOT / "examples" / "talking.toml")


@pytest.mark.parametrize(
    ("task", "arguments", "ends", "result"),
    [
        ("echo", ["text=hello"], "succeeded", "hello"),  # inline, in the node's loop
        ("echo_child", ["text=hello"], "succeeded", "hello"),  # in a warm child
        ("sleep", ["seconds=0.1"], "succeeded", 0.1),
        ("fail_until", ["attempt=2"], "succeeded", 2),  # a retry that the handler asked for
        ("fail", ["message=as told"], "failed", None),
        ("crash", [], "failed", None),  # the second crash in a row ends it
    ],
)
def test_each_task_of_the_echo_example_ends_as_it_says(cli: CommandLine, task: str, arguments: list[str], ends: str, result: Any) -> None:
    with node(cli.home, ECHO):
        job = cli.json("enqueue", task, *arguments, "--wait", code=0 if ends == "succeeded" else 1)
    assert (job["status"], job["result"]) == (ends, result)


def test_a_crash_names_the_signal(cli: CommandLine) -> None:
    with node(cli.home, ECHO):
        job = cli.json("enqueue", "crash", "--wait", code=1)
    assert "SIGKILL" in job["error"]


def test_words_are_counted_across_chunks(cli: CommandLine, tmp_path: Path) -> None:
    text = _text(3_000_000)
    (tmp_path / "text").write_bytes(text)
    with node(cli.home, WORDCOUNT):
        job = cli.json("enqueue", "wordcount", "-f", f"text={tmp_path / 'text'}", "--wait")
    assert job["result"] == {"words": len(text.split()), "lines": text.count(b"\n"), "bytes": len(text)}


def test_a_paused_count_goes_on_from_its_checkpoint(cli: CommandLine, tmp_path: Path) -> None:
    part, times = _text(1_000_000), 400
    with open(tmp_path / "text", "wb") as file:
        for _ in range(times):
            file.write(part)
    with node(cli.home, WORDCOUNT):
        job = cli.json("enqueue", "wordcount", "-f", f"text={tmp_path / 'text'}")["id"]
        next(seen for seen in cli.follow(job) if seen["progress"] > 0.1)
        assert cli.run("pause", job).returncode == 0
        cli.wait_for(job, status="paused")
        cli.run("resume", job)
        seen = [seen["progress"] for seen in cli.follow(job) if seen["status"] in ("running", "succeeded") and seen["progress"] > 0]
        shown = cli.json("show", job)
    assert min(seen) > 0.07  # two checkpoints, of 16 MiB each, lie before the tenth
    assert shown["result"]["words"] == times * len(part.split())


def test_a_program_without_a_shell_is_a_task(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "; echo $HOME").write_bytes(b"some bytes")  # a name that a shell would stumble over
    with node(cli.home, COMMANDS, "--allow-exec"):
        job = cli.json("enqueue", "checksum", "-f", f"input={tmp_path / '; echo $HOME'}", "--wait")
    assert hashlib.sha256(b"some bytes").hexdigest() in job["result"]


def test_programs_wait_where_the_node_was_not_told_to_run_them(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"some bytes")
    with node(cli.home, COMMANDS):
        job = cli.json("enqueue", "checksum", "-f", f"input={tmp_path / 'file'}")["id"]
        shown = cli.wait_for(job, why=lambda why: why is not None)
    assert shown["status"] == "queued"
    assert "--allow-exec" in shown["why"]


def test_a_shell_counts_lines(cli: CommandLine, tmp_path: Path) -> None:
    text = _text(3_000_000)
    (tmp_path / "text").write_bytes(text)
    with node(cli.home, TALKING, "--allow-exec"):
        job = cli.json("enqueue", "count_lines", "-f", f"input={tmp_path / 'text'}", "--wait")
    assert job["result"] == {"lines": text.count(b"\n")}


def test_a_shell_goes_on_from_what_it_kept(tmp_path: Path) -> None:
    text = _text(3_000_000)
    (tmp_path / "text").write_bytes(text)
    command = ["sh", str(ROOT / "examples" / "countlines.sh"), str(tmp_path / "text")]
    told = _talk(command, {"checkpoint": None})
    kept = [words["checkpoint"] for words in told if "checkpoint" in words]
    assert [words["progress"] for words in told[:-1]] == [0.333, 0.666, 1.0]
    assert told[-1] == {"result": {"lines": text.count(b"\n")}}
    assert _talk(command, {"checkpoint": kept[0]}) == told[1:]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_node_js_counts_words(cli: CommandLine, tmp_path: Path) -> None:
    text = _text(3_000_000)
    (tmp_path / "text").write_bytes(text)
    with node(cli.home, TALKING, "--allow-exec"):
        job = cli.json("enqueue", "count_words", "-f", f"text={tmp_path / 'text'}", "least=4", "--wait")
    assert job["result"] == {"words": sum(len(word) >= 4 for word in text.split()), "bytes": len(text)}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_node_js_heeds_a_stop_and_goes_on_where_it_was(tmp_path: Path) -> None:
    text = _text(3_000_000)
    (tmp_path / "text").write_bytes(text)
    command = ["node", str(ROOT / "examples" / "countwords.mjs")]
    job = {"args": {"least": 1}, "files": {"text": {"path": str(tmp_path / "text"), "size": len(text)}}}
    stopped = _talk(command, job, {"stop": "paused"})
    state = stopped[-1]["checkpoint"]
    assert 0 < state["bytes"] < len(text)
    told = _talk(command, job | {"checkpoint": state})
    assert told[0]["progress"] > state["bytes"] / len(text)
    assert told[-1] == {"result": {"words": len(text.split()), "bytes": len(text)}}


def _talk(command: list[str], *lines: dict[str, Any]) -> list[dict[str, Any]]:
    """What a program tells of these lines, without a node."""
    told = "".join(json.dumps(line) + "\n" for line in lines)
    ran = subprocess.run(command, input=told, capture_output=True, text=True, timeout=50, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def _text(size: int) -> bytes:
    rng = random.Random(7)
    words = [b"w" * rng.randint(1, 12) + rng.choice([b" ", b"  ", b"\n"]) for _ in range(size // 8)]
    return b"".join(words)
