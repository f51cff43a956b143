"""A signed register takes no word of anybody who can't sign for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from p2pqueue.replica.replica import Replica
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.write import Head, Write
from tests.unit.replica.kit import (
    NOW,
    Device,
    Space,
    clip,
    everything,
    hlc,
    introductions,
    make_clip,
    open_replica,
    signed_write,
    sync,
    write_of,
)

MALLORY = b"\xff" * 16


class Stage:
    """An author, a receiver that knows the author's keys but nothing else, and a clip that the author made."""

    def __init__(self) -> None:
        self.space = Space()
        self.device = self.space.device("author")
        self.author = open_replica(self.device)
        self.receiver = self.space.replica("receiver")
        self.receiver.merge(introductions(self.author))
        self.key = self.author.write(lambda writer: make_clip(writer, "good"))
        self.good = next(write for write in everything(self.author) if write.key == self.key)

    def forged(self, **rest: object) -> Write:
        """A write in the author's name that somebody else signed, of an earlier time, which would win."""
        fields = {"key": self.key, "time": NOW - 1_000, **rest}
        return signed_write(self.space.device("mallory"), self.author.author, 900, "made", ("forged", 1.0), **fields)

    def name(self) -> str | None:
        row = clip(self.receiver, self.key)
        return None if row is None else row["name"]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.author.close()
    made.receiver.close()


def test_a_later_forged_write_never_erases_the_good_one(stage: Stage) -> None:
    stage.receiver.merge([stage.good])
    merged = stage.receiver.merge([stage.forged()])
    assert [(each.seq, each.lasting) for each in merged.refused] == [(900, True)]
    assert "signature" in merged.refused[0].reason
    assert stage.name() == "good"


def test_a_forged_first_write_is_found_later_and_outranks_nothing(stage: Stage) -> None:
    assert stage.receiver.merge([stage.forged()]).applied == 1
    assert not stage.receiver.is_verified("clips", stage.key, "made")
    stage.receiver.merge([stage.good])
    assert stage.name() == "good"
    assert stage.receiver.is_verified("clips", stage.key, "made") is False  # the good one is the first of its kind again
    assert stage.receiver.verify_pending() == ()
    assert stage.receiver.is_verified("clips", stage.key, "made")


@pytest.mark.parametrize("forged_first", [True, False])
def test_a_forged_write_that_comes_together_with_the_good_one_outranks_nothing(stage: Stage, forged_first: bool) -> None:
    forged = stage.forged()
    merged = stage.receiver.merge([forged, stage.good] if forged_first else [stage.good, forged])
    assert [(each.seq, each.lasting) for each in merged.refused] == [(900, True)]
    assert stage.name() == "good"
    assert stage.receiver.verify_pending() == ()
    assert stage.receiver.is_verified("clips", stage.key, "made")
    assert {write.values for write in everything(stage.receiver) if write.key == stage.key} == {stage.good.values}


def test_a_good_write_that_comes_together_with_another_good_one_is_checked_before_it_outranks_it(stage: Stage) -> None:
    earlier = signed_write(stage.device, stage.author.author, 901, "made", ("earlier", 1.0), key=stage.key, time=NOW - 1_000)
    assert stage.receiver.merge([earlier, stage.good]).refused == ()
    assert stage.name() == "earlier"
    assert stage.receiver.is_verified("clips", stage.key, "made")


def test_a_forged_write_is_taken_out_though_something_waits_there_that_cant_be_stored(stage: Stage) -> None:
    stage.receiver.merge([stage.forged()])
    stage.receiver.merge([write_of(MALLORY, 1, "life", ("no number",), key=stage.key, table="clips", generation=1 << 16)])
    assert [each.seq for each in stage.receiver.verify_pending()] == [900]
    assert stage.receiver.move_heads({stage.author.author: Head(900, b"tag")}) == ()


def test_a_forged_first_write_is_taken_out_by_the_background(stage: Stage) -> None:
    stage.receiver.merge([stage.forged()])
    refused = stage.receiver.verify_pending()
    assert [each.seq for each in refused] == [900]
    assert stage.name() is None
    assert stage.receiver.counts("clips") == {}
    assert stage.receiver.read(lambda c: c.execute("SELECT key, held FROM set_aside").fetchall()) == [(stage.key, 0)]


def test_an_unchecked_write_is_neither_held_nor_passed_on(stage: Stage) -> None:
    stage.receiver.merge([stage.good])
    numbers = stage.receiver.held()[stage.author.author]
    assert stage.good.seq not in numbers
    assert stage.good not in everything(stage.receiver)
    stage.receiver.verify_pending()
    assert stage.good.seq in stage.receiver.held()[stage.author.author]
    assert stage.good in everything(stage.receiver)


def test_done_moves_no_head_over_a_write_that_does_not_hold(stage: Stage) -> None:
    stage.receiver.merge([stage.forged()])
    refused = stage.receiver.move_heads({stage.author.author: Head(900, b"tag")})
    assert refused is not None
    assert [each.seq for each in refused] == [900]
    assert stage.author.author not in stage.receiver.heads()
    assert stage.receiver.move_heads({stage.author.author: Head(900, b"tag")}) == ()


def test_done_verifies_what_was_left_for_later(stage: Stage) -> None:
    stage.receiver.merge([stage.good])
    assert stage.receiver.move_heads(stage.author.heads()) == ()
    assert stage.receiver.is_verified("clips", stage.key, "made")
    assert stage.receiver.unverified() == 0


def test_a_forged_higher_life_ends_no_earlier_one(stage: Stage) -> None:
    stage.receiver.merge([stage.good])
    stage.receiver.write(lambda writer: writer.put("clips", stage.key, "title", {"title": "mine"}))
    assert stage.receiver.merge([stage.forged(generation=1 << 16)]).refused
    row = clip(stage.receiver, stage.key)
    assert row is not None
    assert (row["name"], row["title"]) == ("good", "mine")


def test_a_write_without_signature_is_refused(stage: Stage) -> None:
    merged = stage.receiver.merge([stage.good._replace(body=None, signature=None)])
    assert "bears no signature" in merged.refused[0].reason
    assert stage.name() is None


@pytest.mark.parametrize("change", [{"values": ("other", 2.0)}, {"key": "other"}, {"seq": 77}, {"register": "other"}])
def test_a_write_that_says_something_else_than_its_signed_body_is_refused(stage: Stage, change: dict[str, object]) -> None:
    merged = stage.receiver.merge([stage.good._replace(**change)])  # type: ignore[arg-type]
    assert "says something else" in merged.refused[0].reason


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x93", b"\x81\x01", b"\x90" * 3, b"\xdd\xff\xff\xff\xff"])
def test_a_body_that_is_no_body_is_refused(stage: Stage, body: bytes) -> None:
    merged = stage.receiver.merge([stage.good._replace(body=body)])
    assert len(merged.refused) == 1
    assert stage.name() is None


def test_body_and_signature_are_passed_on_byte_for_byte(stage: Stage) -> None:
    with stage.space.replica("last") as last:
        sync(stage.author, stage.receiver)
        sync(stage.receiver, last)
        (found,) = [write for write in everything(last) if write.key == stage.key]
        assert (found.body, found.signature) == (stage.good.body, stage.good.signature)


def test_rows_signed_together_come_in_apart_and_are_passed_on(stage: Stage) -> None:
    keys = stage.author.write(lambda writer: writer.make("clips", "made", [(f"clip {number}", 1.0) for number in range(5)]))
    sent = [write for write in everything(stage.author) if write.key in keys]
    for write in reversed(sent):
        assert stage.receiver.merge([write]).refused == ()
        assert stage.receiver.verify_pending() == ()
    assert [write for write in everything(stage.receiver) if write.key in keys] == sent


def test_a_row_that_bears_the_signature_of_its_neighbour_is_taken_out(stage: Stage) -> None:
    keys = stage.author.write(lambda writer: writer.make("clips", "made", [("one", 1.0), ("other", 2.0)]))
    one, other = (write for write in everything(stage.author) if write.key in keys)
    stage.receiver.merge([one, other._replace(signature=one.signature)])
    assert [each.seq for each in stage.receiver.verify_pending()] == [other.seq]
    assert clip(stage.receiver, one.key) is not None
    assert clip(stage.receiver, other.key) is None


def test_a_replacing_write_of_an_author_unknown_yet_waits_for_a_later_round() -> None:
    space = Space()
    with space.replica("one") as one, space.replica("two") as two, space.replica("receiver") as receiver:
        key = one.write(make_clip)
        sync(one, two)
        sync(one, receiver)
        two.write(lambda writer: make_clip(writer, "again", key=key, generation=1 << 16))
        again = [write for write in everything(two) if write.key == key]
        merged = receiver.merge(again)
        assert [each.lasting for each in merged.refused] == [False]
        assert receiver.merge([*again, *introductions(two)]).refused == ()


def test_a_certificate_of_another_space_is_refused() -> None:
    with Space().replica("here") as here, Space().replica("elsewhere") as elsewhere:
        merged = here.merge(everything(elsewhere))
        assert "cert" in {each.register for each in merged.refused}
        assert here.read(lambda c: c.execute("SELECT count(*) FROM devices WHERE public_key IS NOT NULL").fetchone()) == (1,)


def cert_of(device: Device, by: Device, author: bytes, **changes: object) -> Write:
    values = {"key": device.public_key, "role": "owner", "issuer": "x", "certificate": device.certificate, **changes}
    return signed_write(by, author, 1, "cert", tuple(values.values()), table="devices", key=device.device_id, first=False)


def test_a_certificate_comes_from_its_own_device_or_from_a_known_author() -> None:
    space = Space()
    device, other = space.device("new"), space.device("other")
    with space.replica() as replica:
        assert replica.merge([cert_of(device, device, MALLORY)]).refused == ()
        assert replica.merge([cert_of(space.device("third"), other, MALLORY)]).refused != ()
        assert replica.merge([cert_of(other, other, MALLORY, key=device.public_key)]).refused != ()
        assert replica.merge([cert_of(other, other, MALLORY, certificate=device.certificate)]).refused != ()
        assert replica.merge([cert_of(other, other, MALLORY, certificate=b"junk")]).refused != ()


def test_an_author_never_passes_to_another_device() -> None:
    space = Space()
    mallory = space.device("mallory")
    with space.replica() as victim, open_replica(mallory) as attacker, space.replica("receiver") as receiver:
        sync(victim, receiver)
        sync(attacker, receiver)
        author = victim.author
        row = signed_write(
            mallory, author, 500, "author", (mallory.device_id,), table="authors", key=author.hex(), first=False, time=NOW + 9_000_000
        )
        assert "another device" in receiver.merge([row]).refused[0].reason
        for_another = signed_write(mallory, MALLORY, 1, "author", (mallory.device_id,), table="authors", key=b"e".hex() * 16, first=False)
        receiver.merge([for_another])
        assert receiver.verify_pending() != ()


def test_a_signature_under_a_stamp_of_another_author_is_none(stage: Stage) -> None:
    stamp = stage.good.stamp._replace(author=stage.receiver.author, hlc=-hlc(NOW - 5))
    body = body_of("clips", stage.key, "made", stamp, 7_000, stage.good.values)
    stolen = Write("clips", stage.key, "made", stamp, 7_000, stage.good.values, body, stage.device.sign(body))
    stage.receiver.merge([stage.good])
    stage.receiver.verify_pending()
    merged = stage.receiver.merge([stolen])
    assert merged.forked  # a number of its own author that was never given here
    assert merged.refused
    assert stage.name() == "good"


def test_the_own_signed_writes_are_verified_from_the_start() -> None:
    with Space().replica() as replica:
        key = replica.write(make_clip)
        assert isinstance(replica, Replica)
        assert replica.is_verified("clips", key, "made")
        assert not replica.is_verified("clips", "no such key", "made")


def test_what_waited_for_a_row_that_does_not_hold_shows_in_the_one_that_does(stage: Stage) -> None:
    stage.author.write(lambda writer: make_clip(writer, "again", key=stage.key, generation=1 << 16))
    stage.author.write(lambda writer: writer.put("clips", stage.key, "title", {"title": "of the second life"}))
    sent = {write.register: write for write in everything(stage.author) if write.key == stage.key}
    stage.receiver.merge([stage.forged()])
    stage.receiver.merge([sent["title"]])
    waiting = clip(stage.receiver, stage.key)
    assert waiting is not None
    assert waiting["title"] is None
    stage.receiver.verify_pending()
    stage.receiver.merge([sent["made"]])
    row = clip(stage.receiver, stage.key)
    assert row is not None
    assert (row["name"], row["title"]) == ("again", "of the second life")
