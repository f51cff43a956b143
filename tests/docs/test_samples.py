"""The samples in the documentation do what the pages say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from p2pqueue import ArgumentError, ConfigError, Queue
from p2pqueue.workers.commandfile import read_commands

DOCS = Path(__file__).parents[2] / "docs"


def sample(page: str, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def called_plainly(program: str, call: str, folder: Path) -> str:
    """What a call of a sample's task prints, with no node and no space."""
    (folder / "sample.py").write_text(f"{program}\n\nif __name__ == '__main__':\n    print({call})\n")
    environment = {**os.environ, "P2PQUEUE_HOME": str(folder / "none"), "PYTHONPATH": str(DOCS.parent)}
    command = [sys.executable, "-W", "error", "sample.py"]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=50)
    assert ran.returncode == 0, ran.stderr
    assert not (folder / "none").exists()
    return ran.stdout


def test_the_handler_with_progress_and_checkpoints_adds_up(tmp_path: Path) -> None:
    assert called_plainly(sample("howto/handlers.md", "python"), "collect(4)", tmp_path) == "{'total': 6}\n"


def test_the_handler_that_streams_a_file_counts_its_lines(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\nb\nc\n")
    assert called_plainly(sample("concepts/payloads.md", "python"), "count_lines(File('lines.txt'))", tmp_path) == "3\n"


def test_the_command_task_is_declared_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "media.toml").write_text(sample("howto/command-tasks.md", "toml"))
    tasks = read_commands(tmp_path / "media.toml")
    described = tasks["shrink"].describe()
    assert described["queue"] == "media"
    assert described["timeout"] == 7200
    assert {parameter["name"]: parameter["is_file"] for parameter in described["parameters"]} == {"input": True, "height": False}


def test_the_talking_task_is_declared_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "texts.toml").write_text(sample("howto/any-language.md", "toml"))
    described = read_commands(tmp_path / "texts.toml")["count_words"].describe()
    assert described["command"]["talks"] == "json"
    assert described["command"]["argv"] == ["node", f"{tmp_path}/countwords.mjs"]
    assert {parameter["name"]: parameter["is_file"] for parameter in described["parameters"]} == {"text": True, "least": False}


def test_the_least_programs_of_the_page_say_what_they_should(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\nb\n")
    ran = subprocess.run(
        ["sh", "-c", sample("howto/any-language.md", "sh"), "sh", str(tmp_path / "text")],
        input="{}\n",
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.stdout == '{"result": {"lines": 2}}\n'
    if shutil.which("node") is not None:
        job = '{"args": {"word": "hello"}}\n'
        command = ["node", "-e", sample("howto/any-language.md", "js")]
        ran = subprocess.run(command, input=job, capture_output=True, text=True, timeout=50)
        assert ran.stdout == '{"progress":0.5}\n{"result":"hello!"}\n'


def test_misuse_raises_what_the_page_of_errors_says() -> None:
    queue = Queue("texts")

    @queue.task
    def count(text: str) -> int:
        return len(text)

    with pytest.raises(TypeError, match="there are max_attempts, "):
        queue.task(attempts=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="there are priority, "):
        count.options(wait=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError):
        queue.task(max_attempts=0)
    with pytest.raises(ArgumentError):
        count.options(delay=-1)
    with pytest.raises(ArgumentError):
        count.enqueue(words=3)  # type: ignore[call-arg]
