"""The demo tells a true story, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from p2pqueue.demo.network import way_in
from tests.integration.nodes import ROOT

LIMIT = 400.0  # seconds for a run that takes about one minute on a quiet machine
DEVICES = {"laptop", "tower", "desktop"}
KINDS = [("lo", ["--interface", "lo"]), ("namespaces", [])]


class Demo:
    """A running `p2pqueue demo`, whose temporary files lie in a folder of its own."""

    def __init__(self, place: Path, *flags: str) -> None:
        self.place = place
        environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "p2pqueue", "--home", str(place / "no-home"), "demo", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)

    def read_until(self, words: str) -> None:
        """Reads what it tells until that is told."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"{words!r} was not told: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, str, str]:
        """Waits for its end; gives exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, err

    def others(self) -> list[psutil.Process]:
        """The living processes that it has started, wherever they are, itself left out."""
        return [process for process in psutil.process_iter() if process.pid != self.process.pid and self._is_of_it(process)]

    def find(self, *words: str) -> psutil.Process:
        """A process in whose command line these words stand."""
        return until(lambda: next((each for each in self.others() if set(words) <= set(_command_line(each))), None), within=60.0)

    def _is_of_it(self, process: psutil.Process) -> bool:
        return any(str(self.place) in word for word in _command_line(process))


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
    except psutil.Error:
        return []


def until(condition: Callable[[], Any], *, within: float) -> Any:
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@pytest.fixture(params=KINDS, ids=[name for name, _ in KINDS])
def kind(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    """The network on which the demo plays, and the flags for it."""
    name, flags = request.param
    if name == "namespaces" and way_in() is None:
        pytest.skip("this machine gives no network namespaces")
    return name, flags


@pytest.fixture
def demo(tmp_path: Path, without_ffmpeg: None) -> Iterator[Callable[..., Demo]]:
    """Starts a demo; what is left of it at the end is killed."""
    started: list[Demo] = []

    def start(*flags: str) -> Demo:
        started.append(Demo(tmp_path, *flags))
        return started[-1]

    yield start
    for each in started:
        for process in [*each.others(), each.process]:
            process.kill()
        each.process.communicate()


def left(demo: Demo) -> list[object]:
    """What is left of a demo that has ended."""
    return [*demo.others(), *demo.place.iterdir()]


@pytest.mark.slow
@pytest.mark.timeout(LIMIT + 60)
def test_the_demo_goes_as_it_tells_and_leaves_nothing_behind(demo: Callable[..., Demo], kind: tuple[str, list[str]]) -> None:
    name, flags = kind
    running = demo("--json", *flags)
    code, out, err = running.end()
    assert code == 0, err
    assert " took over " in err
    told = json.loads(out)
    assert told["network"] == name
    assert set(told["paths"]) == {"tower", "desktop"}
    taken = told["takeover"]
    assert {taken["worker"], taken["taken_over_by"]} == {"tower", "desktop"}
    assert taken["attempts"].count("succeeded") == 1
    assert 0.5 <= taken["killed_at"] < 1.0
    assert taken["children_gone_after"] < 2.0
    assert all(sum(lanes.values()) > 1_000_000 for lanes in taken["input_came_by"].values())
    assert told["result"]["height"] == 240
    assert told["parting"]["finished_apart"] == {"laptop": 3, "desktop": 3}
    assert told["parting"]["parted_by"] == {"lo": "p2pqueue offline", "namespaces": "the cable"}[name]
    assert left(running) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_takes_its_nodes_and_its_folder_along(
    demo: Callable[..., Demo], kind: tuple[str, list[str]], number: int
) -> None:
    running = demo(*kind[1])
    running.read_until("Starting their nodes")
    running.find("run")
    running.process.send_signal(number)
    assert running.end()[0] in (130, 143)
    assert left(running) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("whom", ["the one that tidies up", "the one that tells"])
def test_a_demo_that_is_killed_takes_its_nodes_and_its_folder_along(
    demo: Callable[..., Demo], kind: tuple[str, list[str]], whom: str
) -> None:
    running = demo(*kind[1])
    running.read_until("Starting their nodes")
    running.find("run")
    process = running.process if whom == "the one that tidies up" else running.find("demo", "--within")
    process.kill()
    assert running.end()[0] != 0
    until(lambda: left(running) == [], within=60.0)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_step_that_fails_says_what_was_expected_and_exits_1(demo: Callable[..., Demo], kind: tuple[str, list[str]]) -> None:
    running = demo(*kind[1])
    running.read_until("made by laptop")
    running.find("invite").kill()
    code, _, err = running.end()
    assert code == 1
    assert "the demo did not go as told: " in err
    assert " expected " in err
    assert left(running) == []
