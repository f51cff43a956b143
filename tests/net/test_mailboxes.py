"""Devices that only a mailbox tells of one another link directly: by addresses that lie there, and by signals where no TCP passes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.net.conftest import Space
from tests.net.device import PROGRAM, Device, pace, until
from tests.net.lan import Host, Lan
from tests.net.meeting import MB, ended, equal, linked, networking, random_file

pytestmark = [pytest.mark.root, pytest.mark.timeout(240)]

PORT = 7433  # where every device listens here


@pytest.fixture
def far(lan: Lan) -> Iterator[Lan]:
    """A second LAN, with no cable to the first; gone before that one."""
    with Lan() as made:
        yield made


def origin(host: Host, folder: Path) -> str:
    """Starts an origin on a host that is no device of the space; gives its URL."""
    nas = Device(host, folder / "nas")
    words = (*PROGRAM, "origin", "--listen", "0.0.0.0:7434", "--store", str(folder / "store"))
    process = host.start(*words, env=nas.environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return str(process.stdout.readline().strip()).replace("0.0.0.0", host.address)


def test_devices_of_two_subnets_that_know_one_origin_link_directly_and_hold_the_same(space: Space, far: Lan, tmp_path: Path) -> None:
    h1, h2 = devices = space(2)
    router = h1.host.lan.add("router")
    far.join(router, "10.78.0.1/24")
    h1.host.readdress("10.77.0.50/24")  # what the two know of one another since they were paired is not so any more
    h1.host.ip("route", "add", "default", "via", router.address)
    h2.host.move(far, "10.78.0.2/24", by="10.78.0.1")
    url = origin(router, tmp_path)
    for device in devices:
        device.environment |= {"P2PQUEUE_ORIGIN": url, "P2PQUEUE_LANES": "http,origin"}  # nobody builds a direct connection
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=60 * pace())
    assert {tuple(each["address"]) for each in networking(h2)["peers"]} == {("10.77.0.50", PORT)} or {
        tuple(each["address"]) for each in networking(h1)["peers"]
    } == {("10.78.0.2", PORT)}
    job = h1("enqueue", "echo", "text=over the hill")["id"]
    assert ended(h1, job, within=30 * pace())["worker_label"] == "h2"
    equal(devices, within=30 * pace())


def test_devices_between_which_no_tcp_passes_link_by_signals_in_the_mailbox_and_move_a_file(space: Space, tmp_path: Path) -> None:
    h1, h2 = devices = space(2)
    url = origin(h1.host.lan.add("nas"), tmp_path)
    for device in devices:
        device.host.block_tcp(PORT)
        device.environment |= {"P2PQUEUE_ORIGIN": url, "P2PQUEUE_LANES": "webrtc", "P2PQUEUE_LISTEN": f"0.0.0.0:{PORT}"}
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=90 * pace(), path="webrtc")
    assert {each["path"] for each in h1("status")["node"]["network"]["peers"]} == {"webrtc"}
    assert all(networking(device)["meeting"]["met"] for device in devices)
    wanted = random_file(tmp_path / "file.bin", 9 * MB)
    job_id = h1("enqueue", "sha", "-f", f"data={tmp_path / 'file.bin'}")["id"]
    job = ended(h1, job_id, within=60 * pace())
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", wanted, "h2")
    assert networking(h2)["carried"].get("webrtc", 0) >= 9 * MB
    equal(devices, within=30 * pace())
    assert until(lambda: not letters(tmp_path), within=30 * pace(), what="nothing of it is left lying")


def test_a_letter_that_was_replayed_or_changed_or_is_too_large_does_nothing_and_is_told_once(space: Space, tmp_path: Path) -> None:
    first, second = space(2)
    url = origin(first.host.lan.add("nas"), tmp_path)
    own = {each["id"]: each["self"] for each in first("devices")["devices"]}
    lower, higher = (first, second) if own[min(own)] else (second, first)
    for device in (lower, higher):
        device.host.block_tcp(PORT)
        device.environment |= {"P2PQUEUE_ORIGIN": url, "P2PQUEUE_LISTEN": f"0.0.0.0:{PORT}"}
        device.run_node(None, "--no-work")
    offer = until(lambda: [(path, path.read_bytes()) for path in offers(tmp_path)], within=90 * pace(), what="an offer lies there")[-1]
    linked([lower, higher], within=90 * pace())
    lower.kill()
    until(lambda: not networking(higher)["peers"], within=30 * pace(), what="the other is gone")
    path, content = offer
    replayed, altered, oversized = path, path.with_name(f"{path.name[:-2]}00"), path.with_name(f"{path.name[:-2]}01")
    replayed.write_bytes(content)
    altered.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    oversized.write_bytes(content + bytes(100_000))
    words = ("refused: it was read before", "refused: mail that doesn't open", "refused: it has 1")
    for each in words:
        until(lambda each=each: each in higher.log.read_text(), within=90 * pace(), what=f"it says {each}")  # type: ignore[misc]
    looked = networking(higher)["mailbox"]["looked"]
    until(lambda: networking(higher)["mailbox"]["looked"] < looked, within=90 * pace(), what="it looks again")
    assert [higher.log.read_text().count(each) for each in words] == [1, 1, 1]
    assert not [each for each in letters(tmp_path) if each.name.startswith("a-")]
    assert not networking(higher)["mailbox"]["trouble"]
    lower.run_node(None, "--no-work")
    linked([lower, higher], within=120 * pace(), path="webrtc")
    assert networking(higher)["meeting"]["met"] >= 2


def offers(folder: Path) -> list[Path]:
    return [path for path in letters(folder) if path.name.startswith("o-")]


def letters(folder: Path) -> list[Path]:
    """The offers and answers that lie in the mailbox."""
    return [path for path in (folder / "store" / "mail").glob("*/*/*") if path.name[:2] in ("o-", "a-")]
