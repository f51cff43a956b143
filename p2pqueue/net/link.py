"""How do messages travel over an authenticated connection until it ends, and how is its end noticed?

One task reads and one writes; heartbeats are timers. A message costs no task. Whatever ends the link, `run` returns the
reason in words.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from p2pqueue.errors import LinkRefused, PeerError
from p2pqueue.net import codes
from p2pqueue.net.framing import Assembler, Topic
from p2pqueue.net.greeting import Greeted
from p2pqueue.net.heartbeat import Heartbeat
from p2pqueue.net.notes import About, Bye, Note, Ping, Pong, Signalling, Twin, read_note
from p2pqueue.net.outbox import Outbox
from p2pqueue.net.pipe import AnyPipe

GOODBYE_WAIT = 0.5  # seconds for what waits, and for the goodbye, to get out

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Beat:
    """How often a link asks whether the other side is there, and how long it waits, in seconds."""

    every: float = 2.0
    dead_after: float = 6.0


@dataclass(frozen=True)
class Ending:
    """Why a link ended."""

    code: int
    why: str
    wordless: bool = False  # the connection was closed or reset, and nobody said why


class Link:
    """One sealed connection between two devices.

    :param on_message: gets every message but the link's own; it may not raise, and not wait.
    :param on_note: gets what the other side tells of WebRTC, of itself and of twins.
    """

    def __init__(
        self, pipe: AnyPipe, greeted: Greeted, *, on_message: Callable[[Topic, bytes], None], on_note: Callable[[Note], None],
        beat: Beat = Beat(),
    ) -> None:  # fmt: skip
        self.pipe = pipe
        self.greeted = greeted
        self.outbox = Outbox()
        self.heartbeat = Heartbeat(time.monotonic(), every=beat.every, dead_after=beat.dead_after)
        self._on_message = on_message
        self._on_note = on_note
        self._said_bye: str | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> Ending:
        """Carries messages until the link ends; tells why it did. The connection is then to be closed."""
        ending = Ending(codes.BYE, "this device stopped")
        try:
            async with asyncio.TaskGroup() as group:
                ends = [group.create_task(self._until_it_fails(end)) for end in (self._read, self._write)]
                self._tick()
                try:
                    ending = await self._ended
                finally:
                    for end in ends:
                        end.cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if not self._ended.done():
                self._ended.set_result(ending)
            self.outbox.close(ending.why)
        return ending

    async def close(self) -> None:
        """Closes the connection with the code of the ending, at once where nothing gets through any more."""
        code = self._ended.result().code if self._ended.done() else codes.BYE
        if code == codes.LOST:
            self.pipe.cut()
        await self.pipe.close(code)

    def end(self, code: int, why: str) -> None:
        """Ends the link: `run` returns soon."""
        if not self._ended.done():
            self._ended.set_result(Ending(code, why))

    @property
    def is_over(self) -> bool:
        """Says whether the link has ended, or is about to."""
        return self._ended.done()

    @property
    def ended_wordless(self) -> bool:
        """Says whether the connection ended from outside, and nobody said why."""
        return self._ended.done() and self._ended.result().wordless

    async def leave(self, reason: str) -> None:
        """Says goodbye and ends the link, once what waits has gone out or half a second has passed."""
        self.outbox.offer("net", Bye(reason).pack())
        try:
            async with asyncio.timeout(GOODBYE_WAIT):
                await self.outbox.emptied()
        except TimeoutError:
            pass
        self.end(codes.BYE, reason)

    def pause(self) -> None:
        """Reads nothing more: the other side will have to wait once the buffers are full."""
        self._may_read.clear()

    def resume(self) -> None:
        """Reads on."""
        self.heartbeat.heard(time.monotonic())  # nobody listened meanwhile
        self._may_read.set()

    async def _until_it_fails(self, end: Callable[[], Awaitable[None]]) -> None:
        try:
            await end()
        except LinkRefused as error:
            self._end_outside(error.code or codes.LOST, str(error), wordless=error.code not in codes.WORDS)
        except PeerError as error:
            _log.warning("%s sent something that can't be accepted: %s", self.greeted.device_id, error)
            self.end(codes.MALFORMED, str(error))
        except OSError:
            self._end_outside(codes.LOST, "the connection was lost", wordless=True)
        except Exception:  # noqa: BLE001  a fault of ours, in a callback too, costs this link and not the node
            _log.exception("the link to %s is dropped", self.greeted.device_id)
            self.end(codes.FAULT, "a message could not be dealt with")

    def _end_outside(self, code: int, why: str, *, wordless: bool) -> None:
        if not self._ended.done():
            said = self._said_bye
            self._ended.set_result(Ending(code, said or why, wordless=wordless and said is None))

    async def _read(self) -> None:
        receive, open_, take, heard = self.pipe.receive, self.greeted.opener.open, Assembler().take, self.heartbeat.heard
        while not self._ended.done():
            if not self._may_read.is_set():
                await self._may_read.wait()
            frame = open_(await receive())
            heard(time.monotonic())
            if (taken := take(frame)) is not None:
                topic, message = taken
                if topic == "net":
                    self._note(message)
                elif topic is not None:
                    self._on_message(topic, message)

    async def _write(self) -> None:
        send, seal, following = self.pipe.send, self.greeted.sealer.seal, self.outbox.next
        while True:
            await send(seal(await following()))

    def _note(self, message: bytes) -> None:
        match read_note(message):
            case Ping(number):
                self.outbox.offer("net", Pong(number, time.time()).pack())
            case Pong(number, wall):
                self.heartbeat.answered(number, now=time.monotonic(), their_wall=wall, wall=time.time())
            case Bye(reason):
                self._said_bye = f"it left: {reason}" if reason else "it left"
            case About() | Signalling() | Twin() as note:
                self._on_note(note)
            case None:
                pass

    def _tick(self) -> None:
        now = time.monotonic()
        if not self._may_read.is_set():
            self.heartbeat.heard(now)  # nobody listens: that says nothing about the other side
        if (number := self.heartbeat.look(now)) is not None:
            self.outbox.offer("net", Ping(number).pack())
        if self.heartbeat.is_dead(now):
            self.end(codes.LOST, "nothing was heard from it for a while")
            return
        self._timer = asyncio.get_running_loop().call_later(max(0.001, self.heartbeat.next_due() - now), self._tick)
