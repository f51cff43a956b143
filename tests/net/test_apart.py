"""What two sides did apart is the same on both once they meet, whatever was done, and whoever died in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from p2pqueue import Queue
from tests.net.conftest import Space
from tests.net.device import Device, pace, until
from tests.net.meeting import equal, linked, peers, took

ROOT = Path(__file__).parents[2]
SHARED = """
import json
from tests.net.app import echo
jobs = echo.options(delay=36000).enqueue_many([{"text": f"shared {number}"} for number in range(60)])
print(json.dumps([job.id for job in jobs]))
"""
# A program of its user: two hundred operations on jobs of its own and on those that both sides know.
OPERATIONS = """
import json, sys
from tests.net.app import echo, queue
shared = [queue.get(job_id) for job_id in json.loads(sys.argv[1])]
done = 0

def each(action, jobs):
    global done
    for job in jobs:
        action(job)
        done += 1

quick = [echo.enqueue(f"quick {number}") for number in range(40)]
later = [echo.options(delay=3600).enqueue(f"later {number}") for number in range(40)]
done += 80
each(lambda job: job.result(60), quick)                     # finished here
each(lambda job: job.cancel(), later[:20])
each(lambda job: job.pause(), later[20:30])
each(lambda job: job.retry(), later[:10])                   # cancelled, and now again
each(lambda job: job.retry().result(60), quick[:10])        # a second run
each(lambda job: job.cancel(), shared[int(sys.argv[2])::2])  # each side takes half of these
each(lambda job: job.pause(), shared[1 - int(sys.argv[2])::2])
print(json.dumps(done))
"""
MANY = """
import sys
from tests.net.app import echo
jobs = echo.options(delay=36000).enqueue_many([{"text": f"{number} " + "x" * 200} for number in range(int(sys.argv[1]))])
print(len(jobs))
"""

# It starts nodes anew for each, and was not run often enough beside other work to stand in CI.
pytestmark = [pytest.mark.root, pytest.mark.timeout(300), pytest.mark.soak]


def program(device: Device, text: str, *words: str) -> subprocess.Popen[str]:
    """Starts a program of a device's user."""
    command = (sys.executable, "-c", text, *words)
    started: subprocess.Popen[str] = device.host.start(
        *command, env=device.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return started


def printed(process: subprocess.Popen[str], *, within: float = 180) -> Any:
    """What a program prints at its end."""
    told, trouble = process.communicate(timeout=within)
    assert process.returncode == 0, trouble
    return json.loads(told)


def queued(device: Device) -> int:
    """How many jobs wait, as a program on the device sees it."""
    with Queue("net", home=device.home) as queue:
        return queue.counts()["queued"]


def soon(condition: Callable[[], bool], *, within: float, what: str) -> None:
    """As `until`, without a pause between two looks: for what is over in a moment."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not within {within} s: {what}"


def test_two_hundred_operations_on_each_side_of_a_pulled_cable_are_the_same_on_both_after(space: Space) -> None:
    h1, h2 = devices = space(2)
    for device in devices:
        device.run_node()
    linked(devices, within=20 * pace())
    shared = json.dumps(printed(program(h1, SHARED)))
    equal(devices, within=20 * pace())
    h2.host.cut()
    until(lambda: not peers(h1) and not peers(h2), within=30 * pace(), what="they are apart")
    sides = [program(device, OPERATIONS, shared, str(number)) for number, device in enumerate(devices)]
    assert [printed(side) for side in sides] == [230, 230]
    h2.host.mend()
    linked(devices, within=30 * pace())
    seconds = took(lambda: len({str(device.jobs()) for device in devices}) == 1, within=20 * pace(), what="the same jobs on both")
    equal(devices, within=20 * pace())
    print(f"230 operations on each side: the same on both {seconds:.1f} s after the two were linked again")
    jobs = h1.jobs()
    assert len(jobs) == 60 + 2 * 80
    assert {job["status"] for job in jobs if (job["title"] or "").startswith("quick")} <= {"succeeded"}
    cancelled = [job for job in jobs if job["id"] in shared and job["status"] == "cancelled"]
    assert len(cancelled) == 60  # of a cancel and a pause the cancel stands


@pytest.mark.parametrize("victim", ["the one who gives", "the one who gets"])
def test_a_side_that_is_killed_in_mid_sync_loses_nothing(space: Space, victim: str) -> None:
    """Killed with −9 between two messages of a cold sync; what was acknowledged is there, the rest comes after."""
    count = 12_000
    h1, h2 = devices = space(2)
    assert printed(program(h1, MANY, str(count))) == count
    h1.run_node(None, "--no-work")
    h2.run_node(None, "--no-work")
    soon(lambda: queued(h2) > 0, within=60 * pace(), what="the sync is under way")
    died = h1 if victim == "the one who gives" else h2
    died.kill(signal.SIGKILL)
    assert 0 < queued(h2) < count
    assert queued(h1) == count
    made = [device("enqueue", "echo", "text=meanwhile", "--delay", "9h")["id"] for device in devices]
    died.run_node(None, "--no-work")
    until(lambda: queued(h2) == count + 2, within=60 * pace(), what="all are here")
    equal(devices, within=30 * pace())
    for job_id in made:
        assert {device.job(job_id)["status"] for device in devices} == {"queued"}


@pytest.mark.soak  # it lasts ten minutes
@pytest.mark.timeout(900)
def test_after_a_silent_cut_of_ten_minutes_the_link_is_back_within_seconds(space: Space) -> None:
    h1, h2 = devices = space(2)
    for device in devices:
        device.run_node()
    linked(devices, within=20 * pace(), path="webrtc")
    h2.host.cut(silent=True)
    until(lambda: not peers(h1) and not peers(h2), within=20 * pace(), what="they are apart")
    time.sleep(600)
    made = [device("enqueue", "echo", f"text={device.host.name}")["id"] for device in devices]
    h2.host.mend()
    back = took(lambda: peers(h1) and peers(h2), within=10 * pace(), what="both are linked again")
    print(f"a silent cut of ten minutes: linked again after {back:.1f} s")
    equal(devices, within=20 * pace())
    for job_id in made:
        assert h1.job(job_id)["status"] == "succeeded"
