"""The main promise at its full size: a file of 1 GiB, worked on elsewhere, without a server."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.net.conftest import Space
from tests.net.device import APP, Device, pace
from tests.net.meeting import equal, linked, networking, random_file

GIB = 1024**3
RISE = 120  # MB that no process may take beyond what it takes idle

pytestmark = [pytest.mark.root, pytest.mark.soak, pytest.mark.timeout(900)]  # it moves a gibibyte


def largest(device: Device) -> int:
    """Megabytes of the node, or of the largest of its worker processes."""
    assert device.node is not None
    node = psutil.Process(device.node.pid)
    return int(max(each.memory_info().rss for each in [node, *node.children(recursive=True)]) // 1_000_000)


def test_a_file_of_a_gibibyte_is_worked_on_by_another_device_over_webrtc(space: Space, tmp_path: Path) -> None:
    h1, h2, h3 = devices = space(3)
    only = ("--lanes", "webrtc,origin")  # and there is no origin
    h1.run_node(None, "--no-work", *only)
    h2.run_node(APP, *only)
    h3.run_node(None, "--no-work", *only)
    linked(devices, within=30 * pace(), path="webrtc")
    idle = [largest(device) for device in devices]
    most = list(idle)
    wanted = random_file(tmp_path / "large.bin", GIB)
    begun = time.monotonic()
    job_id = h1("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}")["id"]
    while (job := h1.job(job_id))["status"] not in ("succeeded", "failed", "cancelled"):
        most = [max(known, largest(device)) for known, device in zip(most, devices, strict=True)]
        assert time.monotonic() - begun < 600 * pace()
        time.sleep(0.5)  # looking costs those a core who work
    print(f"a gibibyte took {time.monotonic() - begun:.0f} s; memory idle {idle}, at most {most}")
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", wanted, "h2")
    assert networking(h2)["carried"].get("webrtc", 0) >= GIB
    assert not networking(h2)["carried"].get("http")
    assert all(known < before + RISE for known, before in zip(most, idle, strict=True))
    equal(devices, within=30 * pace())
