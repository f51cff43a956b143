"""What becomes of a file of which a part rots on a disk, with a good copy elsewhere and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tests.net.conftest import Space
from tests.net.device import Device, pace, until
from tests.net.meeting import MB, ended, linked, random_file

SIZE = 12 * MB

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
soak = pytest.mark.soak  # three nodes each, and not run often enough beside other work to stand in CI


def rot(device: Device) -> str:
    """Flips one bit in the middle of the largest shard that a device keeps; gives its address."""
    shards = [path for path in device.home.rglob("*") if path.is_file() and len(path.name) == 64]
    path = max(shards, key=lambda each: (each.stat().st_size, each.name))
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        kept = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([kept[0] ^ 1]))
    return path.name


def keep(device: Device, path: Path, *more: str) -> str:
    """Enqueues a job with a file of which the device keeps a copy of its own."""
    job: dict[str, Any] = device("enqueue", "sha", "-f", f"data={path}", "--copy", *more)
    return str(job["id"])


def is_rotten(device: Device, address: str) -> bool:
    """Says whether a device still keeps what isn't the shard of that address under its name."""
    return any(blake3(path.read_bytes()).hexdigest() != address for path in device.home.rglob(address))


@soak
def test_a_job_whose_input_rotted_on_its_own_disk_gets_the_good_copy_of_another_device(space: Space, tmp_path: Path) -> None:
    """P11: no wrong byte is given to the handler, and no attempt is spent on the damage."""
    h1, h2 = devices = space(2)
    path = tmp_path / "large.bin"
    wanted = random_file(path, SIZE)
    keep(h2, path, "--delay", "9h")
    job_id = keep(h1, path)
    path.unlink()
    address = rot(h1)
    h2.run_node(None, "--no-work")
    until(lambda: h2("status")["node"]["network"]["online"], within=20 * pace(), what="h2 is there")
    h1.run_node()
    linked(devices, within=30 * pace())
    job = ended(h1, job_id, within=60 * pace())
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", wanted, "h1")
    assert {attempt["status"] for attempt in job["attempts"]} <= {"released", "succeeded"}
    assert not is_rotten(h1, address)


@soak
def test_a_damaged_shard_is_not_passed_on_while_another_device_has_a_good_one(space: Space, tmp_path: Path) -> None:
    """P11: the third device gets what is right, wherever from; the first offers its bad one no more."""
    h1, h2, h3 = devices = space(3)
    path = tmp_path / "large.bin"
    wanted = random_file(path, SIZE)
    keep(h2, path, "--delay", "9h")
    job_id = keep(h1, path)
    path.unlink()
    address = rot(h1)
    for device in (h1, h2):
        device.run_node(None, "--no-work")
    linked([h1, h2], within=30 * pace())
    h3.run_node()
    linked(devices, within=30 * pace())
    job = ended(h3, job_id, within=60 * pace())
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", wanted, "h3")
    assert {attempt["status"] for attempt in job["attempts"]} <= {"released", "succeeded"}
    if "was damaged on this disk" in h1.words():  # h1 was asked for it
        assert not is_rotten(h1, address)


@soak
def test_a_file_without_any_good_copy_lets_its_job_wait_in_words_until_one_is_there(space: Space, tmp_path: Path) -> None:
    """P11: the job says which shard is missing, fails never, and runs once a good copy comes."""
    h1, h2, h3 = devices = space(3)
    path = tmp_path / "large.bin"
    wanted = random_file(path, SIZE)
    keep(h3, path, "--delay", "9h")
    job_id = keep(h1, path)
    path.unlink()
    address = rot(h1)
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked([h1, h2], within=30 * pace())
    until(lambda: address[:12] in (h2.job(job_id)["why"] or ""), within=60 * pace(), what=f"why tells the shard: {h2.job(job_id)}")
    assert h1.job(job_id)["status"] in ("queued", "running")
    assert not is_rotten(h1, address)
    h3.run_node(None, "--no-work")
    linked(devices, within=30 * pace())
    job = ended(h2, job_id, within=90 * pace())
    assert (job["status"], job["result"]) == ("succeeded", wanted)
    assert {attempt["status"] for attempt in job["attempts"]} <= {"released", "succeeded"}
