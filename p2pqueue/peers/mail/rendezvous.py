"""How do devices link that only a mailbox tells of one another?

What each tells in its index is passed to the net: addresses are dialled. Where no link comes of that within seconds, the
device with the lower id leaves an offer of a direct connection, looks for the answer every second while it waits, and takes
the offer away again; the other finds it at its own pace. What lies there and can't be taken for true is told once, and let lie.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.errors import ConnectFailed, LinkRefused, MalformedMessage, P2PQueueError, PeerError
from p2pqueue.net.webrtc.signal import RtcSignal
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.payload.origins.objects import Listed
from p2pqueue.peers.mail.acquaintance import Acquaintance
from p2pqueue.peers.mail.format import MailKeys
from p2pqueue.peers.mail.inbox import Seen
from p2pqueue.peers.mail.letters import (
    ANSWER,
    LETTER_LIMIT,
    LETTERS,
    NONCE_SIZE,
    OFFER,
    OTHER_START,
    Letter,
    Refusals,
    letter_path,
    read_letter,
)
from p2pqueue.peers.mail.place import MailPlace
from p2pqueue.peers.mail.telling import START_SIZE, TOLD_FOR, Telling, Told, read_told
from p2pqueue.replica.replica import wall_clock

if TYPE_CHECKING:
    from p2pqueue.identity.keys import Identity
    from p2pqueue.identity.members import Members
    from p2pqueue.net.meeting import Meeting

GRACE: Final = 6.0  # seconds for a link over TCP, before a direct connection is offered
POLL_EVERY: Final = 1.0  # seconds between two looks for the answer
OFFER_WAIT: Final = 45.0  # seconds: the other side looks every half a minute at last
TICK: Final = 3.0  # seconds between two looks whether an offer is due, while one may be
MOST_AT_ONCE: Final = 4  # offers that lie there, and as many that are answered
MOST_NEW: Final = 4  # offers of one device in one look
TOLD_LIMIT: Final = 256  # refusals that are remembered as told
TAKING_AWAY: Final = 1.0  # seconds for a letter to be taken away, at a stop

_log = logging.getLogger(__name__)


class Rendezvous:
    """Meets the other devices of a space by way of its mailbox.

    :param posts: whether this device writes there too; without it, it only hears of addresses.
    :param linked: gives the devices that are linked now.
    """

    def __init__(
        self, place: MailPlace, identity: Identity, members: Members, *, net: Meeting, posts: bool, is_on: Callable[[], bool],
        linked: Callable[[], Collection[str]],
    ) -> None:  # fmt: skip
        self._place, self._identity, self._members, self._net = place, identity, members, net
        self._posts, self._is_on, self._linked = posts, is_on, linked
        self._keys = MailKeys(identity.space_key, os.urandom)
        self._own = self._keys.device(identity.device_id)
        start = os.urandom(START_SIZE)
        self._telling = Telling(start)
        self._refusals = Refusals(identity.device_id, start)
        self._known: dict[str, Acquaintance] = {}
        self._answering: dict[str, asyncio.Task[Any]] = {}
        self._letters: tuple[Listed, ...] = ()
        self._handled: set[tuple[str, str]] = set()  # names with their marks: what lies there anew is looked at anew
        self._lying: set[str] = set()  # letters of this run
        self._gone: set[str] = set()  # those that were taken away, and that a list may show still
        self._told: dict[tuple[str, str], None] = {}
        self._endpoints = net.endpoints
        self._news = asyncio.Event()
        self.met = 0  # links that came about so

    def about(self) -> bytes:
        """What this device tells in its index."""
        return self._telling.now(self._net.endpoints, self._net.directing is not None, now=time.monotonic(), wall=wall_clock())

    def looked(self, listed: Sequence[Listed], seen: Mapping[str, Seen]) -> None:
        """What lies in the mailbox now, and the indexes that were read of it."""
        modified = {each.name: each.modified for each in listed}
        self._letters = tuple(each for each in listed if each.name.split("/")[2].startswith(LETTERS))
        self._gone &= modified.keys()
        newest = max(modified.values(), default=0.0)  # by the place's clock, whatever those of the devices say
        here: dict[str, Told] = {}
        for each in seen.values():
            age = newest - modified.get(f"{self._keys.space}/{each.tag}/{each.name}", newest)
            told = read_told(each.index.about)
            if told is not None and age < TOLD_FOR and each.tag != self._own:
                here[each.member.device_id] = told
        for device in self._known.keys() - here.keys():
            self._forget(device)
        for device, told in here.items():
            self._hear(device, told)
        self._news.set()

    def status(self) -> dict[str, Any]:
        """How it stands, as plain values."""
        why = {device: known.why for device, known in self._known.items() if known.why is not None and device not in self._linked()}
        return {"told": len(self._known), "met": self.met, "why": why}

    async def run(self) -> None:
        """Offers and answers until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    async with asyncio.timeout(TICK if any(map(self._may_be_offered, self._known)) else None):
                        await self._news.wait()
                except TimeoutError:
                    pass
                self._news.clear()
                if not self._is_on():
                    for known in self._known.values():
                        known.stop_offering()
                        known.begin_anew()
                elif self._posts:
                    self._take(group)
                    self._offer_where_due(group)

    async def part(self) -> None:
        """Takes away what lies there still, before the network ends; gives up soon."""
        open_ = [task for task in (*(each.offering for each in self._known.values()), *self._answering.values()) if task is not None]
        for task in open_:
            task.cancel()
        if open_:
            await asyncio.wait(open_, timeout=TAKING_AWAY)

    # -- hearing ----------------------------------------------------------------------------------------------

    def _hear(self, device: str, told: Told) -> None:
        known = self._known.get(device)
        if known is not None and known.told == told:
            return
        if known is None:
            known = self._known[device] = Acquaintance(told)
        elif known.told.start != told.start:
            known.stop_offering()  # nobody reads it any more
        if (known.told.start, known.told.endpoints) != (told.start, told.endpoints):
            known.begin_anew()
        known.told = told
        self._net.told(device, told.endpoints)

    def _forget(self, device: str) -> None:
        self._known.pop(device).stop_offering()
        self._net.told(device, ())

    # -- offering ---------------------------------------------------------------------------------------------

    def _may_be_offered(self, device: str) -> bool:
        known = self._known[device]
        return (
            self._posts and self._net.directing is not None and known.told.direct
            and self._identity.device_id < device and device not in self._linked()
        )  # fmt: skip

    def _offer_where_due(self, group: asyncio.TaskGroup) -> None:
        now, endpoints = time.monotonic(), self._net.endpoints
        if endpoints != self._endpoints:  # another network: what came to nothing in the last one may come to something
            self._endpoints = endpoints
            for known in self._known.values():
                known.begin_anew()
        for device, known in self._known.items():
            if device in self._linked():
                known.apart_since, known.why = None, None
                known.begin_anew()
                known.stop_offering()
                continue
            if known.apart_since is None:
                known.apart_since = now
            waits = now < max(known.apart_since + GRACE, known.again_at) or known.is_offering
            if self._may_be_offered(device) and not waits and sum(each.is_offering for each in self._known.values()) < MOST_AT_ONCE:
                known.offering = group.create_task(self._surely(device, partial(self._offer, device, known)))

    async def _offer(self, device: str, known: Acquaintance) -> None:
        try:
            await self._net.offer(device, partial(self._swap, device, known.told.start))
        except Exception as error:
            known.put_off(time.monotonic(), random.uniform(0.8, 1.2), str(error))
            raise
        self.met += 1

    async def _swap(self, device: str, start: bytes, ours: bytes) -> bytes:
        """Leaves an offer with our signal, and waits for the other's."""
        offer = Letter(self._identity.device_id, device, os.urandom(NONCE_SIZE), start, wall_clock(), ours)
        path = letter_path(self._keys, ANSWER, device, self._identity.device_id, offer.nonce)
        try:
            async with self._left(OFFER, offer), asyncio.timeout(OFFER_WAIT):
                while (sealed := await self._place.get_mail(path, limit=LETTER_LIMIT)) is None:  # noqa: ASYNC110 - a mailbox calls nobody
                    await asyncio.sleep(POLL_EVERY)
        except TimeoutError:
            raise ConnectFailed("it didn't answer an offer in the mailbox") from None
        answer = read_letter(self._keys.open(path, sealed), path, self._members.admit)
        if (why := self._refusals.of_answer(answer, offer, wall=wall_clock())) is not None:
            raise MalformedMessage(f"an answer in the mailbox is refused: {why}")
        return answer.signal

    # -- answering --------------------------------------------------------------------------------------------

    def _take(self, group: asyncio.TaskGroup) -> None:
        """Answers the offers that are new, and takes away letters of an earlier run."""
        self._handled &= {(each.name, each.mark) for each in self._letters}
        new: dict[str, int] = {}
        for each in self._letters:
            _, tag, name = each.name.split("/")
            if (each.name, each.mark) in self._handled or each.name in self._lying or each.name in self._gone:
                continue
            if tag == self._own:
                self._handled.add((each.name, each.mark))
                group.create_task(self._take_away(each.name))
            elif name.startswith(f"{OFFER}{self._keys.between(tag, self._own)}-"):
                self._handled.add((each.name, each.mark))
                new[tag] = new.get(tag, 0) + 1
                self._take_offer(group, tag, each, is_flood=new[tag] > MOST_NEW)

    def _take_offer(self, group: asyncio.TaskGroup, tag: str, found: Listed, *, is_flood: bool) -> None:
        if is_flood or found.size > LETTER_LIMIT:
            self._refuse(tag, "there are too many of its sender" if is_flood else f"it has {found.size} bytes")
        else:
            group.create_task(self._surely(tag, partial(self._answer, tag, found)))

    async def _answer(self, tag: str, found: Listed) -> None:
        path = found.name
        sealed = await self._place.get_mail(path, limit=LETTER_LIMIT)
        if sealed is None:
            return  # taken away meanwhile
        offer = read_letter(self._keys.open(path, sealed), path, self._members.admit)
        if not self._has_turn(offer.sender):
            self._handled.discard((found.name, found.mark))  # at the next look
            return
        why = self._refusals.of_offer(offer, wall=wall_clock())
        if self._keys.device(offer.sender) != tag:
            why = "it lies in the outbox of another device"
        if why is not None:
            self._refuse(tag, why)
            return
        RtcSignal.unpack(offer.signal)
        if offer.sender in self._linked() or self._net.directing is None:
            return
        self._begin_answering(offer.sender)
        async with AsyncExitStack() as stack:

            async def tell(ours: bytes) -> None:
                answer = Letter(self._identity.device_id, offer.sender, offer.nonce, b"", wall_clock(), ours)
                await stack.enter_async_context(self._left(ANSWER, answer))

            await self._net.answer(offer.sender, offer.signal, tell)
            self.met += 1

    def _has_turn(self, sender: str) -> bool:
        busy = {each for each, task in self._answering.items() if not task.done()}
        return sender in busy or len(busy) < MOST_AT_ONCE

    def _begin_answering(self, sender: str) -> None:
        """Makes this task the one that answers a device: where that offers anew, nobody waits at the other end of the last offer."""
        before, this = self._answering.get(sender), asyncio.current_task()
        assert this is not None
        if before is not None:
            before.cancel()
        self._answering[sender] = this

    def _refuse(self, tag: str, words: str) -> None:
        """Tells once that something in the mailbox was not taken for true."""
        if (tag, words) in self._told:
            return
        self._told[tag, words] = None
        while len(self._told) > TOLD_LIMIT:
            del self._told[next(iter(self._told))]
        level = logging.INFO if words == OTHER_START else logging.WARNING  # the latter also comes of a restart
        _log.log(level, "a letter in the mailbox is refused: %s", words)

    # -- letters ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _left(self, kind: str, letter: Letter) -> AsyncIterator[None]:
        """Lets a letter lie there for a while."""
        path = letter_path(self._keys, kind, letter.sender, letter.receiver, letter.nonce)
        self._lying.add(path)
        try:
            await self._place.put_mail(path, self._keys.seal(path, letter.pack(path, self._identity)))
            yield
        finally:
            try:
                await self._take_away(path)
            finally:
                self._lying.discard(path)
                self._gone.add(path)

    async def _take_away(self, path: str) -> None:
        try:
            async with asyncio.timeout(TAKING_AWAY):
                await self._place.delete_mail(path)
        except (SourceFailed, TimeoutError) as error:
            _log.debug("a letter is left lying: %r", error)  # the next run takes it away, or whoever tidies

    async def _surely(self, whose: str, work: Callable[[], Awaitable[None]]) -> None:
        """Does one thing; whatever becomes of it, the others go on."""
        try:
            await work()
        except (P2PQueueError, SourceFailed, OSError) as error:
            if isinstance(error, PeerError) and not isinstance(error, LinkRefused):
                self._refuse(whose, str(error))
                return
            _log.info("no direct connection by way of the mailbox: %s", error)
        except Exception:  # noqa: BLE001  a third party's fault in one connection costs no other
            _log.exception("a direct connection by way of the mailbox met an error of its own")
