"""What goes wrong at a peer, on the way or at the disk costs that session some time and nothing else."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from p2pqueue.errors import DiskFull
from p2pqueue.peers import conversation
from p2pqueue.peers.disk import Disk
from p2pqueue.replica.syncing.effects import Answer, Merge, ReadUnsent, Request
from p2pqueue.replica.syncing.peering import NOT_RELAYED, Peering
from tests.integration.peers.lan import Device, Lan

RUBBISH = {
    "noise": b"\xc1\xff\x00rubbish",
    "nothing": b"",
    "no map": msgpack.packb([1, 2, 3]),
    "no kind": msgpack.packb({"a": 1}),
    "writes without a round": msgpack.packb({"k": "writes", "w": []}),
    "a number too large": msgpack.packb({"k": "done", "r": [b"x" * 8, 1], "s": b"x" * 8, "c": 1, "h": [[b"a" * 16, 1 << 63, b""]]}),
    "a message beyond the limit": msgpack.packb({"k": "again", "r": [b"x" * 8, 1], "more": bytes(300_000)}),
    "nested without end": b"\x91" * 100_000,
}


@pytest.mark.parametrize("name", RUBBISH)
async def test_a_peer_that_sends_rubbish_is_dropped_in_words_and_nothing_else_happens(lan: Lan, name: str) -> None:
    here, there, other = [await lan.device(each) for each in ("here", "there", "other")]
    end = lan.link(here, there)
    lan.link(here, other)
    await lan.wait_until_equal(here, there, other)
    here.replication.received(end, RUBBISH[name])
    await here.wait(lambda: here.dropped)
    assert here.dropped[0].startswith("it sent rows that can't be read: ")
    assert here.replication.status().keys() == {other.identity.device_id}
    (job,) = await here.make()
    await other.wait_for_jobs(job)


async def test_a_kind_of_message_that_is_not_known_yet_is_ignored(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    end = lan.link(here, there)
    here.replication.received(end, msgpack.packb({"k": "of the future", "x": 1}))
    (job,) = await there.make()
    await here.wait_for_jobs(job)
    assert not here.dropped


async def test_a_worker_passes_nothing_on_that_others_wrote(lan: Lan) -> None:
    west, east = await lan.device("west"), await lan.device("east")
    middle = await lan.device("middle", role="worker")
    lan.link(west, middle)
    lan.link(middle, east)
    (job,), (own,) = await west.make(), await middle.make()
    await middle.wait_for_jobs(job)
    await east.wait_for_jobs(own)
    assert job not in await east.titles()
    assert not east.reports
    lan.link(west, east)
    await lan.wait_until_equal(west, east)
    assert (await east.titles()).keys() == {job, own}


async def test_what_a_worker_passes_on_nevertheless_is_refused_and_both_sides_say_so(lan: Lan) -> None:
    west, east = await lan.device("west"), await lan.device("east")
    middle = await lan.device("middle", role="worker")
    middle.replication._relays = True
    lan.link(west, middle)
    lan.link(middle, east)
    (job,), (own,) = await west.make(), await middle.make()
    await east.wait(lambda: any(report.kind == "refused" for report in east.reports))
    await middle.wait(lambda: any(report.kind == "refused there" for report in middle.reports))
    assert NOT_RELAYED in next(report.detail for report in east.reports if report.kind == "refused")
    await east.wait_for_jobs(own)
    assert job not in await east.titles()


async def test_a_write_whose_signature_does_not_hold_is_refused_and_made_anew_by_its_author(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    (job,) = await here.make()
    await here.store.call(
        lambda replica: replica.connection.execute("UPDATE changes SET signature = zeroblob(64) WHERE register = 'spec'").rowcount
    )
    lan.link(here, there)
    await here.wait(lambda: any(report.kind == "refused there" for report in here.reports))
    await there.wait_for_jobs(job)
    await lan.wait_until_equal(here, there)
    assert any(report.kind == "refused" for report in there.reports)


@pytest.mark.parametrize("request_type", [Merge, ReadUnsent])
async def test_a_disk_that_is_full_for_a_while_only_makes_it_late(
    lan: Lan, monkeypatch: pytest.MonkeyPatch, request_type: type[Request]
) -> None:
    monkeypatch.setattr(conversation, "AGAIN_AFTER", 0.02)
    failures = _fail_at_first(monkeypatch, request_type, times=3, error=DiskFull("No space left"))
    here, there = await lan.device("here"), await lan.device("there")
    lan.link(here, there)
    jobs = await here.make(10)
    await there.wait_for_jobs(*jobs)
    await lan.wait_until_equal(here, there)
    assert not failures
    assert all(state["trouble"] is None for state in there.replication.status().values())


async def test_an_error_that_nobody_thought_of_ends_the_session_and_not_the_node(
    lan: Lan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(conversation, "AGAIN_AFTER", 0.02)
    failures = _fail_at_first(monkeypatch, Merge, times=2, error=KeyError("what"))
    here, there = await lan.device("here"), await lan.device("there")
    lan.link(here, there)
    jobs = await here.make(10)
    await there.wait_for_jobs(*jobs)
    assert not failures
    assert "met an error of its own" in caplog.text


async def test_a_device_whose_store_is_closed_leaves_the_others_in_peace(lan: Lan) -> None:
    here, there, other = [await lan.device(name) for name in ("here", "there", "other")]
    lan.link(here, there)
    lan.link(there, other)
    await here.store.close()
    (job,) = await there.make()
    await other.wait_for_jobs(job)


async def test_a_copy_of_a_home_goes_on_under_an_author_of_its_own(lan: Lan) -> None:
    original, witness = await lan.device("original"), await lan.device("witness")
    lan.link(original, witness)
    jobs = await original.make(5)
    await witness.wait_for_jobs(*jobs)
    await lan.wait_until_equal(original, witness)
    await lan.stop("original")
    copy = await lan.device("copy", copied_from="original")
    assert copy.store.replica.fork_reason is not None
    end = lan.link(copy, witness)
    of_copy = await copy.make(5, title="of the copy")
    await witness.wait_for_jobs(*of_copy)
    lan.cut(end)
    original = await lan.device("original")
    of_original = await original.make(5, title="of the original")
    end = lan.link(original, witness)
    await witness.wait_for_jobs(*of_original)
    await original.wait_for_jobs(*of_copy)
    await lan.wait_until_equal(original, witness)
    lan.cut(end)
    lan.link(copy, witness)
    await copy.wait_for_jobs(*of_original)
    await lan.wait_until_equal(copy, witness)
    assert len(await copy.titles()) == 15


async def test_a_database_that_was_put_back_from_a_backup_loses_nothing_and_forks(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    end = lan.link(here, there)
    jobs = await here.make(5, title="before")
    await there.wait_for_jobs(*jobs)
    await lan.wait_until_equal(here, there)
    await lan.stop("here")
    backup = here.home.replica_file.read_bytes()
    here = await lan.device("here")
    end = lan.link(here, there)
    lost = await here.make(5, title="after the backup")
    await there.wait_for_jobs(*lost)
    await lan.wait_until_equal(here, there)
    lan.cut(end)
    await lan.stop("here")
    _put_back(here, backup)
    here = await lan.device("here")
    assert here.store.replica.fork_reason is None, "nothing of the place gives it away: only a peer can"
    again = await here.make(5, title="written anew")
    lan.link(here, there)
    await there.wait_for_jobs(*again)
    await here.wait_for_jobs(*lost)
    await lan.wait_until_equal(here, there)
    assert here.store.replica.fork_reason is not None
    assert any(report.kind == "fork" for report in here.reports)


def _put_back(device: Device, backup: bytes) -> None:
    """Writes over the file, in its place; what SQLite keeps beside it goes."""
    with device.home.replica_file.open("r+b") as file:
        file.truncate(0)
        file.write(backup)
    for suffix in ("-wal", "-shm"):
        device.home.replica_file.with_name(device.home.replica_file.name + suffix).unlink(missing_ok=True)


def _fail_at_first(monkeypatch: pytest.MonkeyPatch, kind: Any, *, times: int, error: Exception) -> list[Exception]:
    """Makes requests of a kind fail; gives what failures are left."""
    failures = [error] * times
    real = Disk.answer

    async def answer(disk: Disk, peering: Peering, request: Request) -> Answer:
        if isinstance(request, kind) and failures:
            raise failures.pop()
        return await real(disk, peering, request)

    monkeypatch.setattr(Disk, "answer", answer)
    return failures
