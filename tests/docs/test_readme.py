"""The README's code runs as it stands, with the commands that stand beside it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAM = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
P2PQUEUE = [sys.executable, "-m", "p2pqueue"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder as the README's reader has it."""
    (tmp_path / "words.py").write_text(PROGRAM)
    (tmp_path / "README.md").write_text(README)
    return tmp_path


@pytest.fixture
def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "P2PQUEUE_HOME": str(place / "home"), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def node(place: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [*P2PQUEUE, "run", "words.py"]
    with subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), process.stderr.read() if process.stderr else ""
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)


def run(command: list[str], place: Path, environment: dict[str, str]) -> str:
    ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=50)
    assert ran.returncode == 0, f"{command}: {ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_the_readmes_program_and_command_count_the_readmes_words(place: Path, environment: dict[str, str]) -> None:
    run([*P2PQUEUE, "init"], place, environment)
    expected = len(README.encode().split())
    with node(place, environment):
        assert run([sys.executable, "words.py"], place, environment) == f"{expected} words\n"
        shell = re.search(r"^    p2pqueue (enqueue .+)$", README, re.MULTILINE)
        assert shell is not None
        job = run([*P2PQUEUE, *shell[1].split()], place, environment).split()[0]
        assert run([*P2PQUEUE, "result", job], place, environment).strip() == str(expected)


def commands(title: str) -> list[list[str]]:
    """The commands that a section shows, as words, without what stands behind them as a comment."""
    section = README.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [line.partition("#")[0].split() for line in re.findall(r"^    p2pqueue (.+)$", section, re.MULTILINE)]


@pytest.mark.timeout(240)  # a dozen processes, some of which wait for one another
def test_the_readmes_commands_for_several_devices_lead_to_a_common_queue(place: Path, environment: dict[str, str]) -> None:
    invite, join, start, *others = commands("Several devices")
    assert (invite, join, start) == (["invite"], ["join", "7-orbit-velvet"], ["run", "words.py"])
    first = {**environment, "P2PQUEUE_INTERFACES": "lo", "P2PQUEUE_DISCOVERY": "true"}
    second = {**first, "P2PQUEUE_HOME": str(place / "second")}
    run([*P2PQUEUE, "init", "--label", "one"], place, first)
    with node(place, first):
        with subprocess.Popen([*P2PQUEUE, *invite], cwd=place, env=first, stdout=subprocess.PIPE, text=True) as inviting:
            assert inviting.stdout is not None
            try:
                run([*P2PQUEUE, join[0], inviting.stdout.readline().strip(), "--label", "two"], place, second)
                assert inviting.wait(50) == 0
            finally:
                inviting.kill()
        with node(place, second):
            assert run([sys.executable, "words.py"], place, second).endswith(" words\n")
            wait_for_lines([*P2PQUEUE, "devices"], "two online", place, first)
            wait_for_lines([*P2PQUEUE, "list"], "succeeded count_words", place, first)
            for command in others:
                run([*P2PQUEUE, *command], place, first)
            assert [command[0] for command in others] == ["devices", "list", "offline", "online"]
            wait_for_lines([*P2PQUEUE, "devices"], "two online", place, first)


def wait_for_lines(command: list[str], words: str, place: Path, environment: dict[str, str]) -> None:
    """Waits until one line that a command prints has all of these words."""
    end = time.monotonic() + 60
    while not any(set(words.split()) <= set(line.split()) for line in run(command, place, environment).splitlines()):
        assert time.monotonic() < end, f"{command} shows no line with {words}"
        time.sleep(0.2)


def test_the_readme_shows_about_ten_lines_of_code() -> None:
    assert len([line for line in PROGRAM.splitlines() if line.strip()]) <= 15
