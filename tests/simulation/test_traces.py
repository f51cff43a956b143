"""The traces that broke earlier versions of the rules, and the proof that each rule is what stops them.

Every trace is a function that plays it; one test plays it as things are, another with the rule taken out and
expects the harm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from p2pqueue.clock import tick
from p2pqueue.replica.merging import forks
from p2pqueue.replica.merging.batch import Batch
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.retention import prune
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.signatures.signing import Keyring
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing import offering, peering, taking
from p2pqueue.replica.syncing.effects import Effect, Page
from p2pqueue.replica.syncing.mending import Mending
from p2pqueue.replica.syncing.messages import Done, Heads, Writes
from p2pqueue.replica.syncing.sync import Session
from p2pqueue.replica.write import Write
from p2pqueue.replica.writer import Writer
from tests.simulation.invariants import Violation
from tests.simulation.stage import Stage, again, end, enqueue, tune

DAY_MS = 86_400_000


# --- lives ---


def a_key_is_made_again() -> Stage:
    stage = Stage("AB")
    stage.write("A", enqueue("k", "first life"))
    stage.sync("A", "B")
    stage["B"].offset_ms = 3 * 3_600_000  # an edit with a higher clock, of the life that is about to end
    stage.write("B", tune("k", "edit of the first life"))
    stage.write("A", end("k"))
    stage.write("A", again("k"))
    stage.write("A", tune("k", "second life"))
    stage.sync("A", "B")
    return stage


def test_a_key_that_is_made_again_shows_nothing_of_its_earlier_life() -> None:
    stage = a_key_is_made_again()
    for name in "AB":
        row = stage.job(name, "k")
        assert row is not None
        assert row["status"] == "queued"
        assert row["title"] == "second life"
    assert stage.are_equal("A", "B")


def test_without_lives_an_old_edit_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    rival, take = Batch.rival, Batch.take

    def lifeless(register: str, stamp: Stamp) -> Stamp:
        return stamp._replace(generation=stamp.generation & 0xFFFF) if register == "tune" else stamp

    monkeypatch.setattr(Batch, "_outlive", lambda *_: None)
    monkeypatch.setattr(Batch, "rival", lambda self, key, register, stamp: rival(self, key, register, lifeless(register, stamp)))
    monkeypatch.setattr(
        Batch,
        "take",
        lambda self, key, register, winner: take(self, key, register, winner._replace(stamp=lifeless(register, winner.stamp))),
    )
    stage = a_key_is_made_again()
    assert stage.title("B", "k") == "edit of the first life"


# --- forks ---


def an_old_copy_writes_on_unseen() -> Stage:
    """Backup, write, sync, restore, write again."""
    stage = Stage("AB")
    stage.write("A", enqueue("k", "before"))
    stage.sync("A", "B")
    copy = stage.replica("A").image()
    stage.write("A", tune("k", "after the backup"))
    stage.sync("A", "B")
    stage.put_back("A", copy, seen=False)
    stage.write("A", lambda writer: writer.put("jobs", "k", "hold", {"held": 1}))
    stage.sync("A", "B")
    return stage


def test_an_old_copy_that_writes_on_loses_nothing() -> None:
    stage = an_old_copy_writes_on_unseen()
    for name in "AB":
        row = stage.job(name, "k")
        assert row is not None
        assert (row["title"], row["held"]) == ("after the backup", 1)
    assert stage.are_equal("A", "B")


def without_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the author compares what its peers know with what it wrote, nor does a peer see an author twice."""
    compare = peering._compare

    def blind(*arguments: Any) -> Any:
        heads, author, _, acknowledged = compare(*arguments)
        return heads, author, None, acknowledged

    monkeypatch.setattr(peering, "_compare", blind)
    monkeypatch.setattr(peering, "_contradicted", lambda *_: None)
    monkeypatch.setattr(Mending, "compare", lambda *_: [])


def test_without_tags_both_sides_silently_lose_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    without_tags(monkeypatch)
    stage = an_old_copy_writes_on_unseen()
    with pytest.raises(Violation, match="equal heads"):
        stage.are_equal("A", "B")


def test_a_peer_that_sees_an_author_twice_has_what_differs_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = Mending.compare
    without_tags(monkeypatch)
    monkeypatch.setattr(Mending, "compare", compare)
    stage = an_old_copy_writes_on_unseen()
    assert {report.kind for _, report in stage.world.reports} >= {"twin", "digest"}
    assert stage.are_equal("A", "B")


def test_a_fork_is_seen_before_the_first_done_can_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = an_old_copy_writes_on_unseen()
    assert "fork" in [report.kind for name, report in stage.world.reports if name == "A"]

    def serve_at_once(self: Session, message: Heads, now: float) -> list[Effect]:
        self._offering.serve(message)
        return []

    monkeypatch.setattr(Session, "_heads", serve_at_once)  # as if heads were served before they are looked at
    stage = an_old_copy_writes_on_unseen()
    with pytest.raises(Violation, match="equal heads"):
        stage.are_equal("A", "B")


def an_old_copy_meets_a_peer_that_holds_its_numbers() -> Stage:
    """B holds A's next number without counting it; A's disk is rolled back and gives that number to something else."""
    stage = Stage("AB")
    stage.write("A", enqueue("k", "before"))
    stage.sync("A", "B")
    copy = stage.replica("A").image()
    stage.losing(lambda sender, receiver, message: isinstance(message, Done))
    stage.write("A", tune("k", "after the backup"))
    stage.sync("A", "B")
    stage.losing_nothing()
    stage.put_back("A", copy, seen=False)
    stage.write("A", lambda writer: writer.put("jobs", "k", "hold", {"held": 1}))
    stage.sync("A", "B")
    return stage


def test_a_held_number_of_another_timeline_is_seen_by_its_mark() -> None:
    stage = an_old_copy_meets_a_peer_that_holds_its_numbers()
    for name in "AB":
        row = stage.job(name, "k")
        assert row is not None
        assert (row["title"], row["held"]) == ("after the backup", 1)
    assert stage.are_equal("A", "B")


def test_without_marks_of_held_numbers_both_sides_silently_lose_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peering, "_marks", lambda *_: {})
    stage = an_old_copy_meets_a_peer_that_holds_its_numbers()
    with pytest.raises(Violation, match="equal heads"):
        stage.are_equal("A", "B")


def a_title_is_restored(*, behind_ms: int) -> Stage:
    """A writes a title, B edits it after seeing it; A's disk is an old copy that has the title and nothing acknowledged."""
    stage = Stage("ABC")
    stage["B"].offset_ms = -behind_ms
    stage.sync("A", "C")  # a peer that has acknowledged next to nothing
    stage.write("A", enqueue("k", "old"))
    copy = stage.replica("A").image()
    stage.sync("A", "B")
    stage.write("B", tune("k", "edited after seeing"))
    stage.put_back("A", copy, seen=True)
    stage.sync("A", "B")
    return stage


@pytest.mark.parametrize("behind_ms", [0, 60_000])
def test_a_restored_title_does_not_overwrite_an_edit_made_after_seeing_it(behind_ms: int) -> None:
    stage = a_title_is_restored(behind_ms=behind_ms)
    assert stage.title("A", "k") == stage.title("B", "k") == "edited after seeing"
    assert stage.are_equal("A", "B")


def test_with_a_fresh_time_a_restored_title_overwrites_the_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    issue = forks.issue

    def afresh(writer: Writer, write: Write, author: bytes, names: dict[str, str]) -> None:
        writer.hlc = tick(writer.hlc, writer.now)
        hlc = -writer.hlc if write.stamp.hlc < 0 else writer.hlc
        issue(writer, write._replace(stamp=write.stamp._replace(hlc=hlc)), author, names)

    monkeypatch.setattr(forks, "issue", afresh)
    assert a_title_is_restored(behind_ms=0).title("B", "k") == "old"


def test_with_one_added_to_the_counter_a_restored_title_may_overwrite_the_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit by a clock that is behind has exactly the next value: the author would decide between them."""
    issue = forks.issue

    def one_above(writer: Writer, write: Write, author: bytes, names: dict[str, str]) -> None:
        issue(writer, write._replace(stamp=write.stamp._replace(hlc=write.stamp.hlc + 1)), author, names)

    monkeypatch.setattr(forks, "issue", one_above)
    monkeypatch.setattr(forks, "author_above", lambda author, random: b"\xff" * 16)
    assert a_title_is_restored(behind_ms=60_000).title("B", "k") == "old"


# --- signatures ---


def a_forged_write_arrives() -> Stage:
    """A peer sends a spec that would replace the one that is here, under its author's name."""
    stage = Stage("AB")
    stage.write("A", enqueue("k", task="mine"))
    stage.sync("A", "B")
    (good,) = (write for write in stage.replica("A").live_writes(above={}) if write.register == "spec")
    stamp = good.stamp._replace(hlc=good.stamp.hlc + 1)  # earlier, so it would win
    values = tuple("evil" if value == "mine" else value for value in good.values)
    body = body_of("jobs", "k", "spec", stamp, 999, values)
    stage.replica("B").merge([good._replace(stamp=stamp, seq=999, values=values, body=body)])
    stage.replica("B").verify_pending()
    return stage


def test_a_forged_later_write_replaces_nothing() -> None:
    row = a_forged_write_arrives().job("B", "k")
    assert row is not None
    assert row["task"] == "mine"


def test_verified_after_it_merged_a_forged_write_erases_the_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    merge, problem = Replica.merge, Keyring.problem

    def merge_unchecked(self: Replica, writes: Any, **how: Any) -> Any:
        with pytest.MonkeyPatch.context() as during:
            during.setattr(Keyring, "problem", lambda *_: None)
            merged = merge(self, writes, **how)
        self.connection.execute("UPDATE changes SET verified = 0 WHERE seq = 999")
        return merged

    monkeypatch.setattr(Replica, "merge", merge_unchecked)
    row = a_forged_write_arrives().job("B", "k")
    assert Keyring.problem is problem
    assert row is None or row["task"] is None


# --- heads ---


def a_range_is_taken_from_one_that_has_overwritten_it() -> Stage:
    """A writes r; D overwrites it; B takes A's empty range from D, not the overwriting; D's disk dies."""
    stage = Stage("ABD")
    stage.write("A", enqueue("k", "of A"))
    stage.sync("A", "D")
    stage.write("D", tune("k", "of D"))
    stage.losing(lambda sender, receiver, message: sender.name == "D" and isinstance(message, Writes))
    stage.sync("D", "B")
    stage.losing_nothing()
    stage.destroy("D")
    stage.sync("A", "B")
    return stage


def test_a_head_moves_only_when_everything_of_the_round_is_here() -> None:
    stage = a_range_is_taken_from_one_that_has_overwritten_it()
    assert stage.title("B", "k") == "of A"
    assert stage.are_equal("A", "B")


def test_a_head_that_moves_by_a_range_that_was_sent_loses_the_write_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Any_(Spans):
        def covers(self, first: int, last: int) -> bool:
            return True

    monkeypatch.setattr(taking, "Spans", Any_)
    stage = a_range_is_taken_from_one_that_has_overwritten_it()
    assert stage.title("B", "k") is None


# --- refusals ---


def a_write_is_refused_in_an_open_session() -> tuple[Stage, bytes, int]:
    """A's second setting is damaged on its disk; A goes on committing in the same session."""
    stage = Stage("AB")
    author = stage.replica("A").author
    stage.write("A", lambda writer: writer.put("space", "limit", "setting", {"value": b"1"}))
    stage.link("A", "B")
    stage.run()
    stage.losing(lambda sender, receiver, message: sender.name == "A" and isinstance(message, Writes | Done))
    stage.write("A", lambda writer: writer.put("space", "limit", "setting", {"value": b"2"}))
    seq = stage.head("A", author)
    stage.replica("A").connection.execute("UPDATE changes SET signature = zeroblob(64) WHERE seq = ?", (seq,))
    stage.losing_nothing()
    for number in range(8):
        stage.write("A", enqueue(f"job {number}"))
        stage.run(1.0)
    return stage, author, seq


def test_no_done_of_an_open_session_passes_over_a_refused_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peering, "recheck", lambda *_: 0)  # the sender doesn't mend it, so it stays refused
    stage, author, seq = a_write_is_refused_in_an_open_session()
    assert stage.job("B", "job 7") is not None
    assert stage.head("B", author) < seq


def test_a_sender_mends_what_was_refused_and_is_its_own() -> None:
    stage, author, seq = a_write_is_refused_in_an_open_session()
    stage.run()
    assert stage.head("B", author) > seq
    assert stage.are_equal("A", "B")


def test_a_refusal_that_ends_no_round_is_passed_over_by_the_next_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peering, "recheck", lambda *_: 0)
    monkeypatch.setattr(taking.Taking, "_refuse", lambda self, refusals, now: [])
    stage, author, seq = a_write_is_refused_in_an_open_session()
    assert stage.head("B", author) > seq


# --- heads that fall ---


def a_head_falls_in_the_middle_of_a_round() -> Stage:
    """A's disk is rolled back to 5 and writes 6' and 7'; B, which knows 10, sends what lies above 7; A's head falls to 5."""
    stage = Stage("AB")
    stage.write("A", enqueue("of both"))
    stage.sync("A", "B")
    copy = stage.replica("A").image()
    for number in range(5):
        stage.write("A", enqueue(f"original {number}"))
    stage.sync("A", "B")
    stage.put_back("A", copy, seen=False)
    for number in range(2):
        stage.write("A", enqueue(f"rolled back {number}"))
    stage.sync("A", "B")
    return stage


def test_a_head_that_falls_ends_the_round() -> None:
    stage = a_head_falls_in_the_middle_of_a_round()
    for name in "AB":
        for job in ("of both", *(f"original {number}" for number in range(5)), "rolled back 0", "rolled back 1"):
            assert stage.job(name, job) is not None, (name, job)
    assert stage.are_equal("A", "B")


def test_a_done_from_before_the_fall_would_raise_it_over_what_was_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    move, compare = Replica.move_heads, peering._compare
    monkeypatch.setattr(Replica, "move_heads", lambda self, heads, falls=None: move(self, heads))
    # The fork is seen by the writes that come, after the round was opened.
    monkeypatch.setattr(peering, "_compare", lambda *arguments: (*compare(*arguments)[:2], None, 0))
    monkeypatch.setattr(peering, "_contradicted", lambda *_: None)
    monkeypatch.setattr(Mending, "compare", lambda *_: [])
    stage = a_head_falls_in_the_middle_of_a_round()
    assert stage.job("A", "original 0") is None
    with pytest.raises(Violation, match="equal heads"):
        stage.are_equal("A", "B")


# --- relays ---


def a_worker_takes_a_row_that_it_may_not_relay() -> tuple[Stage, bytes, int]:
    """W writes x, C overwrites it, W takes C's row and meets B."""
    stage = Stage("WCB", workers="W")
    stage.write("C", enqueue("k"))
    stage.sync("C", "W")
    stage.sync("C", "B")
    author = stage.replica("W").author
    stage.write("W", tune("k", "of W"))
    seq = stage.head("W", author)
    stage.sync("W", "C")
    stage.write("C", tune("k", "of C"))
    stage.sync("W", "C")
    stage.sync("W", "B")
    return stage, author, seq


def test_a_worker_calls_nothing_done_while_it_holds_what_it_may_not_relay() -> None:
    stage, author, seq = a_worker_takes_a_row_that_it_may_not_relay()
    assert stage.head("B", author) < seq
    stage.sync("C", "B")
    stage.sync("W", "B")
    assert stage.title("B", "k") == "of C"
    assert stage.are_equal("W", "B")


def test_if_it_did_the_receiver_would_count_a_write_and_hold_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    read = offering.Offering.read

    def all_is_sent(self: offering.Offering, request: Any, page: Page) -> Any:
        return read(self, request, replace(page, rest="nothing") if page.rest == "not ours to relay" else page)

    monkeypatch.setattr(offering.Offering, "read", all_is_sent)
    stage, author, seq = a_worker_takes_a_row_that_it_may_not_relay()
    assert stage.head("B", author) >= seq
    assert stage.title("B", "k") is None


# --- retention ---


def a_laptop_is_away_longer_than_retention() -> Stage:
    """L last saw a job queued; it succeeded elsewhere, and went after retention."""
    stage = Stage("ABL")
    stage.write("A", lambda writer: enqueue(writer.new_id())(writer))
    stage.sync("A", "L")
    (key,) = (key for (key,) in stage.replica("A").connection.execute("SELECT id FROM jobs"))
    stage.sync("A", "B")
    stage.write("B", end(key))
    stage.sync("A", "B")
    for device in stage.world.devices:
        device.offset_ms += 9 * DAY_MS
    for name in "AB":
        stage.write(name, lambda writer: prune(writer, "jobs", 7 * DAY_MS, writer.now))
    stage.sync("A", "L")
    return stage


def live_jobs(stage: Stage, name: str) -> int:
    (count,) = stage.replica(name).connection.execute("SELECT count(*) FROM jobs WHERE status = 'queued' AND live = 1").fetchone()
    return int(count)


def test_a_laptop_that_was_away_longer_than_retention_runs_nothing_again() -> None:
    stage = a_laptop_is_away_longer_than_retention()
    assert live_jobs(stage, "L") == 0
    assert stage.are_equal("A", "L")


def test_two_laptops_that_were_away_together_both_learn_what_ended() -> None:
    stage = Stage("ALM")
    stage.write("A", lambda writer: enqueue(writer.new_id())(writer))
    for pair in ("AL", "LM"):
        stage.sync(*pair)
    (key,) = (key for (key,) in stage.replica("A").connection.execute("SELECT id FROM jobs"))
    stage.write("A", end(key))
    for device in stage.world.devices:
        device.offset_ms += 9 * DAY_MS
    stage.write("A", lambda writer: prune(writer, "jobs", 7 * DAY_MS, writer.now))
    stage.link("L", "M")
    stage.run()
    assert live_jobs(stage, "M") == 1
    stage.link("A", "L")
    stage.run()
    assert (live_jobs(stage, "L"), live_jobs(stage, "M")) == (0, 0)


def test_if_it_did_not_ask_it_would_run_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking.Taking, "read_rows", lambda self, request, page, now: [])
    assert live_jobs(a_laptop_is_away_longer_than_retention(), "L") == 1
