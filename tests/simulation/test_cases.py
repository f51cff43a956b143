"""What went wrong for others in replication does not go wrong here: R01, R03, R05, R06, R09, R11 and S05."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from p2pqueue.jobs.tables import JOBS, RUNS
from p2pqueue.replica.retention import prune
from p2pqueue.replica.syncing.messages import MAX_BYTES, MAX_WRITES, Message, Writes
from p2pqueue.replica.syncing.offering import WINDOW
from p2pqueue.replica.tables import Column, Register
from tests.simulation.device import EPOCH_MS, Device
from tests.simulation.stage import Stage, end, enqueue, tune

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
IN_2038 = 2_150_000_000_000 - EPOCH_MS
IN_2106 = 4_300_000_000_000 - EPOCH_MS


# --- R01: a writer whose clock is ahead ---


@pytest.mark.parametrize("ahead_ms", [9 * 60_000, 3 * HOUR_MS, IN_2038, IN_2106])
def test_a_clock_that_was_ahead_neither_holds_a_row_nor_locks_its_writer_out(ahead_ms: int) -> None:
    stage = Stage("ABC")
    stage.write("A", enqueue("k", "first"))
    for pair in ("AB", "BC"):
        stage.sync(*pair)
    stage["B"].offset_ms = ahead_ms
    stage.write("B", tune("k", "by the clock that is ahead"))
    stage["B"].offset_ms = 0
    stage.write("B", tune("k", "later, by the same writer"))
    assert stage.title("B", "k") == "later, by the same writer"
    for pair in ("AB", "BC"):
        stage.sync(*pair)
    stage.write("A", tune("k", "after seeing both"))
    for pair in ("AB", "BC", "AC"):
        stage.sync(*pair)
    assert {stage.title(name, "k") for name in "ABC"} == {"after seeing both"}
    assert stage.are_equal("A", "B", "C")


# --- R03: one identity on two machines ---


def test_a_clone_is_seen_and_neither_copy_loses_anything() -> None:
    stage = Stage("AB", digest_every=10.0)
    stage.write("A", enqueue("before"))
    stage.sync("A", "B")
    twin = Device("A'", lambda: stage.world.schedule.now, 1)
    twin.image = stage.replica("A").image()
    twin.start()
    stage.world.devices.append(twin)
    for name in ("A", "A'", "B"):
        stage.write(name, enqueue(f"of {name}"))
        stage.write(name, tune("before", f"by {name}"))
    stage.link("A", "B")
    stage.link("A'", "B")
    stage.run(60.0)
    assert any(report.kind == "fork" for _, report in stage.world.reports)
    assert stage.replica("A").author != stage.replica("A'").author
    closed = {bytes.fromhex(key) for (key,) in stage.replica("B").connection.execute("SELECT key FROM changes WHERE register = 'closed'")}
    assert not closed & {stage.replica(name).author for name in ("A", "A'", "B")}
    stage.write("A", enqueue("afterwards, of A"))
    stage.write("A'", enqueue("afterwards, of A'"))
    stage.run(60.0)
    for name in ("A", "A'", "B"):
        for job in ("before", "of A", "of A'", "of B", "afterwards, of A", "afterwards, of A'"):
            assert stage.job(name, job) is not None, (name, job)
    assert stage.are_equal("A", "A'", "B")
    query = "SELECT author, seq, tbl, key, register FROM changes"
    numbers = {row for name in ("A", "A'", "B") for row in stage.replica(name).connection.execute(query)}
    assert len(numbers) == len({row[:2] for row in numbers}), "two different writes share an author and a number"


# --- R05: a replica that was reset, or restored from yesterday ---


@pytest.mark.parametrize("loss", ["the disk is empty", "yesterday's copy", "yesterday's copy, unseen"])
def test_what_a_reset_replica_writes_wins_over_what_it_wrote_before(loss: str) -> None:
    stage = Stage("AB", digest_every=10.0)
    for number in range(5):
        stage.write("A", enqueue(f"job {number}", "at first"))
    yesterday = stage.replica("A").image()
    for number in range(5):
        stage.write("A", tune(f"job {number}", "changed and synced"))
    stage.sync("A", "B")
    for number in range(5):
        stage.write("A", tune(f"job {number}", "changed, then lost with the disk"))
    if loss == "the disk is empty":
        stage["A"].stop()
        stage["A"].image = None
        stage["A"].start()
    else:
        stage.put_back("A", yesterday, seen="unseen" not in loss)
    stage.write("A", enqueue("new"))
    stage.write("A", tune("job 0", "after the reset"))
    stage.sync("A", "B", seconds=40.0)
    assert stage.title("A", "job 0") == stage.title("B", "job 0") == "after the reset"
    assert {stage.title(name, f"job {number}") for name in "AB" for number in (1, 2, 3, 4)} == {"changed and synced"}
    assert stage.job("B", "new") is not None
    assert stage.are_equal("A", "B")


# --- R06: a purged row and a device that was offline ---


def test_a_job_that_was_deleted_and_purged_stays_so_when_an_offline_device_updates_it() -> None:
    stage = Stage("ABC")
    (key,) = stage.write("A", lambda writer: [writer.new_id()])
    stage.write("A", enqueue(key, "to be deleted"))
    for pair in ("AB", "AC"):
        stage.sync(*pair)
    stage.write("A", lambda writer: writer.delete("jobs", key))
    stage.sync("A", "B")
    for device in stage.world.devices:
        device.offset_ms += 9 * DAY_MS
    for name in "AB":
        stage.write(name, lambda writer: prune(writer, "jobs", 7 * DAY_MS, writer.now))
        assert stage.job(name, key) is None
    stage.write("C", lambda writer: writer.put("jobs", key, "beat", {"progress": 0.5, "worker_id": writer.device_id}))
    stage.sync("C", "B")
    assert stage.job("C", key) is None
    stage.sync("A", "B")
    for name in "ABC":
        row = stage.job(name, key)
        assert row is None or row["status"] is None, f"{name} would run it again"


# --- R09: a change that comes through another device ---


def test_equal_clocks_and_a_relay_settle_as_a_meeting_does() -> None:
    stage = Stage("ABC")
    for name in "ABC":
        stage[name].clock = lambda: 0.0  # frozen, and equal
    stage.write("B", lambda writer: [enqueue(f"job {number}")(writer) for number in range(20)])
    for pair in ("AB", "BC"):
        stage.sync(*pair)
    for number in range(20):
        for name in "AC":
            stage.write(name, tune(f"job {number}", f"by {name}"))
    for pair in ("AB", "BC", "AB"):
        stage.sync(*pair)
    relayed = {name: [stage.title(name, f"job {number}") for number in range(20)] for name in "ABC"}
    assert relayed["A"] == relayed["B"] == relayed["C"]
    stage.sync("A", "C")
    assert [stage.title("A", f"job {number}") for number in range(20)] == relayed["A"]
    assert stage.are_equal("A", "B", "C")


# --- R11: a backlog made mostly of dead rows ---


class Traffic:
    """Counts what is sent to a device, and what was waiting to be acknowledged at most."""

    def __init__(self, stage: Stage, to: str) -> None:
        self.writes = 0
        self.messages: list[Writes] = []
        stage.losing(lambda sender, receiver, message: self.see(receiver, message) if receiver.name == to else False)

    def see(self, receiver: Device, message: Message) -> bool:
        if isinstance(message, Writes):
            self.writes += len(message.writes)
            self.messages.append(message)
        return False


def dead_backlog(stage: Stage, dead: int, live: int) -> None:
    """Jobs that were enqueued, ended and deleted, then some that wait."""

    def fn(writer: Any) -> None:
        for number in range(dead):
            enqueue(f"dead {number}")(writer)
            end(f"dead {number}")(writer)
            writer.delete("jobs", f"dead {number}")

    stage.write("A", fn)
    for number in range(live):
        stage.write("A", enqueue(f"live {number}"))


def test_live_rows_come_before_a_dead_history_and_a_cut_costs_little() -> None:
    stage = Stage("AB")
    dead_backlog(stage, 1500, 50)
    total = len(stage.replica("A").live_writes(above={}, limit=100_000))
    traffic = Traffic(stage, "B")
    link = stage.link("A", "B")
    query = "SELECT count(*) FROM jobs WHERE live = 1 AND id LIKE 'live%'"
    while stage.replica("B").connection.execute(query).fetchone() != (50,):
        stage.run(0.005)
        assert stage.world.schedule.now < 5.0
    merged = len(stage.replica("B").live_writes(above={}, limit=100_000))
    assert merged < total / 2, "the live ones waited for the history"
    link.close()
    stage.sync("A", "B", seconds=20.0)
    assert stage.are_equal("A", "B")
    assert traffic.writes <= total + 2 * WINDOW * MAX_WRITES
    assert all(sum(len(write.body or b"") for write in message.writes) <= MAX_BYTES for message in traffic.messages)


def test_after_retention_a_dead_history_costs_nothing() -> None:
    stage = Stage("AB")
    dead_backlog(stage, 600, 20)
    stage["A"].offset_ms += 8 * DAY_MS
    for _ in range(2):
        stage.write("A", lambda writer: prune(writer, "jobs", 7 * DAY_MS, writer.now))
    traffic = Traffic(stage, "B")
    stage.sync("A", "B")
    assert traffic.writes < 40
    (arrived,) = stage.replica("B").connection.execute("SELECT count(*) FROM jobs").fetchone()
    assert arrived == 20


# --- S05: mixed versions ---

NOTE = Register("note", (Column("note", "TEXT"), Column("stars", "INTEGER")))
NEWER = (replace(JOBS, registers=(*JOBS.registers, NOTE)), RUNS)


def test_an_older_version_between_newer_ones_strips_nothing_and_catches_up_after_its_upgrade() -> None:
    stage = Stage("AOC")  # O is the older one
    for name in "AC":
        stage[name].stop()
        stage[name].tables = NEWER
        stage[name].start()
    stage.write("A", enqueue("k", "known"))
    stage.write("A", lambda writer: writer.put("jobs", "k", "note", {"note": "new in this version", "stars": 5}))
    stage.sync("A", "O")
    assert stage.title("O", "k") == "known"
    stage.write("O", tune("k", "by the older one"))
    stage.sync("O", "C")
    row = stage.job("C", "k")
    assert row is not None
    assert (row["title"], row["note"], row["stars"]) == ("by the older one", "new in this version", 5)
    stage["O"].stop()
    stage["O"].tables = NEWER
    stage["O"].start()
    row = stage.job("O", "k")
    assert row is not None
    assert (row["note"], row["stars"]) == ("new in this version", 5)
    stage.sync("O", "A")
    for one, two in combinations("AOC", 2):
        stage.sync(one, two)
    assert stage.are_equal("A", "O", "C")
