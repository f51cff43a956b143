"""Real meshes that know no address of one another link by signals that somebody carries, over a direct connection, as by TCP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest

from p2pqueue.errors import ConnectFailed, LinkRefused, MalformedMessage
from p2pqueue.net import codes
from p2pqueue.net.mesh import NetOptions
from tests.unit.net.connected import nothing_unseen  # noqa: F401  a fixture
from tests.unit.net.kit import Node, Space, closing, until

pytestmark = pytest.mark.usefixtures("nothing_unseen")


def options(*peers: str) -> NetOptions:
    return NetOptions(listen="127.0.0.1:0", peers=peers, discovery=False, interfaces=("lo",))


@contextlib.asynccontextmanager
async def apart() -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes of one space, that with the lower id first, neither of which knows where the other is."""
    lower, higher = Space().identities("one", "two")
    one, two = Node(lower, options=options()), Node(higher, options=options())
    async with closing(one, two):
        await one.mesh.start()
        await two.mesh.start()
        yield one, two


class Carrier:
    """Carries the two signals, each changed as a test likes."""

    def __init__(self, change: Callable[[bytes], bytes] = lambda signal: signal) -> None:
        loop = asyncio.get_running_loop()
        self.offer: asyncio.Future[bytes] = loop.create_future()
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self.change = change

    async def swap(self, ours: bytes) -> bytes:
        self.offer.set_result(ours)
        return self.change(await self.answer)

    async def tell(self, ours: bytes) -> None:
        self.answer.set_result(ours)


async def meet(one: Node, two: Node, carrier: Carrier, *, whom: str | None = None) -> list[BaseException | None]:
    """Lets the first offer and the second answer; gives how it ended on either side. `whom` the first means by it."""

    async def outcome(work: Callable[[], Awaitable[None]]) -> BaseException | None:
        try:
            await work()
        except (LinkRefused, ConnectFailed, MalformedMessage) as error:
            return error
        return None

    async def answer() -> None:
        await two.mesh.meeting.answer(one.identity.device_id, await carrier.offer, carrier.tell)

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(outcome(partial(one.mesh.meeting.offer, whom or two.identity.device_id, carrier.swap))),
            group.create_task(outcome(answer)),
        ]
    return [task.result() for task in tasks]


async def test_a_link_over_a_direct_connection_carries_all_and_ends_with_its_reason() -> None:
    async with apart() as (one, two):
        assert await meet(one, two, Carrier()) == [None, None]
        assert one.linked(two)
        assert (one.peer(two).address, one.peer(two).http_base) == (("127.0.0.1", 0), None)
        await one.peer(two).link.outbox.put("rows", bytes(200_000))  # as while no other path is there
        await until(lambda: two.got)
        assert [(topic, len(message)) for _, topic, message in two.got] == [("rows", 200_000)]
        await until(lambda: one.peer(two).path == two.peer(one).path == "webrtc")
        await two.peer(one).send("signal", b"back")
        await until(lambda: one.got)
        assert one.got == [(two.identity.device_id, "signal", b"back")]
        bulk = await two.peer(one).bulk()
        await bulk.send(b"shards")
        await one.mesh.offline()
        await until(lambda: two.downs)
        assert two.downs[0][1] == f"it left: {codes.GOES_OFFLINE}"
        assert not two.mesh.peers


async def test_a_device_that_is_paused_takes_nothing_and_all_of_it_later() -> None:
    async with apart() as (one, two):
        await meet(one, two, Carrier())
        two.peer(one).link.pause()
        sending = one.peer(two).link.outbox
        count = 0
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(1.0):
                    await sending.put("rows", bytes(200_000))
                count += 1
        assert count < 60  # 4 MiB and what lies in the buffers on the way
        two.peer(one).link.resume()
        await until(lambda: len(two.got) >= count)


async def test_a_revoked_device_gets_no_link_and_is_told_so() -> None:
    async with apart() as (one, two):
        two.refuses.add(one.identity.device_id)
        first, second = await meet(one, two, Carrier())
        assert isinstance(first, LinkRefused)
        assert first.code == codes.REFUSED
        assert str(second) == "it was revoked"
        assert not one.mesh.peers
        assert not two.mesh.peers


async def test_who_is_linked_already_stays_linked_as_before() -> None:
    lower, higher = Space().identities("one", "two")
    two = Node(higher, options=options())
    async with closing(two):
        await two.mesh.start()
        one = Node(lower, options=options(two.address))
        async with closing(one):
            await one.mesh.start()
            await until(lambda: one.linked(two))
            before = one.peer(two), two.peer(one)
            first, second = await meet(one, two, Carrier())
            assert isinstance(first, LinkRefused)
            assert first.code == codes.DUPLICATE
            assert isinstance(second, LinkRefused)
            assert (one.peer(two), two.peer(one)) == before
            assert not before[0].link.is_over


async def test_another_device_than_the_one_that_was_to_answer_gets_no_link() -> None:
    space = Space()
    lower, higher, third = space.identities("one", "two", "three")
    one, two = Node(lower, options=options()), Node(higher, options=options())
    async with closing(one, two):
        await one.mesh.start()
        await two.mesh.start()
        first, _ = await meet(one, two, Carrier(), whom=third.device_id)
        assert isinstance(first, LinkRefused)
        assert str(first) == "another device answered than the one that signed"
        await until(lambda: not one.mesh.peers and not two.mesh.peers)


async def test_a_signal_with_another_certificate_leads_to_nothing() -> None:
    async with apart() as (one, two):
        other = bytes(32)

        def forge(signal: bytes) -> bytes:
            from p2pqueue.net.webrtc.signal import RtcSignal

            return signal.replace(RtcSignal.unpack(signal).fingerprint, other)

        first, second = await meet(one, two, Carrier(forge))
        assert isinstance(first, ConnectFailed)
        assert isinstance(second, (ConnectFailed, LinkRefused))
        assert not one.mesh.peers
        assert not two.mesh.peers


async def test_a_device_that_is_offline_gets_no_link_by_signals() -> None:
    async with apart() as (one, two):
        await two.mesh.offline()
        _, second = await meet(one, two, Carrier())
        assert isinstance(second, LinkRefused)
        assert second.code == codes.BYE
        await until(lambda: not one.mesh.peers)


async def test_addresses_that_somebody_wrote_are_dialled_and_those_that_lead_nowhere_are_not() -> None:
    lower, higher = Space().identities("one", "two")
    one, two = Node(lower, options=options(), others=[higher]), Node(higher, options=options())
    async with closing(one, two):
        await one.mesh.start()
        await two.mesh.start()
        (here,) = two.mesh.meeting.endpoints
        assert f"{here[0]}:{here[1]}" == two.address
        one.mesh.meeting.told(higher.device_id, [("224.0.0.1", 7433), ("0.0.0.0", 7433), ("fe80::1", 7433), here])
        await until(lambda: one.linked(two))
        one.mesh.meeting.told(higher.device_id, ())
        assert one.book.candidates(higher.device_id) == (here,)  # it was good
