"""Files at the speed of the wire: one transfer survives the loss of every lane and source in turn, and folders come whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from p2pqueue.home import Home
from p2pqueue.replica.door.doorbell import DoorbellClient
from tests.net.conftest import Space
from tests.net.device import APP, PROGRAM, Device, pace, until
from tests.net.meeting import MB, linked, networking, random_file

pytestmark = pytest.mark.root

DIRECT = ("http", "webrtc")  # lanes from a device, of which it takes the faster one
PORT = 7433  # where every device listens here
AGAIN = 1.1  # of a file: so much may come of it in all, whatever happens on the way
RISE = 100  # MB that no node may take beyond what it takes idle


def moving(device: Device) -> dict[str, Any]:
    """The one transfer that is under way on a device; nothing where there is none."""
    told = DoorbellClient(Home(device.home).socket_path).request("transfers")["transfers"]
    assert len(told) <= 1
    return dict(told[0]) if told else {}


def carried(device: Device) -> dict[str, int]:
    """The bytes that came by each lane."""
    found: dict[str, int] = networking(device)["carried"]
    return found


def grows(device: Device, *lanes: str, by: int) -> Callable[[], bool]:
    """Says, when asked later on, whether so many more bytes have come by these lanes together since now."""

    def come() -> int:
        told = carried(device)
        return sum(told.get(lane, 0) for lane in lanes)

    before = come()
    return lambda: come() >= before + by


def sha256(path: Path) -> str:
    """What `sha256sum` says of a file."""
    return subprocess.run(["sha256sum", str(path)], check=True, capture_output=True, text=True).stdout.split()[0]


class Getting:
    """A `get` that runs on a device."""

    def __init__(self, device: Device, manifest: str, target: Path) -> None:
        words = (*PROGRAM, "get", manifest, "-o", str(target), "--json")
        self.process = device.host.start(*words, env=device.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, within: float) -> None:
        """Waits for its end, which has to be a good one."""
        said, complained = self.process.communicate(timeout=within)
        assert self.process.returncode == 0, (said, complained)


@pytest.fixture
def origin(space: Space, tmp_path: Path) -> Callable[[Device], tuple[Device, str]]:
    """Starts an origin on a host of its own; gives it and its URL."""

    def start(beside: Device) -> tuple[Device, str]:
        nas = Device(beside.host.lan.add("nas"), tmp_path / "nas")
        nas.node = nas.host.start(*PROGRAM, "origin", "--listen", "0.0.0.0:7434", env=nas.environment, stdout=subprocess.PIPE, text=True)
        assert nas.node.stdout is not None
        return nas, str(nas.node.stdout.readline().strip()).replace("0.0.0.0", nas.host.address)

    return start


@pytest.mark.parametrize(
    ("size", "rate"),
    [
        pytest.param(120 * MB, 8 * MB, marks=pytest.mark.timeout(240)),
        pytest.param(2 * 1024**3, 48 * MB, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_one_transfer_survives_the_loss_of_each_lane_and_source_in_turn(
    space: Space, tmp_path: Path, origin: Callable[[Device], tuple[Device, str]], size: int, rate: int
) -> None:
    h1, h2, h3 = space(3)
    nas, url = origin(h1)
    step = size // 12
    for device in (h1, h2, h3):
        device.environment |= {
            "P2PQUEUE_ORIGIN": url,
            "P2PQUEUE_ORIGIN_POLICY": "never",
            "P2PQUEUE_RESERVE": "1MB",
            "P2PQUEUE_QUOTA": "8GB",
        }
    h1.environment["P2PQUEUE_ORIGIN_POLICY"] = "always"
    # The sources dial: with nobody let in to their listeners any more, their links stand and HTTP is gone.
    h3.run_node(None, "--no-work", "--no-discovery", "--listen", f"0.0.0.0:{PORT}", "--rate", f"{rate}B")
    for device, others in ((h1, (h3,)), (h2, (h3, h1))):
        dialled = [word for other in others for word in ("--peer", f"{other.host.address}:{PORT}")]
        device.run_node(None, "--no-work", "--no-discovery", "--listen", f"0.0.0.0:{PORT}", *dialled)
    linked([h1, h2, h3], within=30 * pace(), path="webrtc")
    wanted = random_file(tmp_path / "large.bin", size)
    job = h1("enqueue", "sha", "-f", f"data={tmp_path / 'large.bin'}", "--delay", "9h")["id"]  # a job's inputs go to the origin
    manifest = str(until(lambda: h1.job(job)["input_manifest"], within=60 * pace(), what="it is sealed"))
    Getting(h2, manifest, tmp_path / "second.bin").end(within=200 * pace())
    until(lambda: networking(h1)["uploads"]["sent"] >= size, within=200 * pace(), what="all is on the origin")
    assert h3.node is not None
    idle = psutil.Process(h3.node.pid).memory_info().rss

    get = Getting(h3, manifest, tmp_path / "third.bin")
    until(grows(h3, "http", by=step), within=30 * pace(), what="it comes by HTTP")
    for source in (h1, h2):
        source.host.block_tcp(PORT)
    until(grows(h3, "webrtc", by=step), within=60 * pace(), what="it goes on by WebRTC when HTTP is lost")
    for source in (h1, h2):
        source.host.unblock()
    h3.host.block_udp()
    until(grows(h3, "http", by=step), within=60 * pace(), what="it goes on by HTTP when UDP is lost")
    h3.host.unblock()
    h1.kill(signal.SIGKILL)
    until(grows(h3, *DIRECT, by=step), within=60 * pace(), what="it goes on from the second device when the first is killed")
    h2.host.cut(silent=True)
    until(grows(h3, "origin", by=step), within=60 * pace(), what="it goes on from the origin when the second is gone")
    nas.kill(signal.SIGKILL)
    h2.host.mend()
    until(
        grows(h3, *DIRECT, by=step // 2),
        within=90 * pace(),
        what="it goes on from the second device when that is back and the origin is dead",
    )
    rise = psutil.Process(h3.node.pid).memory_info().rss - idle
    get.end(within=200 * pace())
    assert sha256(tmp_path / "third.bin") == wanted
    assert sum(carried(h3).values()) <= AGAIN * size + 16 * MB
    assert rise < RISE * MB


@pytest.mark.parametrize(
    ("files", "size"),
    [
        pytest.param(300, 7 * MB, marks=pytest.mark.timeout(120)),
        pytest.param(7458, 173 * MB, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_a_shared_folder_of_many_small_files_arrives_identical(space: Space, tmp_path: Path, files: int, size: int) -> None:
    h1, h2 = devices = space(2)
    tree = tmp_path / "tree"
    dice = random.Random(files)
    for number in range(files):
        path = tree / f"part {number % 37}" / ("ünder" if number % 5 else "deep/er") / f"{number}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(int(dice.expovariate(1.0) * size / files)))
    (tree / "empty").mkdir()
    (tree / "part 0" / "run.sh").write_text("true\n")
    (tree / "part 0" / "run.sh").chmod(0o755)
    for device in devices:
        device.run_node(None, "--no-work")
    linked(devices, within=30 * pace())
    manifest = h1("share", str(tree), timeout=120 * pace())["manifest"]
    Getting(h2, manifest, tmp_path / "got").end(within=120 * pace())
    subprocess.run(["diff", "-r", str(tree), str(tmp_path / "got")], check=True)
    assert os.access(tmp_path / "got" / "part 0" / "run.sh", os.X_OK)


@pytest.mark.timeout(180)
def test_webrtc_and_an_origin_alone_carry_everything(space: Space, tmp_path: Path, origin: Callable[[Device], tuple[Device, str]]) -> None:
    """`--lanes webrtc,origin`: a file from a device that is there, then one from the origin when its device has left."""
    h1, h2 = devices = space(2)
    _, url = origin(h1)
    for device in devices:
        device.environment |= {"P2PQUEUE_ORIGIN": url, "P2PQUEUE_ORIGIN_POLICY": "always"}
    h1.run_node(None, "--no-work", "--lanes", "webrtc,origin")
    h2.run_node(None, "--no-work", "--lanes", "webrtc,origin")
    linked(devices, within=30 * pace(), path="webrtc")
    first, second = (random_file(tmp_path / name, 20 * MB) for name in ("first.bin", "second.bin"))
    manifest = h1("share", str(tmp_path / "first.bin"), timeout=60 * pace())["manifest"]
    Getting(h2, manifest, tmp_path / "got-first.bin").end(within=60 * pace())
    assert sha256(tmp_path / "got-first.bin") == first
    assert set(carried(h2)) <= {"webrtc"}
    h2.kill(signal.SIGTERM)
    job = h1("enqueue", "sha", "-f", f"data={tmp_path / 'second.bin'}")["id"]
    until(lambda: networking(h1)["uploads"]["sent"] >= 20 * MB, within=60 * pace(), what="it is on the origin")
    h2.run_node(APP, "--lanes", "webrtc,origin")
    linked(devices, within=30 * pace(), path="webrtc")
    until(lambda: h2.job(job)["status"] == "succeeded", within=90 * pace(), what="the job is done")
    assert h2.job(job)["result"] == second
    assert set(carried(h2)) <= {"webrtc", "origin"}
