"""The main story over real hosts: pair, find, link, work, part, meet, take over. Only the command line is used."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.net.conftest import Space
from tests.net.device import PROGRAM, Device, pace, until
from tests.net.meeting import MB, equal, linked, random_file


def test_three_devices_find_one_another_and_one_works_for_the_other(space: Space) -> None:
    h1, h2, h3 = devices = space(3)
    h1.run_node(None, "--no-work")
    h2.run_node()
    h3.run_node(None, "--no-work")
    linked(devices, within=10 * pace(), path="webrtc")
    job = h1("enqueue", "echo", "text=hello", "--wait", "--wait-timeout", "30")
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", "hello", "h2")
    equal(devices, within=5 * pace())


@pytest.mark.timeout(180)
def test_a_large_input_is_shared_over_webrtc_alone_without_filling_memory_and_the_output_comes_back(space: Space, tmp_path: Path) -> None:
    h1, h2 = devices = space(2, lanes="webrtc,origin")
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=10 * pace(), path="webrtc")
    idle = [device.memory() for device in devices]
    wanted = random_file(tmp_path / "large.bin", 100 * MB)
    job = h1("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}", "--wait", "--wait-timeout", "150", timeout=170)
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", wanted, "h2")
    assert h2.network()["carried"].get("webrtc", 0) >= 100 * MB
    assert not h2.network()["carried"].get("http")
    for before, device in zip(idle, devices, strict=True):
        assert device.memory() < before + 120
    made = h1("enqueue", "make", f"size={3 * MB}", "--wait", "--wait-timeout", "60")
    h1("result", made["id"], "-o", str(tmp_path / "made.bin"))
    assert (tmp_path / "made.bin").read_bytes() == bytes(3 * MB)


@pytest.mark.timeout(180)
def test_both_sides_of_a_pulled_cable_go_on_and_are_equal_soon_after_it_is_back(space: Space) -> None:
    h1, h2 = devices = space(2)
    for device in devices:
        device.run_node()
    linked(devices, within=10 * pace(), path="webrtc")
    common = h1("enqueue", "slow", "seconds=0", "--delay", "1h")["id"]
    until(lambda: h2.job(common)["status"] == "queued", within=5 * pace(), what="the job is on both")
    h2.host.cut(silent=True)
    for device in devices:
        ids = [device("enqueue", "echo", f"text={number}")["id"] for number in range(5)]
        later = [device("enqueue", "echo", "--delay", "1h")["id"] for _ in range(3)]
        device("cancel", later[0])
        device("pause", later[1])
        for job_id in ids:
            until(lambda job_id=job_id, device=device: device.job(job_id)["status"] == "succeeded", within=10 * pace(), what="work apart")
        device("retry", ids[0])
    h1("cancel", common)
    h2.host.mend()
    linked(devices, within=8 * pace())
    equal(devices, within=5 * pace() + 3)
    assert h2.job(common)["status"] == "cancelled"


@pytest.mark.timeout(180)
def test_the_job_of_a_killed_worker_is_taken_over_and_succeeds_once(space: Space) -> None:
    h1, h2, h3 = devices = space(3, stale_after="6s", beat_every="1s")
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked([h1, h2], within=10 * pace())
    job_id = h1("enqueue", "slow", "seconds=600", "later=2")["id"]
    until(lambda: h1.job(job_id)["worker_label"] == "h2", within=10 * pace(), what="h2 has the job")
    h3.run_node()
    linked(devices, within=10 * pace())
    h2.kill(signal.SIGKILL)
    until(lambda: h1.job(job_id)["worker_label"] == "h3", within=(6 + 5) * pace(), what="h3 has taken it over")
    job = until(lambda: (found := h1.job(job_id))["status"] == "succeeded" and found, within=30 * pace(), what="it succeeds")
    assert [attempt["status"] for attempt in job["attempts"]].count("succeeded") == 1
    assert job["result"] == "done"


@pytest.mark.timeout(180)
def test_without_udp_everything_still_works_and_status_says_why_it_is_slower(space: Space, tmp_path: Path) -> None:
    h1, h2 = devices = space(2)
    for device in devices:
        device.host.block_udp()
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=10 * pace(), path="link")
    idle = [device.memory() for device in devices]
    wanted = random_file(tmp_path / "large.bin", 70 * MB)
    job = h1("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}", "--wait", "--wait-timeout", "120", timeout=150)
    assert (job["status"], job["result"]) == ("succeeded", wanted)
    assert h2.network()["carried"]["http"] >= 70 * MB
    for before, device in zip(idle, devices, strict=True):
        assert device.memory() < before + 100
    until(lambda: h1.network()["peers"][0]["why"], within=15 * pace(), what="why it is slower")


@pytest.mark.timeout(180)
def test_a_third_device_gets_from_the_origin_what_its_only_holder_has_taken_away(space: Space, tmp_path: Path) -> None:
    h1, h2 = space(2)
    origin = Device(h1.host.lan.add("nas"), tmp_path / "nas")
    process = origin.host.start(*PROGRAM, "origin", "--listen", "0.0.0.0:7434", env=origin.environment, stdout=-1, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip().replace("0.0.0.0", origin.host.address)
    for device in (h1, h2):
        device.environment["P2PQUEUE_ORIGIN"] = url
    wanted = random_file(tmp_path / "large.bin", 70 * MB)
    h1.run_node(None, "--no-work")
    job_id = h1("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}")["id"]
    until(lambda: h1.network()["uploads"]["sent"] >= 70 * MB, within=60 * pace(), what="the file is on the origin")
    h2.run_node(None, "--no-work")  # it would have the file before anybody is killed
    linked([h1, h2], within=10 * pace())
    until(lambda: h2.job(job_id)["status"] == "queued", within=10 * pace(), what="h2 knows the job")
    h1.kill(signal.SIGKILL)
    h2.kill(signal.SIGTERM)
    h2.run_node()
    job = until(lambda: (found := h2.job(job_id))["status"] == "succeeded" and found, within=90 * pace(), what=f"h2 ends it\n{h2.words()}")
    assert job["result"] == wanted
