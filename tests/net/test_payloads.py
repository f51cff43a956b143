"""What becomes of a file on its way when a source dies, changes or lies, when the disk is full, or the origin is away."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.net.conftest import Space
from tests.net.device import PROGRAM, Device, pace, until
from tests.net.meeting import MB, ended, linked, networking, peers, random_file

# They move tens of megabytes between up to four nodes: minutes on a busy machine.
pytestmark = [pytest.mark.root, pytest.mark.soak, pytest.mark.timeout(300)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_of_three_sources_one_is_killed_and_the_file_is_whole(space: Space, tmp_path: Path) -> None:
    """N09, P11: what the dead one was asked for is asked of the others."""
    devices = space(4)
    h1, h2, h3, h4 = devices
    for device in (h1, h2, h3):
        device.run_node(None, "--no-work")
    linked([h1, h2, h3], within=20 * pace())
    wanted = random_file(tmp_path / "large.bin", 40 * MB)
    for device in (h2, h3):
        device("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}", "--copy", "--delay", "9h")
    job_id = h1("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}", "--copy")["id"]
    h4.run_node()
    until(lambda: sum(networking(h4)["carried"].values()) > 2 * MB, within=30 * pace(), what="the transfer is under way")
    h1.kill(signal.SIGKILL)
    job = ended(h4, job_id, within=60 * pace())
    assert (job["status"], job["result"]) == ("succeeded", wanted)


def test_a_source_whose_file_changed_releases_the_job_in_words(space: Space, tmp_path: Path) -> None:
    """P05: nothing but what was enqueued is ever given to a handler; the job waits and says why."""
    h1, h2 = devices = space(2)
    path = tmp_path / "large.bin"
    random_file(path, 70 * MB)
    h1.run_node(None, "--no-work")
    job_id = h1("enqueue", "sha", "-f", f"data={path}")["id"]
    until(lambda: h1.job(job_id)["input_manifest"], within=20 * pace(), what="it is sealed")
    kept = path.read_bytes()
    path.write_bytes(os.urandom(1000) + kept[1000:])
    h2.run_node()
    linked(devices, within=20 * pace())
    until(lambda: "attempt 1 released" in h2.words(), within=60 * pace(), what="the job is released")
    assert h2.job(job_id)["status"] in ("queued", "running")  # never failed


def test_a_full_disk_at_the_receiver_releases_the_job_in_words_and_kills_nothing(space: Space, tmp_path: Path, small_disk: Path) -> None:
    """P09: no space for the input; small jobs go on, and the large one runs when there is room."""
    h1, h2 = devices = space(2, reserve="1MB")
    os.rename(h2.home, tmp_path / "moved")
    subprocess.run(["cp", "-a", str(tmp_path / "moved"), str(small_disk / "home")], check=True)
    h2.environment["P2PQUEUE_HOME"] = str(small_disk / "home")
    h2.home = small_disk / "home"
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=20 * pace())
    wanted = random_file(tmp_path / "large.bin", 30 * MB)
    job_id = h1("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}")["id"]
    until(lambda: "released" in h2.words(), within=30 * pace(), what="it is released")
    assert h1.job(job_id)["status"] in ("queued", "running")
    assert h1("enqueue", "echo", "text=small", "--wait", "--wait-timeout", "30")["result"] == "small"
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    job = ended(h1, job_id, within=60 * pace())
    assert (job["status"], job["result"]) == ("succeeded", wanted)


def test_an_origin_that_is_down_or_refuses_is_told_in_words_and_tried_again(space: Space, tmp_path: Path) -> None:
    """The fallback may be away, too: wrong token, nobody there, then there."""
    (h1,) = space(1)
    nas = Device(h1.host.lan.add("nas"), tmp_path / "nas")

    def origin() -> str:
        process = nas.host.start(*PROGRAM, "origin", "--listen", "0.0.0.0:7434", env=nas.environment, stdout=-1, text=True)
        assert process.stdout is not None
        nas.node = process
        return str(process.stdout.readline().strip()).replace("0.0.0.0", nas.host.address)

    url = origin()
    nas.kill()
    h1.environment |= {"P2PQUEUE_ORIGIN": url, "P2PQUEUE_ORIGIN_POLICY": "always"}
    h1.run_node(None, "--no-work")
    random_file(tmp_path / "file.bin", 5 * MB)
    h1("enqueue", "sha", "-f", f"data={tmp_path / 'file.bin'}")
    until(lambda: networking(h1)["uploads"]["trouble"], within=20 * pace(), what="it says that the origin is away")
    assert not peers(h1)
    origin()
    until(lambda: networking(h1)["uploads"]["sent"] >= 5 * MB, within=40 * pace(), what="the file is on the origin")
    until(lambda: not networking(h1)["uploads"]["trouble"], within=20 * pace(), what="the trouble is over")
