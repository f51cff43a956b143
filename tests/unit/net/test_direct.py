"""Direct connections of two linked devices: built, lost, built again, and done without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from p2pqueue.errors import NoBulk, PeerError
from p2pqueue.net.framing import NUMBERS
from p2pqueue.net.notes import Signalling, read_note
from p2pqueue.net.signalling import Ends, Step
from p2pqueue.net.webrtc import direct as directly
from p2pqueue.net.webrtc.bulk import BulkChannel
from p2pqueue.net.webrtc.direct import Direct
from tests.unit.net.kit import Space, until
from tests.unit.net.wires import End, Wires

ROWS, SIGNAL = NUMBERS["rows"], NUMBERS["signal"]


class Side:
    """One device's direct connections, and what they told."""

    def __init__(self, ends: Ends, wires: Wires, **more: Any) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.bulks: list[BulkChannel] = []
        self.said: list[bytes] = []
        self.other: Side | None = None
        self.direct = Direct(
            ends,
            connect=wires.connect,
            tell=self._tell,
            on_message=lambda topic, message: self.got.append((topic, message)),
            on_bulk=self.bulks.append,
            **{"first_retry": 0.01, **more},
        )

    def _tell(self, note: bytes) -> bool:
        self.said.append(note)
        asyncio.get_running_loop().call_soon(self._pass, note)
        return True

    def _pass(self, note: bytes) -> None:
        read = read_note(note)
        assert isinstance(read, Signalling)
        if self.other is not None:
            self.other.direct.received(read)


ONE, TWO = Space().identities("one", "two")
ENDS = (Ends(ONE.device_id, TWO.device_id, TWO.public_key, ONE.sign), Ends(TWO.device_id, ONE.device_id, ONE.public_key, TWO.sign))


@contextlib.asynccontextmanager
async def sides(wires: Wires, **more: Any) -> AsyncIterator[tuple[Side, Side]]:
    """The side with the lower id, and the other."""
    one, two = (Side(ends, wires, **more) for ends in ENDS)
    one.other, two.other = two, one
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(side.direct.run()) for side in (one, two)]
        await asyncio.sleep(0)
        yield one, two
        for task in running:
            task.cancel()
    assert [end for end in wires.made if not end.closed] == []


def up(one: Side, two: Side) -> bool:
    return one.direct.control is not None and two.direct.control is not None


async def test_control_comes_up_by_itself_and_carries_messages_with_their_topics() -> None:
    async with sides(Wires()) as (one, two):
        await until(lambda: up(one, two))
        assert one.direct.control is not None
        assert two.direct.control is not None
        await one.direct.control.send(ROWS, bytes(200_000))
        assert two.direct.control.send_soon(SIGNAL, b"hello")
        await until(lambda: two.got and one.got)
        assert (two.got, one.got) == ([(ROWS, bytes(200_000))], [(SIGNAL, b"hello")])
        assert one.direct.why is two.direct.why is None


async def test_the_heartbeat_of_the_side_that_offers_tells_the_round_trip() -> None:
    async with sides(Wires(), beat_every=0.02) as (one, two):
        await until(lambda: one.direct.heartbeat and one.direct.heartbeat.rtt is not None)
        assert one.got == two.got == []


async def test_where_nothing_connects_both_know_why_and_try_until_it_does() -> None:
    wires = Wires()
    wires.blocked = "UDP is blocked between us"
    async with sides(wires) as (one, two):
        await until(lambda: one.direct.why and two.direct.why)
        assert one.direct.why == two.direct.why == "UDP is blocked between us"
        assert not up(one, two)
        wires.blocked = None
        await until(lambda: up(one, two))
        assert one.direct.why is two.direct.why is None


async def test_tries_become_rarer_and_a_change_of_the_network_makes_one_at_once() -> None:
    wires = Wires()
    wires.blocked = "UDP is blocked between us"
    async with sides(wires, first_retry=1000.0) as (one, two):
        await until(lambda: one.direct.why)
        await asyncio.sleep(0.05)
        tries = len(wires.made)
        assert tries == 2
        wires.blocked = None
        one.direct.hurry()
        await until(lambda: up(one, two))


@pytest.mark.parametrize("whose", [0, 1], ids=["the lower", "the higher"])
async def test_a_connection_that_ends_on_one_side_ends_on_both_and_is_built_anew(whose: int) -> None:
    wires = Wires()
    async with sides(wires) as (one, two):
        for _ in range(3):
            await until(lambda: up(one, two))
            old = one.direct.control, two.direct.control
            wires.open[-2 if whose == 0 else -1].lose("the path to that device is gone")
            await until(lambda old=old: one.direct.control is not old[0] and two.direct.control is not old[1] and up(one, two))


async def test_offers_of_an_older_generation_change_nothing() -> None:
    wires = Wires()
    async with sides(wires) as (one, two):
        await until(lambda: up(one, two))
        first = read_note(one.said[0])
        assert isinstance(first, Signalling)
        wires.cut()
        await until(lambda: up(one, two) and len(wires.open) == 2)
        now, made = two.direct.control, len(wires.made)
        two.direct.received(first)
        await asyncio.sleep(0.02)
        assert two.direct.control is now
        assert len(wires.made) == made


@pytest.mark.parametrize("whose", [0, 1], ids=["the lower asks", "the higher asks"])
async def test_bulk_is_opened_when_it_is_asked_for_and_shared(whose: int) -> None:
    async with sides(Wires()) as both:
        await until(lambda: up(*both))
        asking, other = both[whose], both[1 - whose]
        assert asking.bulks == other.bulks == []
        first, second = await asyncio.gather(asking.direct.bulk(), asking.direct.bulk())
        assert first is second
        await until(lambda: other.bulks)
        assert await other.direct.bulk() is other.bulks[0]
        assert len(asking.bulks) == len(other.bulks) == 1
        await first.send(b"shard")
        assert await other.bulks[0].receive() == b"shard"
        await first.close()
        await until(lambda: not other.bulks[0].open)
        again = await asking.direct.bulk()
        assert again is not first
        assert again.open
        assert up(*both)  # control lives by itself


async def test_no_bulk_says_why() -> None:
    wires = Wires()
    async with sides(wires) as (one, two):
        await until(lambda: up(one, two))
        wires.blocked = "UDP is blocked between us"
        for side in (one, two):
            with pytest.raises(NoBulk, match="UDP is blocked between us"):
                await side.direct.bulk()
        wires.cut()
        await until(lambda: one.direct.why and two.direct.why)
        for side in (one, two):
            with pytest.raises(NoBulk):
                await side.direct.bulk()


async def test_an_offer_that_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directly, "ANSWER_WAIT", 0.02)
    async with sides(Wires()) as (one, two):
        two.other = None  # its answers are lost
        await until(lambda: one.direct.why)
        assert one.direct.why == "the other device doesn't answer an offer of a direct connection"
        two.other = one
        await until(lambda: up(one, two))


async def test_an_error_that_nobody_foresaw_costs_one_attempt(caplog: pytest.LogCaptureFixture) -> None:
    wires = Wires()
    connect, broken = wires.connect, iter([True])

    def sometimes(controlling: bool, high_water: int) -> End:
        end = connect(controlling, high_water)
        if controlling and next(broken, False):
            end.offer = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
        return end

    wires.connect = sometimes  # type: ignore[method-assign]
    async with sides(wires) as (one, two):
        await until(lambda: up(one, two))
    assert "met an error of its own" in caplog.text


async def test_steps_that_cant_be_read_or_werent_signed_are_refused() -> None:
    async with sides(Wires()) as (one, two):
        with pytest.raises(PeerError):
            two.direct.received(Signalling(b"?", bytes(64)))
        with pytest.raises(PeerError):
            two.direct.received(ENDS[0].sign_step(Step("offer", "control", 1 << 60, b"no signal")))
        with pytest.raises(PeerError):
            one.direct.received(ENDS[0].sign_step(Step("ask", "bulk", 1)))  # its own
