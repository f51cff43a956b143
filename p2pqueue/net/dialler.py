"""How are the devices that are not linked dialled, all of their addresses raced, until they are?

`DialSchedule` decides when and whom; this opens the connections. The first address that is greeted wins; the others are
given up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp

from p2pqueue.errors import LinkRefused, PeerError
from p2pqueue.net import codes, opening
from p2pqueue.net.addresses import AddressBook, Endpoint
from p2pqueue.net.dialling import Attempt, DialSchedule, Start, race
from p2pqueue.net.greeting import Desk, Duplicate, Greeted, dial
from p2pqueue.net.pipe import Pipe

LOOK_EVERY = 2.0  # seconds between two looks at who is known, where nothing is due before
TOLD_LIMIT = 16  # addresses whose trouble is remembered
SILENT_LIMIT = 256  # addresses of which is remembered why they gave no answer

_WON = 0  # the outcome of an address that led to a link
_FINAL = (codes.STRANGER, codes.REFUSED, codes.OTHER_PROTOCOL, codes.MYSELF, codes.CLONE)  # trying again soon changes nothing
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trouble:
    """Why an address could not be linked."""

    address: Endpoint
    words: str


class Dialler:
    """Dials for ever.

    :param adopt: takes a connection that was greeted, and makes it a link at once; raises `LinkRefused`.
    :param is_linked: says whether a device is linked now.
    :param wanted: the ids of the devices to be linked to.
    :param on_nobody: told of an address whose machine says that nobody listens there.
    """

    def __init__(
        self, schedule: DialSchedule, book: AddressBook, *, desk: Desk, adopt: Callable[[Pipe, Greeted, Endpoint], None],
        wanted: Callable[[], Iterable[str]], is_linked: Callable[[str], bool], on_nobody: Callable[[Endpoint], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.schedule = schedule
        self._book = book
        self._desk = desk
        self._adopt = adopt
        self._wanted = wanted
        self._is_linked = is_linked
        self._on_nobody = on_nobody
        self._poke = asyncio.Event()
        self._troubles: dict[Endpoint, str] = {}
        self._silent: dict[Endpoint, str] = {}  # why an address gave no answer, the last time
        self._told: deque[Endpoint] = deque(maxlen=4 * TOLD_LIMIT)

    @property
    def troubles(self) -> list[Trouble]:
        """What stands in the way of links, by address."""
        return [Trouble(address, words) for address, words in self._troubles.items()]

    def unreached(self, now: float) -> list[dict[str, Any]]:
        """The addresses of `--peer` where nobody is linked: what was said last, how often they were tried, and when they are again."""
        return [
            {"address": list(each.address), "why": self._troubles.get(each.address) or self._silent.get(each.address),
             "tries": each.failures, "again_in": round(each.again_in, 3)}
            for each in self.schedule.named(now)
        ]  # fmt: skip

    def hurry(self) -> None:
        """Something in the schedule changed."""
        self._poke.set()

    async def run(self, client: aiohttp.ClientSession) -> None:
        """Dials until it is cancelled. The connections last as long as `client`."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._poke.clear()
                now = time.monotonic()
                self.schedule.know(self._wanted(), now)
                for attempt in self.schedule.due(now):
                    group.create_task(self._try(client, attempt))
                due = self.schedule.next_due(now)
                wait = LOOK_EVERY if due is None else min(LOOK_EVERY, max(due - now, 0.01))
                try:
                    async with asyncio.timeout(wait):
                        await self._poke.wait()
                except TimeoutError:
                    pass

    async def _try(self, client: aiohttp.ClientSession, attempt: Attempt) -> None:
        """One race. Nothing that happens in it ends the dialling of others."""
        outcomes: list[int] = []
        try:
            async with asyncio.TaskGroup() as group:
                racers = [group.create_task(self._race(client, attempt, start, outcomes)) for start in race(attempt.addresses)]

                def settle(done: asyncio.Task[bool]) -> None:
                    if not done.cancelled() and done.exception() is None and done.result():
                        for racer in racers:
                            racer.cancel()

                for racer in racers:
                    racer.add_done_callback(settle)
        except Exception:  # noqa: BLE001  one bad address costs its own attempt
            _log.exception("dialling %s failed in a way that was not foreseen", attempt.target)
        if _WON not in outcomes:
            refused = bool(outcomes) and all(code in _FINAL for code in outcomes)
            self.schedule.failed(attempt.target, time.monotonic(), refused=refused, twin=codes.CLONE in outcomes)
        self.hurry()

    async def _race(self, client: aiohttp.ClientSession, attempt: Attempt, start: Start, outcomes: list[int]) -> bool:
        """One address of a race; says whether it settled the race. Puts the code of a refusal into `outcomes`."""
        address = start.address
        await asyncio.sleep(start.after)
        try:
            outcomes.append(await self._dial(client, attempt, address))
            self._troubles.pop(address, None)
            return True
        except PeerError as error:
            code = getattr(error, "code", 0) or codes.MALFORMED
            if code == codes.MYSELF and attempt.device is not None:
                self._troubles.pop(address, None)  # where that device was once: nobody named it
            elif code != codes.BYE:  # it is just leaving, as devices do
                self._note(address, str(error))
            outcomes.append(code)
        except (OSError, aiohttp.ClientError, TimeoutError, ValueError) as error:
            _log.debug("%s:%d doesn't answer: %r", *address, error)
            self._troubles.pop(address, None)
            self._silent[address] = _words(error)
            while len(self._silent) > SILENT_LIMIT:
                del self._silent[next(iter(self._silent))]
            outcomes.append(codes.LOST)
            if isinstance(getattr(error, "os_error", error), ConnectionRefusedError):
                self._on_nobody(address)
        return False

    async def _dial(self, client: aiohttp.ClientSession, attempt: Attempt, address: Endpoint) -> int:
        pipe = await opening.open_pipe(client, *address)
        greeted = await dial(pipe, self._desk)
        device = greeted.device_id
        if attempt.device is not None and device != attempt.device:
            self._book.forget(attempt.device, *address)
        try:
            self._adopt(pipe, greeted, address)
        except Duplicate:
            linked = self._is_linked(device)
            if linked:
                self.schedule.linked(device, target=attempt.target, at=address)
            await pipe.close(codes.DUPLICATE)
            return _WON if linked else codes.DUPLICATE
        except LinkRefused as error:
            await pipe.close(error.code)
            raise
        self.schedule.linked(device, target=attempt.target, at=address)
        self._book.note_good(device, *address, int(time.time() * 1000))
        return _WON

    def _note(self, address: Endpoint, words: str) -> None:
        if self._troubles.get(address) != words and address not in self._told:
            self._told.append(address)
            _log.warning("%s:%d can't be linked: %s", *address, words)
        self._troubles[address] = words
        while len(self._troubles) > TOLD_LIMIT:
            del self._troubles[next(iter(self._troubles))]


def _words(error: Exception) -> str:
    """Why an address gave no answer."""
    if isinstance(error, TimeoutError):
        return f"no answer within {opening.CONNECT_WAIT:g} s"
    found = getattr(error, "os_error", error)
    if isinstance(found, OSError):
        return os.strerror(found.errno) if found.errno and found.errno > 0 else found.strerror or str(found)
    return "what answers there is no node of p2pqueue"
