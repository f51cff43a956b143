"""What becomes of a job whose worker freezes, sleeps, is cut off or dies of it, while others see to it?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from p2pqueue.home import Home
from p2pqueue.replica.door.doorbell import DoorbellClient
from tests.net.conftest import Space
from tests.net.device import Device, pace, until
from tests.net.meeting import ended, equal, linked, peers

CLOCK = Path(__file__).with_name("clock")
EIGHT_HOURS = str(8 * 3600)
QUICK = {"stale_after": "4s", "beat_every": "1s"}

# They start several nodes anew each, and were not run often enough beside other work to stand in CI.
pytestmark = [pytest.mark.root, pytest.mark.timeout(300), pytest.mark.soak]


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """Where handlers say that they start and end, whichever device runs them."""
    path = tmp_path / "note"
    path.touch()
    return path


def go_on(note: Path) -> None:
    """Lets the handlers come to their end."""
    note.with_name(f"{note.name}.go").touch()


def running_on(device: Device, job_id: str) -> str | None:
    job = device.job(job_id)
    return job["worker_label"] if job["status"] == "running" else None


def begins_on(worker: Device, teller: Device, note: Path, *words: str) -> str:
    """Enqueues a job that its only worker begins; gives its id."""
    teller.run_node(None, "--no-work")
    worker.run_node()
    linked([teller, worker], within=20 * pace())
    job_id: str = teller("enqueue", "noted", f"note={note}", *words)["id"]
    until(lambda: running_on(teller, job_id) == worker.host.name, within=15 * pace(), what="it runs")
    return job_id


@contextmanager
def frozen(device: Device, *, whole: bool) -> Iterator[None]:
    """Stops a node, with its handlers if `whole`, and lets them go on."""
    assert device.node is not None
    processes = [psutil.Process(device.node.pid)]
    processes += processes[0].children(recursive=True) if whole else []
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(processes):
            process.resume()


def is_over(device: Device, job_id: str, *how: str) -> bool:
    """Says whether the first attempt of a job has ended so, as a device knows it."""
    attempts = device.job(job_id)["attempts"]
    return bool(attempts) and attempts[0]["status"] in how


@pytest.mark.parametrize("whole", [True, False], ids=["with its handler", "while its handler goes on and ends"])
def test_of_a_worker_that_froze_beyond_its_lease_nothing_counts_when_it_goes_on(space: Space, note: Path, whole: bool) -> None:
    """J01: the lease ran out, another has done the job, and what the first one makes of it reaches no row."""
    h1, h2, h3 = devices = space(3, **QUICK)
    job_id = begins_on(h2, h1, note, "seconds=900", "later=0.5")
    h3.run_node()
    linked(devices, within=20 * pace())
    with frozen(h2, whole=whole):
        assert ended(h1, job_id, within=30 * pace())["worker_label"] == "h3"
        if not whole:
            go_on(note)
            until(lambda: "h2 ends\n" in note.read_text(), within=20 * pace(), what="the handler of h2 has ended")
    linked(devices, within=20 * pace())
    for device in devices:
        told = partial(is_over, device, job_id, *(["lost"] if whole else ["lost", "succeeded"]))
        until(told, within=15 * pace(), what=f"what h2 made of it is known\n{device.job(job_id)}")
    until(lambda: not at_work(h2), within=10 * pace(), what="h2 has stopped it")
    equal(devices, within=15 * pace())
    jobs = [device.job(job_id) for device in devices]
    assert {(job["status"], job["result"], job["worker_label"], job["error"], job["progress"]) for job in jobs} == {
        ("succeeded", "h3", "h3", None, 1.0)
    }
    assert ("h2 ends\n" in note.read_text()) is not whole


def test_of_two_that_did_a_job_apart_the_first_result_counts_for_both(space: Space, note: Path) -> None:
    """J01, while they are cut off from one another."""
    h1, h2, h3 = devices = space(3, **QUICK)
    job_id = begins_on(h2, h1, note, "seconds=900", "later=0.5")
    h3.run_node()
    linked(devices, within=20 * pace())
    h2.host.cut()
    assert ended(h1, job_id, within=40 * pace())["result"] == "h3"
    go_on(note)
    assert ended(h2, job_id, within=20 * pace())["result"] == "h2"
    h2.host.mend()
    linked(devices, within=30 * pace())
    equal(devices, within=15 * pace())
    jobs = [device.job(job_id) for device in devices]
    assert {(job["status"], job["result"], job["worker_label"]) for job in jobs} == {("succeeded", "h3", "h3")}
    assert note.read_text().splitlines() == ["h2 starts", "h3 starts", "h3 ends", "h2 ends"]


def test_what_a_cut_off_worker_makes_of_a_job_that_was_cancelled_is_discarded_when_it_is_back(space: Space, note: Path) -> None:
    """J05: it could not be reached, and ended the job; the cancel stands."""
    h1, h2 = devices = space(2)
    job_id = begins_on(h2, h1, note, "seconds=900")
    h2.host.cut()
    until(lambda: not peers(h1), within=20 * pace(), what="h2 is away")
    h1("cancel", job_id)
    go_on(note)
    assert ended(h2, job_id, within=30 * pace())["result"] == "h2"
    h2.host.mend()
    linked(devices, within=30 * pace())
    equal(devices, within=15 * pace())
    jobs = [device.job(job_id) for device in devices]
    assert {(job["status"], job["result"]) for job in jobs} == {("cancelled", None)}
    assert note.read_text() == "h2 starts\nh2 ends\n"


def test_a_device_that_wakes_does_nothing_again_of_what_others_did_while_it_slept(space: Space, note: Path, tmp_path: Path) -> None:
    """N11: eight hours by the clock; its lease was lost, and what came due meanwhile was done."""
    h1, h2, h3 = devices = space(3, **QUICK, slots="6")
    clock = tmp_path / "clock"
    clock.write_text("0")
    for device in devices:
        path = os.pathsep.join([str(CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])])
        device.environment |= {"PYTHONPATH": path, "P2PQ_TEST_CLOCK": str(clock)}
    job_id = begins_on(h2, h1, note, "seconds=900", "later=0.5")
    due = [h1("enqueue", "noted", f"note={note}", "--delay", "2h")["id"] for _ in range(4)]
    h3.run_node()
    linked(devices, within=20 * pace())
    equal(devices, within=15 * pace())
    with frozen(h2, whole=True):
        until(lambda: not peers(h1) & {"h2"}, within=20 * pace(), what="h2 is away")
        clock.write_text(EIGHT_HOURS)
        for each in (job_id, *due):
            assert ended(h1, each, within=30 * pace())["worker_label"] == "h3"
    linked(devices, within=30 * pace())
    until(lambda: is_over(h1, job_id, "lost"), within=15 * pace(), what="what h2 was at is lost to it")
    until(lambda: not at_work(h2), within=15 * pace(), what="h2 has stopped it")
    time.sleep(2)
    equal(devices, within=15 * pace())
    assert sorted(note.read_text().splitlines()) == ["h2 starts", *["h3 ends"] * 5, *["h3 starts"] * 5]
    assert {str(device.jobs()) for device in devices} == {str(h1.jobs())}
    assert h1("enqueue", "echo", "text=awake", "--wait", "--wait-timeout", "30")["result"] == "awake"


@pytest.mark.parametrize("after", [0.0, 0.3], ids=["at once", "after a moment"])
def test_a_job_that_kills_its_node_ends_after_its_attempts_over_all_devices(space: Space, note: Path, after: float) -> None:
    """J07: two of three workers die of it, though neither has the time to write it down; the third one goes on."""
    h1, *workers = devices = space(4)
    h1.run_node(None, "--no-work")
    for device in workers:
        device.run_node()
    linked(devices, within=30 * pace())
    job_id = h1("enqueue", "kill_node", f"note={note}", f"after={after}")["id"]
    job = ended(h1, job_id, within=40 * pace())
    assert (job["status"], job["error"], job["attempt"]) == ("failed", "worker lost", 2)
    (last,) = [device for device in workers if is_alive(device)]
    for device in workers:
        if device is not last:
            device.run_node()
    linked(devices, within=30 * pace())
    equal(devices, within=20 * pace())
    told = [device.job(job_id) for device in devices]
    assert {(job["status"], job["error"]) for job in told} == {("failed", "worker lost")}
    assert [[attempt["status"] for attempt in job["attempts"]] for job in told] == [["lost", "lost"]] * 4
    assert h1("enqueue", "echo", "text=well", "--wait", "--wait-timeout", "30")["result"] == "well"
    assert note.read_text().count("starts") == 2


def at_work(device: Device) -> list[str]:
    """The jobs that a node runs now."""
    return [each["id"] for each in DoorbellClient(Home(device.home).socket_path).request("status")["running"]]


def is_alive(device: Device) -> bool:
    """Says whether its node runs."""
    return device.node is not None and device.node.poll() is None
