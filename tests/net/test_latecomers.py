"""What becomes of a device that was away for long, or comes new to a space with a long past."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from p2pqueue import Queue
from p2pqueue.home import Home
from p2pqueue.replica.door.doorbell import DoorbellClient
from tests.net.conftest import Space
from tests.net.device import Device, pace, until
from tests.net.meeting import ended, equal, linked, networking, peers

ROOT = Path(__file__).parents[2]
CLOCK = Path(__file__).with_name("clock")
NINE_DAYS = str(9 * 86_400)
PAST = """
import sys
from tests.net.app import echo
for start in range(0, int(sys.argv[1]), 1000):
    echo.enqueue_many([{"text": f"past {number} " + "x" * 100} for number in range(start, start + 1000)])
"""
LIVE = """
import json
from tests.net.app import echo
jobs = echo.options(delay=360000).enqueue_many([{"text": f"live {number}"} for number in range(50)])
print(json.dumps([job.id for job in jobs]))
"""
GROWTH = 150  # MB that a newcomer's node may take beyond what it takes alone, whatever the past is

# They make and move thousands of rows, and were not run often enough beside other work to stand in CI.
pytestmark = [pytest.mark.root, pytest.mark.timeout(300), pytest.mark.soak]


def run(device: Device, program: str, *words: str, timeout: float = 600) -> str:
    done = device.host.run(sys.executable, "-c", program, *words, check=False, env=device.environment, cwd=ROOT, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_a_deleted_job_does_not_come_back_with_a_device_that_was_away(space: Space, tmp_path: Path) -> None:
    """R06: it was running there; when all others have long forgotten it, it is dropped there too, and runs nowhere."""
    h1, h2, h3 = devices = space(3)
    clock = tmp_path / "clock"
    clock.write_text("0")
    for device in devices:
        path = os.pathsep.join([str(CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])])
        device.environment |= {"PYTHONPATH": path, "P2PQ_TEST_CLOCK": str(clock)}
    h1.run_node(None, "--no-work")
    h2.run_node(None, "--no-work")
    h3.run_node()
    linked(devices, within=30 * pace())
    job_id = h1("enqueue", "slow", "seconds=3600")["id"]
    kept = h1("enqueue", "echo", "text=kept", "--delay", "9000h")["id"]
    until(lambda: all(device.job(job_id)["status"] == "running" for device in devices), within=30 * pace(), what="h3 runs it")
    h3.host.cut()
    until(lambda: not peers(h3), within=30 * pace(), what="h3 is away")
    h1("delete", job_id, "--yes")
    until(lambda: h2.job(job_id)["status"] is None, within=20 * pace(), what="it is deleted on h2")
    clock.write_text(NINE_DAYS)
    for device in (h1, h2):
        device("prune")
        assert device.job(job_id)["status"] is None
    assert h3.job(job_id)["status"] == "running"  # and writes how far it is
    h3.host.mend()
    until(lambda: h3.job(job_id)["status"] is None, within=90 * pace(), what=f"it is gone from h3\n{h3.words()}")
    until(lambda: not running(h3), within=30 * pace(), what="nothing runs it any more")
    equal(devices, within=30 * pace())
    for device in devices:
        assert device.job(job_id)["status"] is None
        assert device.job(kept)["status"] == "queued"


def running(device: Device) -> list[str]:
    """The jobs that a node runs now."""
    return [each["id"] for each in DoorbellClient(Home(device.home).socket_path).request("status")["running"]]


class Watcher(threading.Thread):
    """Asks a node how it is every 100 ms; keeps how long the longest answer took and how much memory it had at most."""

    def __init__(self, device: Device) -> None:
        super().__init__(daemon=True)
        self.device = device
        self.answers, self.longest, self.most = 0, 0.0, 0
        self.over = threading.Event()

    def run(self) -> None:
        assert self.device.node is not None
        process = psutil.Process(self.device.node.pid)
        while not self.over.wait(0.1):
            begun = time.monotonic()
            networking(self.device)
            self.longest = max(self.longest, time.monotonic() - begun)
            self.most = max(self.most, process.memory_info().rss // 1_000_000)
            self.answers += 1


def counts(device: Device) -> dict[str, int]:
    with Queue("net", home=device.home) as queue:
        return queue.counts()


@pytest.mark.parametrize(
    "size",
    [4_000, pytest.param(50_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],  # it takes minutes to make that many
)
def test_a_newcomer_works_at_once_whatever_the_past_of_its_space(space: Space, size: int) -> None:
    """R11: deleted and ended jobs by the thousand; the newcomer answers, works, stays small, and goes on where it was cut off."""
    h1, h2 = devices = space(2)
    for ending in ("delete", "cancel"):
        run(h1, PAST, str(size // 2))
        h1("cancel", "--all", "--yes", timeout=600)
        if ending == "delete":
            h1("delete", "--all", "--yes", timeout=600)
    live = json.loads(run(h1, LIVE))
    h1.run_node(None, "--no-work")
    h2.run_node()
    alone = h2.memory()
    watcher = Watcher(h2)
    watcher.start()
    begun = time.monotonic()
    while not (seen := counts(h2))["queued"]:
        assert time.monotonic() - begun < 60 * pace()
    h2.host.cut()  # in the middle of it
    first = time.monotonic() - begun
    mine = h2("enqueue", "echo", "text=mine", "--wait", "--wait-timeout", "60")
    assert (mine["result"], mine["worker_label"]) == ("mine", "h2")
    until(lambda: not peers(h2), within=30 * pace(), what="it is cut off")
    ended_jobs, cut_at = size // 2, counts(h2)["cancelled"]
    h2.host.mend()
    until(lambda: counts(h2)["cancelled"] == ended_jobs, within=60 * pace() + size / 50, what="all of the past is there")
    total = time.monotonic() - begun
    equal(devices, within=60 * pace())
    watcher.over.set()
    watcher.join(30)
    print(
        f"joined {size} dead jobs: live ones after {first:.1f} s beside {seen['cancelled']} dead; cut off at {cut_at}; all: {total:.1f} s"
    )
    print(f"memory: {alone} MB at first, {watcher.most} MB at most; of {watcher.answers} answers the longest took {watcher.longest:.2f} s")
    assert all(h2.job(job_id)["status"] == "queued" for job_id in live[:3])
    assert ended(h1, mine["id"], within=20 * pace())["result"] == "mine"
    assert watcher.answers >= 5
    assert watcher.most < alone + GROWTH
