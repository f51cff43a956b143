"""What lies in a mailbox does no harm, says when rows have ended, and stays small."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from blake3 import blake3

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.payload.origins.objects import Listed
from p2pqueue.peers.mail import outbox as mailbox_outbox
from p2pqueue.peers.mail.format import ABOUT_LIMIT, INDEX_LIMIT, Index, pack_index, pack_part, unpack_part
from p2pqueue.peers.mail.inbox import TRIES
from p2pqueue.peers.mail.tidying import ABANDONED, abandoned
from p2pqueue.replica.retention import prune_all
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.syncing.messages import Ack, RoundId, Writes
from p2pqueue.replica.wire.codec import encode
from p2pqueue.replica.write import Head
from tests.property.mail import Correspondent, Signer, World, images_of
from tests.simulation.device import Key

NAMES = ("one", "two", "three")
DAY = 86_400.0


@functools.cache
def images() -> list[bytes]:
    return images_of(NAMES)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(images(), dict.fromkeys(NAMES, "owner"))
    yield made
    made.close()


def visit(*devices: Correspondent) -> None:
    for device in devices:
        device.world.now += 1.0
        device.look()
        device.post()


def titles(device: Correspondent) -> set[str]:
    return {row[0] for row in device.replica.connection.execute("SELECT id FROM jobs")}


def path_of(device: Correspondent, name: str) -> str:
    return f"{device.outbox.keys.space}/{device.outbox.tag}/{name}"


def put(world: World, path: str, body: bytes) -> None:
    world.place.puts += 1
    world.place.objects[path] = (body, world.place.puts)
    world.place.history.append(dict(world.place.objects))


def forge(world: World, device: Correspondent, index: Index, *, by: str | None = None, name: str = "i-00000000000000ff-00000000") -> None:
    """Puts an index into a device's outbox, sealed for it and signed by somebody."""
    path = path_of(device, name)
    put(world, path, device.outbox.keys.seal(path, pack_index(index, name=path, signer=Signer(Key(by or device.key.label)))))


def test_an_index_of_any_size_is_not_even_fetched_and_the_others_are_read(world: World) -> None:
    one, two, three = world.devices
    one.write(1)
    visit(one)
    put(world, path_of(one, "i-ffffffffffffffff-00000000"), bytes(INDEX_LIMIT + 1))
    put(world, path_of(three, "i-0000000000000001-00000000"), bytes(10 * INDEX_LIMIT))
    visit(two)  # the place refuses to give more than was asked for
    assert titles(two) == {"job 1"}
    assert two.inbox.troubles[three.outbox.tag] == "an index of a mailbox that is larger than any may be"


def test_what_a_device_tells_of_itself_is_read_with_its_index_and_passed_over_where_it_is_too_much(world: World) -> None:
    one, two, _ = world.devices
    one.write(1)
    visit(one)
    index = one.outbox.index
    assert index is not None
    forge(world, one, replace(index, about=b"how to meet it"))
    two.look()
    assert two.inbox.seen[one.outbox.tag].index.about == b"how to meet it"
    forge(world, one, replace(index, about=bytes(ABOUT_LIMIT + 1)), name="i-0000000000000fff-00000000")
    two.look()
    assert two.inbox.seen[one.outbox.tag].index.about == b""
    assert titles(two) == {"job 1"}


@pytest.mark.parametrize("rubbish", [b"", b"x" * 10, os.urandom(5_000)], ids=["nothing", "too short", "noise"])
def test_rubbish_in_the_place_of_an_index_is_told_and_the_index_before_it_is_read(world: World, rubbish: bytes) -> None:
    one, two, three = world.devices
    one.write(1)
    visit(one)
    put(world, path_of(one, "i-ffffffffffffffff-00000000"), rubbish)
    put(world, path_of(three, "i-0000000000000001-00000000"), rubbish)
    visit(two)
    assert titles(two) == {"job 1"}
    assert "doesn't open" in two.inbox.troubles[three.outbox.tag] or "too short" in two.inbox.troubles[three.outbox.tag]
    reads = world.place.reads
    visit(two)
    assert world.place.reads == reads  # it isn't looked at again and again


def test_however_much_rubbish_lies_before_an_index_it_is_read_after_a_few_looks(world: World) -> None:
    one, two, _ = world.devices
    one.write(1)
    visit(one)
    for number in range(3 * TRIES):
        put(world, path_of(one, f"i-ffffffffffffff{number:02x}-00000000"), b"rubbish of whoever may write there")
    for _ in range(4):
        visit(two)
    assert titles(two) == {"job 1"}


def test_an_index_that_lies_in_the_outbox_of_another_or_is_signed_by_another_is_not_read(world: World) -> None:
    one, two, three = world.devices
    visit(three)
    assert three.outbox.index is not None
    forge(world, one, three.outbox.index, by="three")  # a device writes into the outbox of another
    path = path_of(one, "i-0000000000000fff-00000000")
    body = wire.unpack(pack_index(three.outbox.index, name=path, signer=Signer(one.key)))
    body["s"] = Key("stranger").sign(body["b"])
    put(world, path, one.outbox.keys.seal(path, wire.pack(body)))
    copied = path_of(one, three.outbox.name)
    put(world, copied, world.place.objects[path_of(three, three.outbox.name)][0])  # the store moves it to another place
    two.look()
    assert one.outbox.tag not in two.inbox.seen
    assert one.outbox.tag in two.inbox.troubles


@pytest.mark.parametrize("harm", ["gone", "half", "other", "rubbish inside", "no writes", "odd name"])
def test_a_part_that_is_not_what_it_should_be_moves_nothing_and_is_looked_for_again(world: World, harm: str) -> None:
    one, two, _ = world.devices
    one.write(1)
    visit(one)
    assert one.outbox.index is not None
    (batch,) = one.outbox.index.batches
    (part,) = batch.parts
    path = path_of(one, part.name)
    kept = world.place.objects[path][0]
    inside = {
        "rubbish inside": b"\0\0\0\x05abcde",
        "no writes": pack_part([encode(Ack(RoundId(b"r" * 8, 1), Spans()))]),
    }
    if harm in inside or harm == "odd name":
        sealed = one.outbox.keys.seal(path, inside.get(harm, b""))
        bad = part._replace(digest=blake3(sealed).digest()) if harm in inside else part._replace(name="../../" + part.name)
        put(world, path, sealed)
        forge(world, one, replace(one.outbox.index, number=255, batches=(replace(batch, parts=(bad,)),)))
    elif harm == "gone":
        del world.place.objects[path]
    else:
        put(world, path, kept[: len(kept) // 2] if harm == "half" else os.urandom(len(kept)))
    before = two.replica.heads()
    two.look()
    assert two.replica.heads() == before
    assert titles(two) == set()
    assert two.inbox.troubles[one.outbox.tag]
    one.restart()
    for _ in range(5):
        world.now += 1000.0
        put(world, path, kept) if harm in ("gone", "half", "other") else None
        visit(one, two)
        one.write(2)
    visit(one, two)
    assert "job 2" in titles(two)


def test_a_worker_passes_on_nothing_of_others_and_is_told_what_was_refused() -> None:
    world = World(images(), {"one": "owner", "two": "owner", "three": "worker"})
    try:
        one, two, three = world.devices
        one.write(1)
        world.meet(0, 2)
        assert titles(three) == {"job 1"}
        visit(three, two)
        assert titles(two) == set()  # an honest worker doesn't try
        three.outbox.relays = True
        three.restart_outbox()
        visit(three)
        heads = two.replica.heads()
        visit(two)
        assert titles(two) == set()
        assert not {author for author in two.replica.heads().keys() - heads.keys() if author == one.replica.author}
        assert any("relay" in refusal.reason for refusal in two.inbox.refused[three.outbox.tag])
        assert two.outbox.index is not None
        assert three.outbox.tag in two.outbox.index.refused
    finally:
        world.close()


def test_a_device_that_claims_to_count_what_it_does_not_have_harms_only_itself(world: World) -> None:
    one, two, three = world.devices
    one.write(1)
    visit(one, two, three)
    lie = {one.replica.author: Head(1 << 40, b"tag")}
    assert three.outbox.index is not None
    forge(world, three, replace(three.outbox.index, number=255, heads=lie, base={}, batches=()))
    one.write(2)
    visit(one, two)
    assert titles(two) == {"job 1", "job 2"}


def test_an_outbox_is_emptied_when_all_have_read_it_and_never_has_many_parts(world: World) -> None:
    one, two, three = world.devices
    most = 0
    for number in range(60):
        one.write(number % 6)
        visit(one)
        most = max(most, sum(name.startswith(one.outbox.keys.space) and one.outbox.tag in name for name in world.place.objects))
    assert most <= 12
    world.settle(rounds=3)
    assert [name for name in world.place.objects if "/p-" in name] == []  # what all have is not kept for anybody
    assert titles(two) == titles(three) == titles(one)


def test_many_writes_go_in_several_parts_and_arrive_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_outbox, "PART_SIZE", 20_000)
    one, two, _ = world.devices

    def many(writer: object) -> None:
        for number in range(1_500):
            writer.put("jobs", f"job {number}", "spec", {"queue": "q", "task": "t", "created_at": 1})  # type: ignore[attr-defined]

    one.replica.write(many)
    visit(one)
    assert one.outbox.index is not None
    assert len(one.outbox.index.batches[0].parts) > 2
    visit(two)
    assert len(titles(two)) == 1_500
    assert two.replica.heads()[one.replica.author] == one.replica.heads()[one.replica.author]


def test_a_row_that_ended_while_a_device_was_away_for_long_is_dropped_there(world: World) -> None:
    one, two, _ = world.devices
    for number in (0, 1):
        one.write(number)
    world.settle(rounds=2)
    world.now += 2 * DAY
    two.look()
    two.post()  # it asks what became of its rows
    one.replica.write(lambda writer: writer.put("jobs", "job 0", "life", {"deleted": 1}))
    world.now += 9 * DAY
    prune_all(one.replica, int(7 * DAY * 1000))
    assert titles(one) == {"job 1"}
    assert titles(two) == {"job 0", "job 1"}
    for _ in range(3):
        world.now += 4_000.0
        visit(one, two)
    assert titles(two) == {"job 1"}


def test_a_restored_device_gets_back_what_only_its_own_mail_still_holds(world: World) -> None:
    one, two, _ = world.devices
    visit(one)
    old = one.replica.image()
    one.write(1)
    visit(one)
    one.restart(old)
    assert titles(one) == set()
    one.write(2)
    visit(one, two)
    assert titles(one) == titles(two) == {"job 1", "job 2"}


def test_what_a_device_left_that_is_gone_for_long_is_removed_by_who_has_it_all(world: World) -> None:
    one, two, _ = world.devices
    one.write(1)
    visit(one, two)
    names = [Listed(name, 1, "", 1_000.0) for name in world.place.objects]
    counted = {author: head.seq for author, head in two.replica.heads().items()}
    of_one = sorted(each.name for each in names if one.outbox.tag in each.name)
    soon, late = 1_000.0 + ABANDONED - 10, 1_000.0 + ABANDONED + 10
    assert abandoned(names, two.inbox.seen, two.outbox.tag, counted, now=soon) == []
    assert abandoned(names, two.inbox.seen, two.outbox.tag, {}, now=late) == []
    assert sorted(abandoned(names, two.inbox.seen, two.outbox.tag, counted, now=late)) == of_one


def test_messages_of_a_part_come_back_as_they_were_and_half_a_part_is_refused() -> None:
    messages = [encode(Writes(RoundId(b"r" * 8, 1), b"s" * 8, number, ())) for number in range(3)]
    packed = pack_part(messages)
    assert unpack_part(packed) == messages
    for cut in (1, 5, len(packed) - 1):
        with pytest.raises(MalformedMessage):
            unpack_part(packed[:cut])


def test_outboxes_that_rest_on_one_another_keep_what_a_third_lacks(world: World) -> None:
    one, two, three = world.devices

    def many(writer: object) -> None:
        for number in range(1_000):  # so much that it isn't written again with what follows
            writer.put("jobs", f"old {number}", "tune", {"title": os.urandom(40).hex()})  # type: ignore[attr-defined]

    one.replica.write(many)
    two.replica.write(many)
    visit(one, two, one, two)
    for number in range(3, 6):
        one.write(number)
        visit(one, two)
        two.write(number - 3)
        visit(two, one)
    assert one.outbox.index is not None
    assert len(one.outbox.index.batches) > 1
    three.look()
    assert titles(three) == titles(one) == titles(two)
    heads = three.replica.heads()
    assert all(heads[author] == head for author, head in one.replica.heads().items())
