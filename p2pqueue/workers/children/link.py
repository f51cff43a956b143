"""How does a child talk to its node?

Plain reads and writes on the descriptor that it was given. Any thread of the handler may send; answers are waited
for one at a time. Progress never holds a handler up: what can't be sent now waits, and only the newest is sent.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Final, NoReturn

from p2pqueue.errors import P2PQueueError
from p2pqueue.workers.children.interrupt import Interrupt
from p2pqueue.workers.children.protocol import Checkpoint, Decoder, Message, Progress, Reply, Request, Stop, encode

PROGRESS_EVERY: Final = 0.02  # seconds between two steps that are sent
_READ = 64 * 1024


def _wait_for_the_end() -> NoReturn:
    """The node is gone: the thread that watches for this kills the process, with all that it started."""
    while True:
        time.sleep(1.0)


class Link:
    """A child's end of the socket pair."""

    def __init__(self, descriptor: int, interrupt: Interrupt) -> None:
        self.descriptor = descriptor
        self._interrupt = interrupt
        self._decoder = Decoder()
        self._sending = threading.RLock()
        self._asking = threading.Lock()
        self._number = 0
        self._why: str | None = None  # the node stops the handler, where it has said so
        self._pending: Progress | None = None
        self._sent_at = 0.0
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def send(self, message: Message) -> None:
        """Sends a message, whole: it can't be interrupted half-way. Raises `ArgumentError` for what can't be carried."""
        data = memoryview(encode(message))
        with self._interrupt, self._sending:
            try:
                while data:
                    data = data[os.write(self.descriptor, data) :]
            except (BrokenPipeError, ConnectionResetError):
                _wait_for_the_end()

    def receive(self) -> Message:
        """The next message, waited for while nothing runs."""
        while True:
            message = self._decoder.next()
            if message is not None:
                return message
            data = self._interrupt.rest(lambda: os.read(self.descriptor, _READ))
            self._take(data)

    def ask(self, kind: str, state: bytes | None = None, **fields: object) -> object:
        """Sends a checkpoint (with `state`) or a request, and waits for the answer.

        Raises `P2PQueueError` with the node's words where it answers with an error.
        """
        with self._asking:
            self._number += 1
            number = self._number
            self.send(Request(number, kind, fields) if state is None else Checkpoint(number, state))
            while True:
                with self._interrupt:
                    message = self._decoder.next()
                if isinstance(message, Stop):
                    self._why = message.why
                if isinstance(message, Reply) and message.number == number:  # an older one belongs to a wait that was given up
                    break
                if message is None:
                    self._wait()
        if message.error is not None:
            raise P2PQueueError(message.error)
        return message.value

    def reason(self) -> str:
        """Why the node stops the handler: its word, or "stopped" where none has come."""
        with self._asking, self._interrupt:
            while self._why is None and self._can(select.POLLIN):
                self._take(os.read(self.descriptor, _READ))
                while (message := self._decoder.next()) is not None:
                    if isinstance(message, Stop):
                        self._why = message.why
        return self._why or "stopped"

    # -- progress -------------------------------------------------------------------------------------------------

    def progress(self, fraction: float, phase: str | None) -> None:
        """Tells progress: at once, or where that was less than a moment ago, a moment later."""
        with self._interrupt, self._sending:
            pending, self._pending = self._pending, Progress(fraction, phase)
            if phase is None and pending is not None:
                self._pending = Progress(fraction, pending.phase)
            if time.monotonic() - self._sent_at >= PROGRESS_EVERY and self._is_writable():
                self.flush()
            elif pending is None:
                self._wake()

    def flush(self) -> None:
        """Sends the progress that waits, if any."""
        with self._interrupt, self._sending:
            pending, self._pending = self._pending, None
            if pending is not None:
                self._sent_at = time.monotonic()
                self.send(pending)

    def watch(self) -> None:
        """Returns when the node is gone; meanwhile sends progress that waits. For a thread of its own."""
        poll = select.poll()
        poll.register(self.descriptor, 0)  # hang-up alone: the main thread reads what comes
        poll.register(self._wake_read, select.POLLIN)
        while True:
            wait = None if self._pending is None else max(1, round(1000 * (self._sent_at + PROGRESS_EVERY - time.monotonic())))
            for descriptor, _ in poll.poll(wait):
                if descriptor == self.descriptor:
                    return
                os.read(self._wake_read, 64)
            self._flush_when_due()

    def _flush_when_due(self) -> None:
        if self._pending is None or time.monotonic() - self._sent_at < PROGRESS_EVERY:
            return
        if self._sending.acquire(blocking=False):  # who sends just now looks after it
            try:
                if self._is_writable():
                    self.flush()
                else:
                    self._sent_at = time.monotonic()
            finally:
                self._sending.release()

    # -- inside ---------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """In a process that a handler forked: the link belongs to the other one."""
        self._sending = threading.RLock()
        self._asking = threading.Lock()
        for descriptor in (self.descriptor, self._wake_read, self._wake_write):
            try:
                os.close(descriptor)
            except OSError:
                pass
        self.descriptor = -1

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        poll.poll()  # here the handler may be interrupted; not while bytes are taken in
        with self._interrupt:
            self._take(os.read(self.descriptor, _READ))

    def _take(self, data: bytes) -> None:
        if not data:
            _wait_for_the_end()
        self._decoder.feed(data)

    def _is_writable(self) -> bool:
        return self._can(select.POLLOUT)

    def _can(self, event: int) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, event)
        return bool(poll.poll(0))

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass
