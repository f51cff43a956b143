"""Two running devices with one key that dial only a third one learn of one another by it, and by nothing that is made up."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from p2pqueue.net.notes import Twin
from tests.unit.net.kit import Node, Space, closing, until

SIGNED = b"p2pqueue twin: this instance of the device runs beside that one\0"


@dataclass
class Copied:
    """A device, its copy, a third one that both dial, and what either of the two was told."""

    third: Node
    original: Node
    copy: Node
    told: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))


@contextlib.asynccontextmanager
async def copied() -> AsyncIterator[Copied]:
    twice, third = Space().identities("twice", "third")
    node = Node(third)
    await node.mesh.start()
    told: tuple[list[str], list[str]] = ([], [])
    original, copy = (Node(twice, peers=(node.address,), on_clone=each.append) for each in told)
    async with closing(node, original, copy):
        await original.mesh.start()
        await copy.mesh.start()
        yield Copied(node, original, copy, told)


async def test_both_are_told_again_and_again_and_by_whom() -> None:
    async with copied() as met:
        await until(lambda: all(len(each) >= 2 for each in met.told))
        for words in met.told:
            assert "another running device has the key of this one" in words[0]
            assert words[0].endswith("third has met both")


async def test_the_one_that_is_left_is_told_no_more_and_linked() -> None:
    async with copied() as met:
        await until(lambda: all(met.told))
        linked, refused = (met.original, met.copy) if met.original.has(met.third) else (met.copy, met.original)
        await linked.mesh.close()
        await until(lambda: refused.linked(met.third))
        for each in met.told:
            each.clear()
        await until(lambda: met.third.peer(refused).rtt is not None)
        assert met.told == ([], [])


async def test_a_third_device_cant_make_a_twin_up() -> None:
    """What it says must bear a signature by the key of the two, over the instance that runs now."""
    one, liar = Space().identities("one", "liar")
    told: list[str] = []
    target = Node(one, on_clone=told.append)
    lying = Node(liar)
    await target.mesh.start()
    await lying.mesh.start()
    async with closing(target, lying):
        lying.mesh.dial(target.address)
        await until(lambda: target.linked(lying))
        link = lying.peer(target).link
        before, now = bytes(16), lying.peer(target).instance  # of an earlier start, and of this one
        other = bytes([1]) * 16
        forged = liar.sign(SIGNED + other + now)
        for made_up in (
            Twin(other, now, b""),
            Twin(other, now, bytes(64)),
            Twin(other, now, forged),
            Twin(other, before, one.sign(SIGNED + other + before)),
            Twin(now, now, one.sign(SIGNED + now + now)),
        ):
            link.outbox.offer("net", made_up.pack())
        await lying.peer(target).send("rows", b"all was said")
        await until(lambda: target.got)
        assert told == []
        real = Twin(other, now, one.sign(SIGNED + other + now))
        link.outbox.offer("net", real.pack())
        await until(lambda: told)
