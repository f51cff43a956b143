"""Faults that others met, between real nodes: clones, old copies, wrong clocks, relays, taken ports, junk."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.net.conftest import Space
from tests.net.device import PROGRAM, Device, pace, until
from tests.net.lan import Lan
from tests.net.meeting import ended, equal, linked, networking, peers

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
# These start several nodes anew each, and were not run often enough beside other work to stand in CI.
soak = pytest.mark.soak

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
MANY = """
from tests.net.app import echo
echo.enqueue_many([{"text": str(number)} for number in range(2000)])
"""
HOLD = "import socket, time; held = socket.create_server(('', 7433)); print(flush=True); time.sleep(99)"
JUNK = """
import os, socket, sys
for opening in (os.urandom(20_000), b"", b"GET /" + b"a" * 300_000, b"GET /link HTTP/1.1\\r\\n" * 3, b"\\x16\\x03\\x01" + bytes(60_000),
                b"GET /shards/" + b"f" * 64 + b" HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer 00\\r\\n\\r\\n",
                b"PUT /shards/x HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 99999999999\\r\\n\\r\\n" + bytes(100_000),
                b"GET /link HTTP/1.1\\r\\nHost: x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
                b"Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\\r\\n\\r\\n\\x82\\xff" + b"\\x7f" * 8 + bytes(200_000)):
    for _ in range(15):
        try:
            with socket.create_connection((sys.argv[1], 7433), timeout=1) as connection:
                connection.sendall(opening)
                connection.settimeout(0.2)
                while connection.recv(65536):
                    pass
        except OSError:
            pass
"""


def code_of(device: Device, *flags: str) -> str:
    """A code that lets one device in."""
    inviting = device.host.start(*PROGRAM, "invite", *flags, "--json", env=device.environment, stdout=-1, text=True)
    assert inviting.stdout is not None
    code: str = json.loads(inviting.stdout.readline())["code"]
    return code


def trouble(device: Device) -> str | None:
    words: str | None = device.network()["trouble"]
    return words


@soak
def test_devices_that_only_a_third_knows_converge_and_work_through_it(space: Space) -> None:
    """R09: what one wrote reaches the others by a relay under its own name."""
    h1, h2, h3 = devices = space(3)
    # Nobody but h2 lets the other in: the bridge carries nothing between h1 and h3.
    for host, other in ((h1.host, h3.host), (h3.host, h1.host)):
        host.ip("route", "add", "blackhole", f"{other.address}/32")
    h2.run_node(None, "--no-work", "--no-discovery")
    h1.run_node(None, "--no-work", "--no-discovery", "--peer", h2.host.address)
    h3.run_node(None, "--no-work", "--no-discovery", "--peer", h2.host.address)
    until(lambda: peers(h2) == {"h1", "h3"}, within=15 * pace(), what="h2 is linked to both")
    ids = [device("enqueue", "echo", f"text={device.host.name}")["id"] for device in (h1, h3) for _ in range(3)]
    equal(devices, within=10 * pace())
    assert peers(h1) == peers(h3) == {"h2"}
    h3.kill(signal.SIGTERM)
    h3.run_node(None, "--no-work", "--no-discovery", "--peer", h2.host.address)
    h1.kill(signal.SIGTERM)
    h1.run_node(Path(__file__).with_name("app.py"), "--no-discovery", "--peer", h2.host.address)
    for job_id in ids:
        job = ended(h3, job_id, within=20 * pace())
        assert (job["status"], job["worker_label"]) == ("succeeded", "h1")
    equal(devices, within=10 * pace())


@soak
@pytest.mark.parametrize("role", ["viewer", "worker"])
def test_one_whose_role_relays_nothing_brings_nobody_elses_rows(lan: Lan, tmp_path: Path, role: str) -> None:
    """R09, page 5: what a viewer or a worker passes on isn't taken, and its own place in the space is no worse for it."""
    h1, h2, h3 = (Device(lan.add(f"h{number}"), tmp_path / f"h{number}") for number in (1, 2, 3))
    h1("init", "--label", "h1", "--space", "net")
    h2("join", code_of(h1, "--role", role), "--label", "h2")
    h1.let_in(h3, "h3")
    for host, other in ((h1.host, h3.host), (h3.host, h1.host)):
        host.ip("route", "add", "blackhole", f"{other.address}/32")
    h2.run_node(None, "--no-work", "--no-discovery")
    for device in (h1, h3):
        device.run_node(None, "--no-work", "--no-discovery", "--peer", h2.host.address)
    until(lambda: "h1" in peers(h2), within=15 * pace(), what="h2 is linked to h1")
    job_id = h1("enqueue", "echo", "text=mine")["id"]
    until(lambda: h2.job(job_id)["status"] == "queued", within=10 * pace(), what="h2 has the job")
    time.sleep(2)
    assert h3.job(job_id)["status"] is None
    for host, other in ((h1.host, h3.host), (h3.host, h1.host)):
        host.ip("route", "del", "blackhole", f"{other.address}/32")
    h1("offline")
    h1("online")
    until(lambda: h3.job(job_id)["status"] == "queued", within=10 * pace(), what="h3 has it from h1 itself")


@soak
@pytest.mark.parametrize("offset", ["+1h", "-1h"])
def test_a_clock_that_is_an_hour_wrong_costs_neither_rows_nor_jobs(space: Space, offset: str) -> None:
    """R01: the last writer that saw the other's write wins, whatever its clock says."""
    if not FAKETIME.exists():
        pytest.skip("faketime is not installed")
    h1, h2 = devices = space(2)
    h2.environment |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=15 * pace())
    for device in devices:
        job = device("enqueue", "echo", "text=late", "--wait", "--wait-timeout", "40")
        assert (job["status"], job["result"]) == ("succeeded", "late")
    job_id = h2("enqueue", "echo", "--delay", "5h")["id"]
    until(lambda: h1.job(job_id)["status"] == "queued", within=10 * pace(), what="h1 has the job")
    h1("cancel", job_id)
    until(lambda: h2.job(job_id)["status"] == "cancelled", within=10 * pace(), what="h1's later word counts on h2")
    equal(devices, within=10 * pace())
    offsets = [each["clock_offset"] for each in networking(h1)["peers"]]
    assert abs(abs(offsets[0]) - 3600) < 30


@soak
def test_two_nodes_of_one_host_share_its_ports_and_work_for_one_another(lan: Lan, tmp_path: Path) -> None:
    """N07: the port is taken, and by one of the same kind; nothing but `lo` is there."""
    host = lan.add("alone")
    host.unplug()
    first, second = Device(host, tmp_path / "first", interfaces="lo"), Device(host, tmp_path / "second", interfaces="lo")
    taken = host.start(sys.executable, "-c", HOLD, stdout=-1)
    assert taken.stdout is not None
    taken.stdout.readline()
    first("init", "--label", "first", "--space", "net")
    first.let_in(second, "second")
    ready = [first.run_node(None, "--no-work"), second.run_node()]
    assert {address.rpartition(":")[2] for each in ready for address in each["addresses"]} == {"7434", "7435"}
    until(lambda: peers(first, "webrtc") and peers(second, "webrtc"), within=15 * pace(), what="they are linked by WebRTC")
    job = first("enqueue", "echo", "text=near", "--wait", "--wait-timeout", "30")
    assert (job["result"], job["worker_label"]) == ("near", "second")
    again = host.run(*PROGRAM, "run", "--json", check=False, env=first.environment)
    assert again.returncode != 0
    assert first.node is not None
    assert str(first.node.pid) in again.stderr


@soak
def test_a_device_that_joins_late_gets_thousands_of_jobs(space: Space) -> None:
    """R11: a cold sync; what is enqueued meanwhile doesn't wait for it."""
    h1, h2 = devices = space(2)
    done = h1.host.run(sys.executable, "-c", MANY, check=False, env=h1.environment, timeout=60)
    assert done.returncode == 0, done.stderr
    h1.run_node(None, "--no-work")
    h2.run_node(None, "--no-work")
    begun = time.monotonic()
    until(lambda: h2("status")["counts"]["queued"] == 2000, within=20 * pace(), what="all are here")
    print(f"2,000 jobs are on the newcomer {time.monotonic() - begun:.1f} s after its node was ready")
    equal(devices, within=10 * pace())


@soak
def test_junk_on_the_port_of_a_node_costs_it_nothing(space: Space) -> None:
    """S13: random bytes, endless requests, sizes that are no sizes; whoever is linked goes on."""
    h1, h2 = devices = space(2)
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=15 * pace())
    stranger = h1.host.lan.add("stranger")
    before = h2.memory()
    stranger.run(sys.executable, "-c", JUNK, h2.host.address, timeout=100)
    assert h2.memory() < before + 50
    job = h1("enqueue", "echo", "text=still", "--wait", "--wait-timeout", "30")
    assert (job["result"], job["worker_label"]) == ("still", "h2")
    assert "Traceback" not in h2.words()


@soak
def test_a_copied_home_is_noticed_and_told_on_both_sides(space: Space, tmp_path: Path) -> None:
    """R03: two nodes with one key; nothing is lost, and the remedy is named."""
    h1, h2 = space(2)
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked([h1, h2], within=15 * pace())
    h2.kill(signal.SIGTERM)
    twin = Device(h1.host.lan.add("twin"), tmp_path / "twin")
    shutil.copytree(h2.home, twin.home, ignore=shutil.ignore_patterns("*.sock", "node.lock"))
    h2.run_node()
    twin.run_node()
    for device in (h2, twin):
        until(partial(trouble, device), within=30 * pace(), what="it tells of the clone")
        assert "identity renew" in device.words()
    waiting = h1("enqueue", "echo", "text=meanwhile")["id"]
    time.sleep(2)
    assert h1.job(waiting)["status"] == "queued"  # neither of the two takes anything
    twin.kill(signal.SIGTERM)
    renewed = twin("identity", "renew", code_of(h1))
    assert renewed["device"] != renewed["was"]
    h2.kill(signal.SIGTERM)
    h2.run_node()
    twin.run_node()
    assert ended(h1, waiting, within=30 * pace())["status"] == "succeeded"
    equal([h1, h2, twin], within=30 * pace())


@soak
def test_a_home_that_was_put_back_to_an_older_copy_loses_nothing(space: Space, tmp_path: Path) -> None:
    """R05: its counters begin again where others know more; its old rows come back and its new ones count."""
    h1, h2 = devices = space(2)
    h2("list")
    shutil.copytree(h2.home, tmp_path / "old")
    for device in devices:
        device.run_node(None, "--no-work")
    linked(devices, within=15 * pace())
    before = [h2("enqueue", "echo", f"text={number}", "--delay", "9h")["id"] for number in range(5)]
    equal(devices, within=10 * pace())
    h2.kill(signal.SIGTERM)
    shutil.rmtree(h2.home)
    shutil.copytree(tmp_path / "old", h2.home)
    after = [h2("enqueue", "echo", f"text={number}", "--delay", "9h")["id"] for number in range(5, 10)]
    h2("cancel", after[0])
    h2.run_node(None, "--no-work")
    linked(devices, within=15 * pace())
    equal(devices, within=15 * pace())
    assert {job["id"] for job in h1.jobs()} == {*before, *after}
    assert h1.job(after[0])["status"] == "cancelled"
    h2("cancel", before[0])
    until(lambda: h1.job(before[0])["status"] == "cancelled", within=10 * pace(), what="what it writes now counts")


@soak
def test_a_home_whose_database_was_deleted_gets_its_rows_back_and_its_new_ones_count(space: Space) -> None:
    """R05: the keys are left; its numbers begin again at one, where others know of many."""
    h1, h2 = devices = space(2)
    for device in devices:
        device.run_node(None, "--no-work")
    linked(devices, within=15 * pace())
    before = [h2("enqueue", "echo", f"text={number}", "--delay", "9h")["id"] for number in range(6)]
    h2("cancel", before[0])
    equal(devices, within=15 * pace())
    h2.kill(signal.SIGTERM)
    alone = [h2("enqueue", "echo", "text=lost", "--delay", "9h")["id"]]  # nobody else has it
    for file in h2.home.glob("replica.sqlite*"):
        file.unlink()
    h2("list", check=1)  # it says that the database is gone
    h2("init")
    assert h2.jobs() == []
    after = [h2("enqueue", "echo", f"text={number}", "--delay", "9h")["id"] for number in range(6, 9)]
    h2("pause", after[0])
    h2.run_node(None, "--no-work")
    linked(devices, within=15 * pace())
    equal(devices, within=20 * pace())
    assert {job["id"] for job in h1.jobs()} == {*before, *after}
    assert not {job["id"] for job in h1.jobs()} & {*alone}
    assert (h1.job(after[0])["status"], h2.job(before[0])["status"]) == ("paused", "cancelled")
    h2("cancel", before[1])
    h1("cancel", after[1])
    for device, job_id in ((h1, before[1]), (h2, after[1])):
        until(partial(is_cancelled, device, job_id), within=10 * pace(), what="what either writes now counts")
    equal(devices, within=15 * pace())


@soak
def test_two_devices_of_one_label_find_one_another_and_are_told_apart_by_their_keys(lan: Lan, tmp_path: Path) -> None:
    """N05: the host's name is the same as well; one is killed and back at once."""
    first, second = devices = [Device(lan.add(f"h{number}"), tmp_path / f"home{number}") for number in (1, 2)]
    first("init", "--label", "desk", "--space", "net")
    first.let_in(second, "desk")
    keys = [ready["device"] for ready in (first.run_node(None, "--no-work"), second.run_node())]
    assert keys[0] != keys[1]

    def meet() -> None:
        for device, other in zip(devices, reversed(keys), strict=True):
            until(partial(sees, device, other), within=20 * pace(), what=f"it is linked to {other[:8]}\n{networking(device)}")

    meet()
    work = "noted", f"note={tmp_path / 'note'}", "--wait", "--wait-timeout", "30"
    assert (first("enqueue", *work)["result"], second("enqueue", *work)["result"]) == ("home2", "home2")
    second.kill(signal.SIGKILL)
    assert second.run_node()["device"] == keys[1]
    meet()
    assert first("enqueue", *work)["result"] == "home2"
    first("devices", "rename", "desk", "attic", check=2)  # which of the two?
    first("devices", "rename", keys[1], "attic")
    for device in devices:
        until(lambda device=device: device.online() == {"desk", "attic"}, within=15 * pace(), what="one has a new name")  # type: ignore[misc]
    equal(devices, within=15 * pace())


def is_cancelled(device: Device, job_id: str) -> bool:
    return bool(device.job(job_id)["status"] == "cancelled")


def sees(device: Device, key: str) -> bool:
    """Says whether a node is linked to the device of that key."""
    return key in {each["device"] for each in networking(device)["peers"]}
