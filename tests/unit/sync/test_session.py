"""One side of a session, fed by hand: what it sends, when, and what it believes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from p2pqueue.replica.spans import Spans
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.syncing.effects import (
    DropEnded,
    Effect,
    Merge,
    MoveHeads,
    Observe,
    Observed,
    Page,
    ReadEnded,
    ReadRows,
    ReadState,
    ReadUnsent,
    Recheck,
    Report,
    RowPage,
    Send,
    State,
    Taken,
)
from p2pqueue.replica.syncing.messages import (
    MAX_BYTES,
    MAX_WRITES,
    Ack,
    Again,
    Done,
    Ended,
    Heads,
    Refusal,
    Refused,
    RoundId,
    RowId,
    Rows,
    Writes,
    write_size,
)
from p2pqueue.replica.syncing.offering import RELAY_DELAY, WINDOW
from p2pqueue.replica.syncing.sync import Session
from p2pqueue.replica.syncing.taking import FIRST_BATCH, HEADS_EVERY, MAX_BATCH, MAX_QUEUE, TOLD_AFTER, YOUNG
from p2pqueue.replica.wire.columns import WellFormed
from p2pqueue.replica.wire.cutting import cut
from p2pqueue.replica.write import Head, Write

OURS, THEIRS = b"o" * 16, b"t" * 16
PEER = b"peersess"
Of = TypeVar("Of")


def some(effects: Iterable[Effect], kind: Any) -> list[Any]:
    """The requests of a kind, or the messages of one that are sent."""
    found = [effect.message if isinstance(effect, Send) else effect for effect in effects]
    return [each for each in found if isinstance(each, kind)]


def only(effects: Iterable[Effect], kind: type[Of]) -> Of:
    found: list[Of] = some(effects, kind)
    assert len(found) == 1, found
    return found[0]


def write(seq: int, author: bytes = OURS, size: int = 1) -> Write:
    return Write("jobs", f"k{seq}", "tune", Stamp(0, 0, 0, seq, author), seq, ("x" * size, 0))


def page(writes: Sequence[Write], rest: Any = "nothing", heads: Any = None, falls: int = 0) -> Page:
    heads = heads if heads is not None else {OURS: Head(max((each.seq for each in writes), default=0), b"tag")}
    return Page(tuple(cut(WellFormed(writes), max_writes=MAX_WRITES, max_bytes=MAX_BYTES)), rest, heads, falls)


class Side:
    """A session whose replica counts 10 of its own writes and none of the peer's."""

    def __init__(self, **how: Any) -> None:
        self.now = 100.0
        self.falls = 0
        self.held: dict[bytes, Spans] = {}
        self.reading = 0.0  # seconds that it takes to read what is counted and held
        self.session = Session(b"oursessi", jitter=lambda: 0.5, now=self.now, **how)
        self.log: list[Effect] = []
        self.feed(self.session.start(self.now))

    @property
    def round(self) -> RoundId:
        heads: list[Heads] = some(self.log, Heads)
        return heads[-1].round

    def feed(self, effects: list[Effect]) -> list[Effect]:
        """Answers what needs no thought, and gives everything that was wanted."""
        seen: list[Effect] = []
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            seen.append(effect)
            if isinstance(effect, ReadState):
                state = State(OURS, {OURS: Head(10, b"tag")}, dict(self.held), self.falls)
                self.now += self.reading
                queue += self.session.answered(effect, state, self.now)
            elif isinstance(effect, Observe):
                queue += self.session.answered(effect, Observed({OURS: Head(10, b"tag")}, False), self.now)
            elif isinstance(effect, ReadRows):
                queue += self.session.answered(effect, RowPage((), None), self.now)
        self.log += seen
        return seen

    def hear(self, message: Any) -> list[Effect]:
        return self.feed(self.session.received(message, self.now))

    def answer(self, request: Any, answer: Any) -> list[Effect]:
        return self.feed(self.session.answered(request, answer, self.now))

    def wait(self, seconds: float) -> list[Effect]:
        until, seen = self.now + seconds, []
        while self.session.due <= until:
            self.now = max(self.now, self.session.due)
            seen += self.feed(self.session.tick(self.now))
        self.now = until
        return seen

    def serve(self, number: int = 1, heads: Any = None, held: Any = None) -> list[Effect]:
        """The peer opens a round, or goes on with one."""
        return self.hear(Heads(RoundId(PEER, number), self.round, heads or {}, held or {}))

    def take(self, index: int, *writes: Write) -> Merge:
        """A message of writes of the open round arrives."""
        return only(self.hear(Writes(self.round, PEER, index, writes)), Merge)


# --- sending ---


def test_a_round_is_served_by_writes_and_then_done() -> None:
    side = Side()
    request = only(side.serve(), ReadUnsent)
    assert request.counted == {}
    effects = side.answer(request, page([write(2), write(1)]))
    assert [type(effect.message) for effect in effects if isinstance(effect, Send)] == [Writes, Done]
    assert only(effects, Done).count == 1
    assert only(effects, Done).heads == {OURS: Head(2, b"tag")}


def test_no_more_than_the_window_is_unacknowledged_and_done_comes_last() -> None:
    side = Side()
    effects = side.answer(only(side.serve(), ReadUnsent), page([write(seq, size=80_000) for seq in range(WINDOW + 4, 0, -1)]))
    sent = some(effects, Writes)
    assert [message.index for message in sent] == list(range(1, WINDOW + 1))
    assert not some(effects, Done)
    effects = side.hear(Ack(RoundId(PEER, 1), Spans([(1, 4)])))
    assert [message.index for message in some(effects, Writes)] == list(range(WINDOW + 1, WINDOW + 5))
    assert only(effects, Done).count == WINDOW + 4


def test_a_message_keeps_within_its_limits_unless_it_is_one_larger_write() -> None:
    side = Side()
    writes = [write(seq, size=200) for seq in range(1000, 600, -1)] + [write(500, size=150_000)] + [write(400)]
    effects = side.answer(only(side.serve(), ReadUnsent), page(writes))
    messages = some(effects, Writes)
    assert all(len(message.writes) <= MAX_WRITES for message in messages)
    assert all(sum(map(write_size, message.writes)) <= MAX_BYTES for message in messages if len(message.writes) > 1)
    assert [len(message.writes) for message in messages if write(500, size=150_000) in message.writes] == [1]


def test_nothing_is_done_while_more_is_left_or_may_not_be_relayed() -> None:
    side = Side(relays=False)
    request = only(side.serve(), ReadUnsent)
    assert request.own_only
    effects = side.answer(request, page([write(2)], "more"))
    assert not some(effects, Done)
    effects = side.answer(only(effects, ReadUnsent), page([], "not ours to relay"))
    assert not some(effects, Done | ReadUnsent)
    effects = side.serve(heads={THEIRS: Head(4, b"t")})  # the peer has got it from somebody else
    assert only(effects, ReadUnsent).counted == {THEIRS: 4}


def test_what_was_sent_or_heard_is_held_by_the_peer_until_its_next_round() -> None:
    side = Side()
    side.answer(only(side.serve(), ReadUnsent), page([write(2), write(1)], heads={}))
    side.take(1, write(7, THEIRS))
    request = only(side.feed(side.session.committed(side.now, local=True)), ReadUnsent)
    assert request.held == {OURS: ((1, 2),), THEIRS: ((7, 7),)}
    assert only(side.serve(2), ReadUnsent).held == {}


def test_an_own_commit_goes_out_at_once_and_a_received_one_after_a_while() -> None:
    side = Side()
    side.answer(only(side.serve(), ReadUnsent), page([]))
    assert some(side.feed(side.session.committed(side.now, local=True)), ReadUnsent)
    side = Side()
    side.answer(only(side.serve(), ReadUnsent), page([]))
    assert not some(side.feed(side.session.committed(side.now, local=False)), ReadUnsent)
    assert some(side.wait(RELAY_DELAY), ReadUnsent)


def test_a_head_of_ours_that_fell_ends_the_round_we_serve() -> None:
    side = Side()
    effects = side.answer(only(side.serve(), ReadUnsent), page([write(2)], "more", falls=3))
    effects = side.answer(only(effects, ReadUnsent), page([write(1)], falls=4))
    assert only(effects, Again).round == RoundId(PEER, 1)
    assert not some(effects, Done | Writes)
    assert not some(side.serve(1), ReadUnsent), "that round is over"
    assert some(side.serve(2), ReadUnsent)


def test_no_round_is_served_twice_even_if_another_session_was_served_in_between() -> None:
    side = Side()
    side.answer(only(side.serve(1), ReadUnsent), page([write(2)]))
    late = Heads(RoundId(b"latelate", 1), None, {})
    assert some(side.hear(late), ReadUnsent)
    assert not some(side.serve(1), ReadUnsent), "its indexes would mean two messages each"
    assert some(side.serve(2), ReadUnsent)


def test_heads_that_were_meant_for_an_earlier_session_are_ignored() -> None:
    side = Side()
    assert side.hear(Heads(RoundId(b"latelate", 1), RoundId(b"earlier.", 3), {})) == []


def test_a_refusal_ends_the_round_and_has_the_writes_checked_here() -> None:
    side = Side()
    request = only(side.serve(), ReadUnsent)
    refusal = Refusal(OURS, 5, "forged")
    effects = side.hear(Refused(RoundId(PEER, 1), (refusal,)))
    assert only(effects, Recheck).refusals == (refusal,)
    assert not some(side.answer(request, page([write(2)])), Writes | Done)


def test_rows_that_ended_are_told_behind_the_done() -> None:
    side = Side()
    request = only(side.serve(), ReadUnsent)
    row = RowId("jobs", "k", THEIRS, 3)
    assert not some(side.hear(Rows(RoundId(PEER, 1), (row,))), ReadEnded)
    effects = side.answer(request, page([write(2)]))
    effects = side.answer(only(effects, ReadUnsent), page([]))
    asked = only(effects, ReadEnded)
    effects = side.answer(asked, (row,))
    assert only(effects, Ended).rows == (row,)


def test_a_device_that_may_not_relay_calls_no_row_ended() -> None:
    side = Side(relays=False)
    request = only(side.serve(), ReadUnsent)
    side.hear(Rows(RoundId(PEER, 1), (RowId("jobs", "k", THEIRS, 3),)))
    effects = side.answer(only(side.answer(request, page([])), ReadUnsent), page([]))
    assert only(side.answer(only(effects, ReadEnded), (RowId("jobs", "k", THEIRS, 3),)), Ended).rows == ()


def test_what_was_dropped_by_another_session_is_told_unasked() -> None:
    side = Side()
    side.answer(only(side.serve(), ReadUnsent), page([write(2)]))
    row = RowId("jobs", "k", THEIRS, 3)
    effects = side.feed(side.session.dropped((row,), side.now))
    effects = side.answer(only(effects, ReadUnsent), page([]))
    effects = side.answer(only(effects, ReadEnded), (row,))
    assert only(effects, Ended) == Ended(RoundId(PEER, 1), (row,), unasked=True)


# --- receiving ---


def test_a_done_counts_when_all_its_writes_are_durable_in_any_order() -> None:
    side = Side()
    side.serve()
    done = Done(side.round, PEER, 2, {THEIRS: Head(9, b"t")})
    assert not some(side.hear(done), MoveHeads)
    second = side.take(2, write(9, THEIRS))
    effects = side.answer(second, Taken())
    assert only(effects, Ack).indexes == Spans([(2, 2)])
    assert not some(effects, MoveHeads)
    effects = side.answer(side.take(1, write(8, THEIRS)), Taken())
    assert only(effects, MoveHeads).heads == done.heads


def test_a_done_of_an_earlier_round_or_of_another_session_counts_for_nothing() -> None:
    side = Side()
    side.serve()
    old = side.round
    side.hear(Again(old))
    assert side.round.number == old.number + 1
    assert not some(side.hear(Done(old, PEER, 0, {THEIRS: Head(9, b"t")})), MoveHeads)
    assert some(side.hear(Done(side.round, PEER, 0, {THEIRS: Head(9, b"t")})), MoveHeads)
    assert not some(side.hear(Done(side.round, b"elsewise", 0, {THEIRS: Head(11, b"t")})), MoveHeads)


def test_after_a_refusal_no_done_counts_until_another_round() -> None:
    side = Side()
    side.serve()
    refusal = Refusal(THEIRS, 8, "forged")
    merge = side.take(1, write(8, THEIRS))
    effects = side.answer(merge, Taken(refusals=(refusal,)))
    assert only(effects, Refused).refusals == (refusal,)
    assert not some(effects, Ack)
    assert not some(side.hear(Done(side.round, PEER, 1, {THEIRS: Head(9, b"t")})), MoveHeads)
    before = side.round
    side.wait(HEADS_EVERY)
    assert side.round.number > before.number


def test_what_makes_this_node_fail_is_reported_and_counts_as_taken() -> None:
    side = Side()
    side.serve()
    effects = side.answer(side.take(1, write(8, THEIRS)), Taken(set_aside=(Refusal(THEIRS, 8, "no such column"),)))
    assert only(effects, Report).kind == "set aside"
    assert some(effects, Ack)


def test_a_head_that_fell_before_the_done_could_count_opens_another_round() -> None:
    side = Side()
    side.serve()
    effects = side.hear(Done(side.round, PEER, 0, {THEIRS: Head(9, b"t")}))
    before = side.round
    side.falls += 1
    side.answer(only(effects, MoveHeads), None)
    assert side.round.number == before.number + 1


def test_a_signature_that_does_not_hold_when_the_heads_should_move_refuses_the_round() -> None:
    side = Side()
    side.serve()
    effects = side.hear(Done(side.round, PEER, 0, {THEIRS: Head(9, b"t")}))
    effects = side.answer(only(effects, MoveHeads), (Refusal(THEIRS, 8, "its signature doesn't fit"),))
    assert some(effects, Refused)


def test_writes_that_arrive_while_others_merge_share_the_next_transaction() -> None:
    side = Side()
    side.serve()
    first = side.take(1, write(1, THEIRS))
    for index in range(2, 9):
        assert not some(side.hear(Writes(side.round, PEER, index, tuple(write(index * 200 + n, THEIRS) for n in range(200)))), Merge)
    assert len(only(side.answer(first, Taken()), Merge).writes) == FIRST_BATCH


def test_a_round_that_goes_on_merges_more_in_a_transaction() -> None:
    side = Side()
    side.serve()
    for index in range(1, YOUNG + 1):
        side.answer(side.take(index, write(index, THEIRS)), Taken())
    first = side.take(YOUNG + 1, write(YOUNG + 1, THEIRS))
    for index in range(YOUNG + 2, YOUNG + 24):
        side.hear(Writes(side.round, PEER, index, tuple(write(index * 200 + n, THEIRS) for n in range(200))))
    assert len(only(side.answer(first, Taken()), Merge).writes) == MAX_BATCH


def test_a_peer_that_ignores_the_window_is_reported_and_its_messages_dropped() -> None:
    side = Side()
    side.serve()
    for index in range(1, MAX_QUEUE + 4):
        effects = side.hear(Writes(side.round, PEER, index, (write(index, THEIRS),)))
    assert only(effects, Report).kind == "flood"


def test_a_lost_message_is_asked_for_again_even_while_others_keep_coming() -> None:
    side = Side()
    side.serve()
    first = side.round
    for index in range(2, 20):  # the first was lost
        side.answer(side.take(index, write(index, THEIRS)), Taken())
        side.hear(Done(side.round, PEER, index, {THEIRS: Head(index, b"t")}))
        side.wait(0.5)
        if side.round != first:
            return
    raise AssertionError("the round was never opened again")


def test_a_round_that_brings_writes_is_not_cut_by_the_next_heads() -> None:
    side = Side()
    side.serve()
    first = side.round
    for index in range(1, 20):
        side.answer(side.take(index, write(index, THEIRS)), Taken())
        side.wait(0.5)
    assert side.round == first


def test_what_takes_long_to_read_is_told_seldom_until_it_is_counted() -> None:
    side = Side()
    side.serve()
    merge = side.take(1, write(9, THEIRS))
    side.answer(merge, Taken())
    side.held, side.reading = {THEIRS: Spans([(9, 9)])}, 0.1
    side.wait(TOLD_AFTER)
    assert some(side.feed(side.session.committed(side.now, local=False)) + side.wait(TOLD_AFTER), Heads)
    assert not some(side.feed(side.session.committed(side.now, local=False)) + side.wait(TOLD_AFTER), ReadState)
    moving = only(side.hear(Done(side.round, PEER, 1, {THEIRS: Head(9, b"t")})), MoveHeads)
    side.held = {}
    assert some(side.answer(moving, ()) + side.wait(TOLD_AFTER), ReadState)


def test_a_peer_that_began_anew_gets_a_new_round() -> None:
    side = Side()
    side.serve()
    first = side.round
    side.hear(Heads(RoundId(b"anewanew", 1), None, {}))
    assert side.round.number == first.number + 1


def test_rows_that_ended_go_once_the_done_before_them_has_counted() -> None:
    side = Side()
    side.serve()
    merge = side.take(1, write(8, THEIRS))
    side.hear(Done(side.round, PEER, 1, {THEIRS: Head(9, b"t")}))
    row = RowId("jobs", "k", THEIRS, 3)
    assert not some(side.hear(Ended(side.round, (row,))), DropEnded)
    effects = side.answer(merge, Taken())
    assert not some(effects, DropEnded)
    assert only(side.answer(only(effects, MoveHeads), ()), DropEnded).rows == (row,)
