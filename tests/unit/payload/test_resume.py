"""Whatever ends a fetch, the next one goes on with what is missing, and checks nothing again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.errors import DiskFull, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload.capability import parse_capability
from p2pqueue.payload.fetching import gathering, landing, opening, record, transfer
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.fetching.record import Record
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.seal import address_of
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content
from tests.unit.payload.peers import Peer

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from p2pqueue.home import Home
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.seal import address_of
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import SPACE_KEY
from tests.unit.payload.peers import Peer

here, there, capability, most = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
shelf, other = Shelf(Home(here), SPACE_KEY, quota=2**30, reserve=0), Shelf(Home(there), SPACE_KEY, quota=2**30, reserve=0)

def kill_at(done, size):
    if done >= most:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(Fetcher(shelf, lambda: [Peer(other, parallel=1)]).fetch(capability, on_progress=kill_at))
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shelf]:
    """The shelf of another device."""
    home = Home(tmp_path / "there")
    home.ensure()
    made = Shelf(home, SPACE_KEY, quota=1024 * MIB, reserve=0)
    yield made
    made.close()


def landings(shelf: Shelf) -> list[Path]:
    folder = shelf.home.path / "landings"
    return list(folder.iterdir()) if folder.exists() else []


class Cut(Peer):
    """Serves so many shards, and then none."""

    left = 0

    def get(self, address: bytes) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise SourceFailed("the cable was pulled")
        return super().get(address)


async def given_up(shelf: Shelf, there: Shelf, capability: str, shards: int) -> None:
    """Fetches as many shards of a file as that, its manifest counted in."""
    cut = Cut(there, "other")
    cut.left = shards
    with pytest.raises(PayloadUnavailable, match="the cable was pulled"):
        await Fetcher(shelf, lambda: [cut]).fetch(capability)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches that nobody can help are given up soon."""
    monkeypatch.setattr(transfer, "PATIENCE", 0.3)
    monkeypatch.setattr(transfer, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(gathering, "PATIENCE", 0.3)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
async def test_a_node_that_is_killed_at_sixty_percent_fetches_the_rest_alone(home: Home, there: Shelf, make_file: MakeFile) -> None:
    stored = there.ingest(make_file(40 * MIB))
    command = [sys.executable, "-c", KILLED, str(home.path), str(there.home.path), stored.capability, str(24 * MIB)]
    done = await asyncio.to_thread(subprocess.run, command, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -signal.SIGKILL
    shelf = Shelf(home, SPACE_KEY, quota=1024 * MIB, reserve=0)
    shelf.sweep_landings()  # as the node does at its start
    peer = Peer(there)
    fetched = await Fetcher(shelf, lambda: [peer]).fetch(stored.capability)
    assert sum(fetched.received.values()) <= 17 * MIB
    assert b"".join(shelf.open(stored.capability)) == content(40 * MIB)
    assert landings(shelf) == []
    shelf.close()


@pytest.mark.usefixtures("hasty")
async def test_another_source_goes_on_where_the_first_one_was_and_nothing_is_checked_again(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = there.ingest(make_file(20 * MIB))
    await given_up(shelf, there, stored.capability, 13)
    checked: list[bytes] = []

    def check(shard: bytes | memoryview) -> bytes:
        checked.append(address_of(shard))
        return checked[-1]

    monkeypatch.setattr(opening, "address_of", check)
    steps: list[int] = []
    second = Peer(there, "second", lane="http")
    await Fetcher(shelf, lambda: [second]).fetch(stored.capability, on_progress=lambda done, size: steps.append(done))
    assert steps[0] >= 12 * MIB
    assert second.asked == 1 + 8
    assert len(checked) == 8
    assert b"".join(shelf.open(stored.capability)) == content(20 * MIB)


@pytest.mark.usefixtures("hasty")
async def test_what_a_fetch_brought_that_was_given_up_outlives_a_power_cut(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = there.ingest(make_file(20 * MIB))
    await given_up(shelf, there, stored.capability, 1 + 14)
    monkeypatch.setattr(record, "_boot", lambda: b"another".ljust(36))
    peer = Peer(there)
    await Fetcher(shelf, lambda: [peer]).fetch(stored.capability)
    assert peer.asked == 1 + 6
    assert b"".join(shelf.open(stored.capability)) == content(20 * MIB)


def test_after_a_power_cut_what_was_forced_to_the_disk_counts_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "part", "wb") as part:
        first = Record(tmp_path / "have", 20, bytes(32))
        for chunk in (0, 9):
            first.mark(chunk)
        first.commit(part.fileno())
        first.mark(17)
        first.close()
    after_a_kill = Record(tmp_path / "have", 20, bytes(32))
    assert after_a_kill.here == bytes([1, 2, 2])
    after_a_kill.close()
    first = Record(tmp_path / "have", 20, bytes(32))
    first.mark(18)
    first.close()
    monkeypatch.setattr(record, "_boot", lambda: b"another".ljust(36))
    after_a_cut = Record(tmp_path / "have", 20, bytes(32))
    assert after_a_cut.here == bytes([1, 2, 0])
    after_a_cut.close()


def test_a_record_of_another_file_or_one_that_is_cut_short_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "have"

    def here(count: int, hashed: bytes) -> bytes:
        record = Record(path, count, hashed)
        record.close()
        return record.here

    first = Record(path, 20, bytes(32))
    first.mark(3)
    first.close()
    assert here(20, bytes(32)) == bytes([8, 0, 0])
    assert here(20, b"x" * 32) == bytes(3)
    assert here(20, bytes(32)) == bytes(3)
    first = Record(path, 20, bytes(32))
    first.mark(19)
    first.close()
    path.write_bytes(path.read_bytes()[:-1])
    assert here(20, bytes(32)) == bytes(3)


@pytest.mark.usefixtures("hasty")
async def test_a_disk_that_fills_up_is_told_and_what_was_written_stays(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = there.ingest(make_file(12 * MIB))
    write, written = landing._write_at, [0]

    def fill(descriptor: int, data: memoryview, offset: int) -> None:
        written[0] += 1
        if written[0] > 7:
            raise OSError(28, "No space left on device")
        write(descriptor, data, offset)

    monkeypatch.setattr(landing, "_write_at", fill)
    fetcher = Fetcher(shelf, lambda: [Peer(there)])
    with pytest.raises(DiskFull, match="No space left"):
        await fetcher.fetch(stored.capability)
    told = fetcher.transfers.of(parse_capability(stored.capability).address)
    assert told is not None
    assert "No space left" in (told.why or "")
    assert 5 * MIB <= told.verified <= 7 * MIB  # one more may have been on its way to the disk
    assert not shelf.holds(stored.capability)
    monkeypatch.setattr(landing, "_write_at", write)
    peer = Peer(there)
    await Fetcher(shelf, lambda: [peer]).fetch(stored.capability)
    assert peer.asked == 1 + 5
    assert b"".join(shelf.open(stored.capability)) == content(12 * MIB)


@pytest.mark.usefixtures("hasty")
async def test_where_others_fill_the_disk_in_mid_transfer_the_reserve_is_left_and_the_fetch_goes_on_later(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHECK_EVERY", 0.0)
    stored = there.ingest(make_file(12 * MIB))
    disk, free = shutil.disk_usage(shelf.home.path), [10**12]
    monkeypatch.setattr("p2pqueue.payload.store.shutil.disk_usage", lambda _: disk._replace(total=10**12, free=free[0]))

    class Slow(Peer):
        async def shard(self, address: bytes, size: int) -> bytes:
            await asyncio.sleep(0.05)
            if self.asked == 6:
                free[0] = 0
            return await super().shard(address, size)

    limited = Shelf(shelf.home, SPACE_KEY, quota=2**30, reserve=2**20)
    slow = Slow(there)
    with pytest.raises(DiskFull, match="stay reserved"):
        await Fetcher(limited, lambda: [slow]).fetch(stored.capability)
    assert slow.asked < 12
    free[0] = 10**12
    peer = Peer(there)
    await Fetcher(limited, lambda: [peer]).fetch(stored.capability)
    assert peer.asked <= 1 + 12 - 4
    assert b"".join(limited.open(stored.capability)) == content(12 * MIB)
    limited.close()


@pytest.mark.usefixtures("hasty")
async def test_a_half_done_file_goes_after_days_or_when_its_room_is_needed(
    shelf: Shelf, there: Shelf, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = there.ingest(make_file(6 * MIB)), there.ingest(make_file(6 * MIB, "second", 1))
    await given_up(shelf, there, first.capability, 4)
    (left,) = landings(shelf)
    assert shelf.sweep_landings() == 0
    check = shelf._store.check_disk

    def no_room(size: int, *, expected: int = 0) -> None:
        if left.exists():
            raise DiskFull("No space left")
        check(size, expected=expected)

    monkeypatch.setattr(shelf._store, "check_disk", no_room)
    with pytest.raises(DiskFull):  # it was fetched a moment ago
        await Fetcher(shelf, lambda: [Peer(there)]).fetch(second.capability)
    hour = time.time() - 3600
    os.utime(left, (hour, hour))
    await Fetcher(shelf, lambda: [Peer(there)]).fetch(second.capability)
    assert landings(shelf) == []
    await given_up(shelf, there, first.capability, 4)
    days = time.time() - 8 * 86_400
    os.utime(left, (days, days))
    assert shelf.sweep([]) >= 3 * MIB
    assert landings(shelf) == []


async def test_a_chunk_that_nobody_has_any_more_is_named_and_the_rest_is_kept(
    shelf: Shelf, there: Shelf, make_file: MakeFile, hasty: None
) -> None:
    stored = there.ingest(make_file(5 * MIB))
    gone = there.describe(stored.capability).chunk(3).address

    class Without(Peer):
        def get(self, address: bytes) -> bytes:
            if address == gone:
                raise ShardMissing
            return super().get(address)

    with pytest.raises(PayloadUnavailable, match=gone.hex()[:12]):
        await Fetcher(shelf, lambda: [Without(there)]).fetch(stored.capability)
    peer = Peer(there)
    await Fetcher(shelf, lambda: [peer]).fetch(stored.capability)
    assert peer.asked == 2
