"""Rows that nobody can have made before: ids, signed bodies and counters come out as they do one by one."""

from __future__ import annotations

import uuid

import pytest
from nacl.signing import VerifyKey

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.signatures.hand import fast_signer
from p2pqueue.replica.signatures.hashtree import SIGNATURE_SIZE, Trees
from p2pqueue.replica.writer import Writer
from tests.unit.replica.kit import CLIPS, NOW, Space, clip, everything, open_replica


def test_rows_made_together_are_signed_together_and_hold_each_for_itself() -> None:
    space = Space()
    device = space.device("here")
    with open_replica(device) as replica:
        ids = replica.write(lambda writer: writer.make("clips", "made", [("a", 1.0), ("b" * 5000, 2.5), (None, None)]))
        writes = {write.key: write for write in everything(replica) if write.table == "clips"}
    assert writes.keys() == set(ids)
    for write in writes.values():
        assert write.body == body_of("clips", write.key, "made", write.stamp, write.seq, write.values)
        assert write.signature is not None
        assert Trees().holds(device.public_key, write.body, write.signature)
    assert len({(write.signature or b"")[:SIGNATURE_SIZE] for write in writes.values()}) == 1


def test_a_row_made_alone_bears_a_plain_signature() -> None:
    device = Space().device("here")
    with open_replica(device) as replica:
        (key,) = replica.write(lambda writer: writer.make("clips", "made", [("a", 1.0)]))
        (write,) = [write for write in everything(replica) if write.key == key]
    assert VerifyKey(device.public_key).verify(write.body, write.signature) == write.body


def test_made_rows_are_read_counted_and_passed_on_like_any_other() -> None:
    space = Space()
    with space.replica("here") as here, space.replica("there") as there:
        (key, empty) = here.write(lambda writer: writer.make("clips", "made", [("clip", 2.0), ("none", None)]))
        there.merge(everything(here))
        for replica in (here, there):
            shown, other = clip(replica, key), clip(replica, empty)
            assert shown is not None
            assert (shown["name"], shown["length"], shown["status"]) == ("clip", 2.0, "new")
            assert other is not None
            assert other["length"] is None
            assert _counted(replica) == {"new": 2}


@pytest.mark.parametrize("first", [("a", 1.0), ("a", None), (None, 1.0)])
def test_a_row_shows_its_own_empty_columns_whatever_the_row_before_it_left_empty(first: tuple[str | None, float | None]) -> None:
    later: list[tuple[str | None, float | None]] = [("b", 2.0), ("c", None), (None, 3.0), (None, None)]
    with Space().replica() as replica:
        keys = [replica.write(lambda writer, row=row: writer.make("clips", "made", [row]))[0] for row in [first, *later]]  # type: ignore[misc]
        shown = [clip(replica, key) for key in keys]
    assert [(each["name"], each["length"]) for each in shown if each is not None] == [first, *later]


def test_made_ids_rise_from_transaction_to_transaction_and_carry_the_time() -> None:
    with Space().replica() as replica:
        ids = [key for _ in range(3) for key in replica.write(lambda writer: writer.make("clips", "made", [("x", 1.0)] * 100))]
    assert ids == sorted(set(ids))
    assert {uuid.UUID(each).version for each in ids} == {7}
    assert int(uuid.UUID(ids[0]).hex[:12], 16) == NOW


def test_rows_made_by_a_function_that_fails_are_undone_alone() -> None:
    def good(writer: Writer) -> str:
        return writer.make("clips", "made", [("good", 1.0)])[0]

    def bad(writer: Writer) -> None:
        writer.make("clips", "made", [("bad", 1.0)])
        raise LookupError("no")

    with Space().replica() as replica:
        first, failed, last = replica.write_many([good, bad, good])
        assert isinstance(failed.error, LookupError)
        assert {write.key for write in everything(replica) if write.table == "clips"} == {first.value, last.value}
        assert _counted(replica) == {"new": 2}


def test_making_no_rows_takes_no_number() -> None:
    with Space().replica() as replica:
        before = replica.heads()[replica.author]
        assert replica.write(lambda writer: writer.make("clips", "made", [])) == []
        assert replica.heads()[replica.author] == before


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 100_000])
def test_a_signature_is_the_same_for_every_size_of_body(size: int) -> None:
    device = Space().device("here")
    sign = fast_signer(device)
    body = bytes(range(256)) * (size // 256 + 1)
    assert sign(body[:size]) == device.sign(body[:size])
    assert sign(b"another") == device.sign(b"another")


def _counted(replica: Replica) -> dict[str, int]:
    query = "SELECT status, n FROM counts WHERE tbl = ? AND n <> 0"
    return dict(replica.read(lambda connection: connection.execute(query, (CLIPS.name,)).fetchall()))
