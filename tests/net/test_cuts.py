"""What becomes of links, rows and transfers when the network fails, and when it is back: one pair of devices for all.

Each test leaves the network whole; the next waits until the pair is linked again.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.net.conftest import Space
from tests.net.device import Device, pace, until
from tests.net.meeting import MB, ended, equal, linked, networking, peers, random_file, took

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
# These move tens of megabytes or wait for several time-outs, and were not run often enough beside other work to stand in CI.
soak = pytest.mark.soak

DEAD_WITHIN, BACK_WITHIN = 6.0, 3.0  # seconds, on a machine that is otherwise idle


@pytest.fixture(scope="module")
def pair(shared_space: Space) -> list[Device]:
    """Two devices: h1 enqueues, h2 works."""
    devices = shared_space(2)
    devices[0].run_node(None, "--no-work")
    devices[1].run_node()
    return devices


@pytest.fixture
def h1(pair: list[Device]) -> Device:
    linked(pair, within=20 * pace(), path="webrtc")
    return pair[0]


@pytest.fixture
def h2(pair: list[Device], h1: Device) -> Device:
    return pair[1]


def apart(h1: Device, h2: Device) -> float:
    """Seconds until neither sees the other any more."""
    limit = (DEAD_WITHIN + 2) * pace()
    return took(lambda: not peers(h1) and not peers(h2), within=limit, what="both notice that the other is gone")


def together(h1: Device, h2: Device) -> float:
    """Seconds until both see one another again."""
    limit = (BACK_WITHIN + 1) * pace()
    return took(lambda: peers(h1) and peers(h2), within=limit, what=f"both are linked again\n{networking(h1)}\n{networking(h2)}")


def sent_file(h1: Device, path: Path, size: int) -> tuple[str, str]:
    """Enqueues a job with a file of random bytes; gives its id and what its result will be."""
    wanted = random_file(path, size)
    return h1("enqueue", "sha", "-f", f"data={path}")["id"], wanted


def carried(device: Device) -> int:
    return sum(networking(device)["carried"].values())


def midway(device: Device, before: int, *, some: int = 2 * MB) -> None:
    """Waits until a transfer to a device is well under way."""
    until(lambda: carried(device) > before + some, within=30 * pace(), what="the transfer is under way")


def succeeds(device: Device, job_id: str, wanted: str, *, within: float = 60.0) -> None:
    job = ended(device, job_id, within=within * pace())
    assert (job["status"], job["result"]) == ("succeeded", wanted)


@soak
@pytest.mark.parametrize("silent", [False, True], ids=["carrier lost", "silently"])
def test_a_cut_cable_is_noticed_and_the_link_is_back_soon_after_it_is_mended(h1: Device, h2: Device, silent: bool) -> None:
    """N09, N11: a peer that can't be reached is gone, and a half-open link is not believed in."""
    h2.host.cut(silent=silent)
    noticed = apart(h1, h2)
    here = h1("enqueue", "echo", "text=here")["id"]
    there = h2("enqueue", "echo", "text=there")["id"]
    time.sleep(3)
    h2.host.mend()
    back = together(h1, h2)
    print(f"cut {'silently' if silent else 'with its carrier'}: noticed after {noticed:.1f} s, linked again after {back:.1f} s")
    for job_id in (here, there):
        assert ended(h1, job_id, within=10 * pace())["status"] == "succeeded"
    equal([h1, h2], within=10 * pace())


@soak
@pytest.mark.parametrize("silent", [False, True], ids=["carrier lost", "silently"])
def test_a_transfer_goes_on_after_the_cable_was_cut(h1: Device, h2: Device, tmp_path: Path, silent: bool) -> None:
    """N09: what a source that vanished was asked for is asked anew when it is back; its job waits and does not fail."""
    before = carried(h2)
    job_id, wanted = sent_file(h1, tmp_path / "large.bin", 30 * MB)
    midway(h2, before)
    h2.host.cut(silent=silent)
    apart(h1, h2)
    time.sleep(4)
    assert h2.job(job_id)["status"] in ("queued", "running")
    h2.host.mend()
    succeeds(h1, job_id, wanted)


@soak
def test_a_changed_address_is_found_again_while_nothing_goes_on(h1: Device, h2: Device) -> None:
    """N03: an address that is no more is not held on to."""
    try:
        h2.host.readdress("10.77.0.77/24")
        back = took(
            lambda: [each["address"][0] for each in networking(h1)["peers"]] == ["10.77.0.77"],
            within=20 * pace(),
            what="h1 has the new address",
        )
        print(f"address changed: linked by the new one after {back:.1f} s")
        assert h1("enqueue", "echo", "text=moved", "--wait", "--wait-timeout", "30")["result"] == "moved"
    finally:
        h2.host.readdress("10.77.0.2/24")


@soak
def test_a_changed_address_in_mid_transfer_costs_seconds(h1: Device, h2: Device, tmp_path: Path) -> None:
    """N03: the transfer goes on over the new address."""
    before = carried(h2)
    job_id, wanted = sent_file(h1, tmp_path / "large.bin", 30 * MB)
    midway(h2, before)
    try:
        h2.host.readdress("10.77.0.78/24")
        succeeds(h1, job_id, wanted)
    finally:
        h2.host.readdress("10.77.0.2/24")


@soak
def test_a_card_that_is_taken_out_and_put_in_again_is_used_again(h1: Device, h2: Device) -> None:
    """N01, N03: an interface that comes late, as of a dock."""
    h2.host.unplug()
    apart(h1, h2)
    h2.host.plug("10.77.0.2/24")
    back = took(lambda: peers(h1) and peers(h2), within=15 * pace(), what="both are linked again")
    print(f"a late interface: linked after {back:.1f} s")
    assert h1("enqueue", "echo", "text=late", "--wait", "--wait-timeout", "30")["result"] == "late"


@soak
def test_when_udp_stops_passing_in_mid_transfer_http_takes_over_and_webrtc_returns_after(h1: Device, h2: Device, tmp_path: Path) -> None:
    """N13: rows go by the link, bytes by HTTP, and neither for longer than need be."""
    before = dict(networking(h2)["carried"])
    job_id, wanted = sent_file(h1, tmp_path / "large.bin", 30 * MB)
    midway(h2, sum(before.values()))
    try:
        h2.host.block_udp()
        down = took(lambda: peers(h1, "link") and peers(h2, "link"), within=20 * pace(), what="the link carries the rows")
        succeeds(h1, job_id, wanted)
        assert networking(h2)["carried"]["http"] > before.get("http", 0)
        echoed = h1("enqueue", "echo", "text=by link", "--wait", "--wait-timeout", "30")
        assert echoed["result"] == "by link"
        until(lambda: h1.network()["peers"][0]["why"], within=15 * pace(), what="status says why")
    finally:
        h2.host.unblock()
    up = took(lambda: peers(h1, "webrtc") and peers(h2, "webrtc"), within=75 * pace(), what="WebRTC is back")
    print(f"UDP blocked: rows by the link after {down:.1f} s; allowed again: WebRTC after {up:.1f} s")


@soak
@pytest.mark.parametrize("way", ["to", "from"])
def test_udp_that_passes_one_way_only_is_no_path(h1: Device, h2: Device, way: str) -> None:
    """N13: half a path is none."""
    try:
        h2.host.block_udp(way)  # type: ignore[arg-type]
        until(lambda: peers(h1, "link") and peers(h2, "link"), within=25 * pace(), what="the link carries the rows")
        assert h1("enqueue", "echo", "text=half", "--wait", "--wait-timeout", "30")["result"] == "half"
    finally:
        h2.host.unblock()
    until(lambda: peers(h1, "webrtc") and peers(h2, "webrtc"), within=75 * pace(), what="WebRTC is back")


@soak
def test_a_path_that_eats_large_packets_stalls_neither_rows_nor_bytes(h1: Device, h2: Device, tmp_path: Path) -> None:
    """An MTU below 1280 that nobody tells of: the stall is noticed, the link takes the rows and HTTP the bytes."""
    before = dict(networking(h2)["carried"])
    job_id, wanted = sent_file(h1, tmp_path / "large.bin", 30 * MB)
    midway(h2, sum(before.values()))
    try:
        h2.host.narrow(1200)
        succeeds(h1, job_id, wanted, within=90)
        assert networking(h2)["carried"]["http"] > before.get("http", 0)
        long = "x" * 5000
        assert h1("enqueue", "echo", f"text={long}", "--wait", "--wait-timeout", "60", timeout=90)["result"] == long
    finally:
        h2.host.narrow(None)


@soak
def test_a_peer_that_was_stopped_for_a_while_goes_on_where_it_was(h1: Device, h2: Device, tmp_path: Path) -> None:
    """N11: after a sleep in mid-transfer the links are made anew and everything settles by itself."""
    before = carried(h2)
    job_id, wanted = sent_file(h1, tmp_path / "large.bin", 30 * MB)
    midway(h2, before)
    assert h2.node is not None
    h2.node.send_signal(signal.SIGSTOP)
    gone = took(lambda: not peers(h1), within=(DEAD_WITHIN + 2) * pace(), what="h1 notices")
    asleep = [h1("enqueue", "echo", f"text={number}")["id"] for number in range(3)]
    time.sleep(3)
    h2.node.send_signal(signal.SIGCONT)
    back = together(h1, h2)
    print(f"stopped peer: noticed after {gone:.1f} s, linked {back:.1f} s after it woke")
    succeeds(h1, job_id, wanted)
    for each in asleep:
        assert ended(h1, each, within=10 * pace())["status"] == "succeeded"
    equal([h1, h2], within=10 * pace())


@soak
def test_a_sender_that_is_killed_in_mid_transfer_and_started_again_is_asked_again(h1: Device, h2: Device, tmp_path: Path) -> None:
    """N05, N09: killed with −9 and back within two seconds, under its old name."""
    before = carried(h2)
    job_id, wanted = sent_file(h1, tmp_path / "large.bin", 30 * MB)
    midway(h2, before)
    h1.kill(signal.SIGKILL)
    h1.run_node(None, "--no-work")
    back = took(lambda: peers(h1) and peers(h2), within=15 * pace(), what="both are linked again")
    print(f"a killed peer: linked {back:.1f} s after its node was ready")
    succeeds(h1, job_id, wanted)


@soak
def test_a_receiver_that_is_killed_in_mid_transfer_runs_the_job_when_it_is_back(h1: Device, h2: Device, tmp_path: Path) -> None:
    """J03, N09: an attempt that died with its node is made again."""
    before = carried(h2)
    job_id, wanted = sent_file(h1, tmp_path / "large.bin", 30 * MB)
    midway(h2, before)
    h2.kill(signal.SIGKILL)
    h2.run_node()
    succeeds(h1, job_id, wanted)
    assert not list((h2.home / "outputs").rglob(".part"))
