"""The programs of the how-to for Python print what the page leads its reader to expect."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "python.md").read_text()
APPLICATION, *PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TITLES = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
WITH_A_SAMPLE = [title for title in TITLES if "```python" in PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]]
PRINTED = {
    "Enqueue, wait, look": r"3\nsucceeded 1 True\n",
    "Many at once": r"\[1, 2\]\n",
    "One job per key": r"True\ncancelled\n",
    "When a job fails": r"AttributeError: .*\nfailed\n",
    "Async": r"pong\n((queued|running), 0%\n)*succeeded, \d+%\n3\n",
    "Share a file": r"3\n",
    "A node inside the program": r"42\n",
}


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "P2PQUEUE_HOME": str(place / "home"), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "texts.py").write_text(APPLICATION)
    subprocess.run([sys.executable, "-m", "p2pqueue", "-q", "init"], env=environment(tmp_path), check=True, timeout=50)
    return tmp_path


@contextlib.contextmanager
def node(place: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "p2pqueue", "run", "texts.py"]
    with subprocess.Popen(command, cwd=place, env=environment(place), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)


def printed(program: str, place: Path) -> str:
    (place / "program.py").write_text(program)
    ran = subprocess.run(
        [sys.executable, "program.py"], cwd=place, env=environment(place), capture_output=True, text=True, timeout=50
    )  # fmt: skip
    assert ran.returncode == 0, f"{program}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_every_program_of_the_page_is_run_here() -> None:
    assert list(PRINTED) == WITH_A_SAMPLE
    assert len(PROGRAMS) == len(PRINTED)


@pytest.mark.timeout(180)  # ten processes, one after the other
def test_the_programs_print_what_the_page_says(place: Path) -> None:
    *beside_a_node, (own_node, expected) = zip(PROGRAMS, PRINTED.values(), strict=True)
    with node(place):
        for program, expectation in beside_a_node:
            assert re.fullmatch(expectation, printed(program, place)), program
        look = "from texts import queue\nprint([job.result(timeout=30) for job in queue.jobs(task='report')])\n"
        assert printed(look, place) == "['book.txt has 3 words']\n"
    assert re.fullmatch(expected, printed(own_node, place))
