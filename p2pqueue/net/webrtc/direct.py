"""How do two linked devices come to speak over WebRTC, and what when that doesn't work, or no longer?

Two connections: `control` for rows and signals, and `bulk`, opened when it is asked for. The device with the lower id
offers, the other answers; every attempt has a generation, and the newest counts::

    lower                            higher
      offer, generation g     ───>
                              <───   answer, g              both connect
      broken, g               <──>   broken, g              it failed or ended: the link carries on, and the
                                                            lower offers g+1 after a while
                              <───   ask                    the higher wants `bulk`

The steps go over the link. Whatever goes wrong here costs speed and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from p2pqueue.errors import ConnectFailed, NoBulk
from p2pqueue.net.framing import NUMBERS
from p2pqueue.net.heartbeat import EVERY, Heartbeat
from p2pqueue.net.notes import Ping, Pong, Signalling, read_note, shown
from p2pqueue.net.signalling import Ends, Step
from p2pqueue.net.webrtc.bulk import BULK_BUFFER, BulkChannel
from p2pqueue.net.webrtc.channel import CONTROL_BUFFER, ControlChannel
from p2pqueue.net.webrtc.line import Connection, Line
from p2pqueue.net.webrtc.signal import RtcSignal

ANSWER_WAIT = 5.0  # seconds for the answer to an offer, which takes some milliseconds
FIRST_RETRY = 1.0  # seconds until the next generation; doubled while it fails
LONGEST_RETRY = 30.0  # seconds: UDP may be allowed again at any time
STEADY = 30.0  # seconds after which a connection that ends begins with the first retry again
WORDS_LIMIT = 200  # characters of a reason that the other side tells
BULK_WAIT = 14.0  # seconds for a bulk connection: an answer, connecting, and some slack

_NET = NUMBERS["net"]
_log = logging.getLogger(__name__)


class Direct:
    """The WebRTC connections to one peer.

    :param connect: makes a connection, given whether this side controls it and how much may be buffered.
    :param tell: sends a note over the link.
    :param on_message: gets the topic's number and each message that comes over `control`.
    :param on_bulk: gets each bulk channel, whichever side asked for it.
    """

    def __init__(
        self, ends: Ends, *, connect: Callable[[bool, int], Any], tell: Callable[[bytes], object], on_message: Callable[[int, bytes], None],
        on_bulk: Callable[[BulkChannel], None], beat_every: float = EVERY, first_retry: float = FIRST_RETRY,
    ) -> None:  # fmt: skip
        self.why: str | None = None
        self._ends = ends
        self._connect = connect
        self._tell = tell
        self._on_message = on_message
        self._on_bulk = on_bulk
        self._beat_every = beat_every
        self._first_retry = first_retry
        self._control = Line("control")
        self._bulk = Line("bulk")
        self._heartbeat: Heartbeat | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._hurry = asyncio.Event()
        self._begun = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._closing: set[ControlChannel | BulkChannel] = set()

    @property
    def control(self) -> ControlChannel | None:
        """The channel for rows and signals, while it is open."""
        channel = self._control.channel
        return channel if isinstance(channel, ControlChannel) and channel.open else None

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The round trip over `control`, while it is open; known to the side that offers, which alone asks."""
        return self._heartbeat

    async def run(self) -> None:
        """Builds and keeps the connections until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._begun.set()
                try:
                    if self._ends.offers:
                        await self._keep_control()
                    else:
                        await asyncio.get_running_loop().create_future()
                finally:
                    self._group = None  # what ends now needs no successor
        finally:
            self._begun.set()
            await self._end_all()

    def received(self, note: Signalling) -> None:
        """Takes a step of the other side. Raises `PeerError`s for what can't be one."""
        step = self._ends.read_step(note)
        if step is None or self._group is None:
            return
        line = self._control if step.purpose == "control" else self._bulk
        if step.kind == "offer" and not self._ends.offers and step.generation > line.generation:
            line.generation = step.generation
            self._begin(line, partial(self._attempt, line, step.generation, RtcSignal.unpack(step.signal)))
        elif step.kind == "answer" and step.generation == line.generation and line.answer is not None and not line.answer.done():
            line.answer.set_result(RtcSignal.unpack(step.signal))
        elif step.kind == "broken" and step.generation == line.generation:
            self._give_up(line, shown(step.signal.decode(errors="replace"), WORDS_LIMIT) or "the other device gave it up")
        elif step.kind == "ask" and self._ends.offers and line is self._bulk:
            self._offer_bulk()

    def hurry(self) -> None:
        """The network has changed: it is worth trying at once."""
        self._hurry.set()

    async def bulk(self) -> BulkChannel:
        """The connection for large transfers. Raises `NoBulk` in words."""
        line = self._bulk
        if isinstance(line.channel, BulkChannel) and line.channel.open:
            return line.channel
        await self._begun.wait()
        if self._group is None or (self.control is None and self.why is not None):
            raise NoBulk(self.why or "the link has ended")
        waiter: asyncio.Future[BulkChannel] = asyncio.get_running_loop().create_future()
        line.waiting.append(waiter)
        if self._ends.offers:
            self._offer_bulk()
        else:
            self._say(Step("ask", "bulk", line.generation))
        try:
            async with asyncio.timeout(BULK_WAIT):
                return await waiter
        except TimeoutError:
            raise NoBulk("no second connection came about in time") from None
        finally:
            if waiter in line.waiting:
                line.waiting.remove(waiter)

    # -- the side that offers ---------------------------------------------------------------------------------

    async def _keep_control(self) -> None:
        line, retry = self._control, self._first_retry
        while True:
            self._hurry.clear()
            begun = time.monotonic()
            await self._guarded(partial(self._offer, line))
            while self.control is not None:
                await line.over.wait()
            if time.monotonic() - begun > STEADY:
                retry = self._first_retry
            try:
                async with asyncio.timeout(retry):
                    await self._hurry.wait()
                retry = self._first_retry
            except TimeoutError:
                retry = min(2 * retry, LONGEST_RETRY)

    def _offer_bulk(self) -> None:
        if not self._bulk.trying:
            self._begin(self._bulk, partial(self._offer, self._bulk))

    async def _offer(self, line: Line) -> None:
        """One attempt. However it fails is told to the other side, and kept in words."""
        line.generation = max(line.generation + 1, int(time.time() * 1000))
        line.answer = asyncio.get_running_loop().create_future()
        await self._attempt(line, line.generation, line.answer)

    # -- both sides -------------------------------------------------------------------------------------------

    async def _attempt(self, line: Line, generation: int, remote: RtcSignal | asyncio.Future[RtcSignal]) -> None:
        """Makes a connection, says how to reach it, and connects it; `remote` is there already where this side answers."""
        connection: Connection = self._connect(self._ends.offers, CONTROL_BUFFER if line.purpose == "control" else BULK_BUFFER)
        line.connecting = connection
        opened = False
        try:
            signal = await connection.offer()
            self._say(Step("offer" if isinstance(remote, asyncio.Future) else "answer", line.purpose, generation, signal.pack()))
            if isinstance(remote, asyncio.Future):
                async with asyncio.timeout(ANSWER_WAIT):
                    remote = await remote
            await connection.connect(remote)
            if line.connecting is connection:
                self._open(line, generation, connection)
                opened = True
        except TimeoutError:
            self._fail(line, generation, "the other device doesn't answer an offer of a direct connection")
        except ConnectFailed as error:
            self._fail(line, generation, str(error))
        finally:
            if line.connecting is connection:
                line.connecting, line.trying = None, False
            if not opened:
                await connection.close()

    def _open(self, line: Line, generation: int, connection: Any) -> None:
        old, line.channel, line.over, line.trying = line.channel, None, asyncio.Event(), False

        def ended(why: str) -> None:
            self._ended(line, channel, generation, why)

        channel: ControlChannel | BulkChannel
        if line.purpose == "control":
            channel = line.channel = ControlChannel(connection, on_message=self._received, on_closed=ended)
            self.why = None
            self._start_beating()
        else:
            channel = line.channel = BulkChannel(connection, on_closed=ended)
            waiting, line.waiting = line.waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(channel)
            self._on_bulk(channel)
        if old is not None:
            self._close(old)

    def _fail(self, line: Line, generation: int, why: str) -> None:
        """An attempt came to nothing."""
        _log.info("no direct connection (%s) to %s: %s", line.purpose, self._ends.theirs[:8], why)
        if line.generation == generation:
            line.trying = False
            self._explain(line, why)
            self._say(Step("broken", line.purpose, generation, why.encode()))

    def _ended(self, line: Line, channel: ControlChannel | BulkChannel, generation: int, why: str) -> None:
        """A channel that was open is closed, by whatever."""
        if line.channel is channel:
            _log.info("the direct connection (%s) to %s ended: %s", line.purpose, self._ends.theirs[:8], why)
            self._say(Step("broken", line.purpose, generation, why.encode()))
            self._give_up(line, why)

    def _give_up(self, line: Line, why: str) -> None:
        """This generation is over."""
        if not line.is_alive:
            return  # it failed here as well, for a reason that is known
        channel, line.channel = line.channel, None
        if channel is not None:
            self._close(channel)
        if line.answer is not None and not line.answer.done():
            line.answer.set_exception(ConnectFailed(why))
        if line.connecting is not None:
            line.connecting.lose(why)
        line.trying = False
        self._explain(line, why)
        line.over.set()
        if line is self._control and channel is not None:
            self._stop_beating()

    def _explain(self, line: Line, why: str) -> None:
        if line is self._control:
            self.why = why
        waiting, line.waiting = line.waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(NoBulk(why))

    def _received(self, topic: int, message: bytes) -> None:
        if topic != _NET:
            self._on_message(topic, message)
            return
        match read_note(message):
            case Ping(number):
                if self.control is not None:
                    self.control.send_soon(_NET, Pong(number, time.time()).pack())
            case Pong(number, wall) if self._heartbeat is not None:
                self._heartbeat.answered(number, now=time.monotonic(), their_wall=wall, wall=time.time())
            case _:
                pass

    # -- the heartbeat of control: what isn't acknowledged closes the channel ---------------------------------

    def _start_beating(self) -> None:
        self._stop_beating()
        self._heartbeat = Heartbeat(time.monotonic(), every=self._beat_every)
        self._ask()

    def _ask(self) -> None:
        if self._heartbeat is not None and self.control is not None:
            if (number := self._heartbeat.look(time.monotonic())) is not None and self._ends.offers:
                self.control.send_soon(_NET, Ping(number).pack())  # the answer is acknowledged as well: it proves both ways
            self._beat = asyncio.get_running_loop().call_later(self._beat_every, self._ask)

    def _stop_beating(self) -> None:
        self._heartbeat = None
        if self._beat is not None:
            self._beat.cancel()

    # -- tasks ------------------------------------------------------------------------------------------------

    def _begin(self, line: Line, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if line.attempt is not None:
            line.attempt.cancel()
        line.trying = True
        line.attempt = self._spawn(attempt)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[None] | None:
        if self._group is None:
            return None
        return self._group.create_task(self._guarded(work))

    def _close(self, channel: ControlChannel | BulkChannel) -> None:
        """Closes a channel beside everything else; at the latest when the link ends."""
        self._closing.add(channel)

        async def close() -> None:
            await channel.close()
            self._closing.discard(channel)

        self._spawn(close)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            await work()  # made here: a task that is cancelled before it begins leaves nothing that was never awaited
        except Exception:  # noqa: BLE001  whatever a third party does in a connection, the others go on
            _log.exception("a direct connection to %s met an error of its own", self._ends.theirs[:8])

    async def _end_all(self) -> None:
        self._stop_beating()
        for line in (self._control, self._bulk):
            self._explain(line, "the link has ended")
            channel, line.channel = line.channel, None
            if channel is not None:
                await channel.close()
        for left in list(self._closing):
            await left.close()
        self._closing.clear()

    def _say(self, step: Step) -> None:
        if self._group is not None:
            self._tell(self._ends.sign_step(step).pack())
