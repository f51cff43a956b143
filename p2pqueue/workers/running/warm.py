"""What does a node hold of one of its worker processes?

Its messages and its end come as events, one after the other; its output goes to the log of the attempt that it runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from p2pqueue.errors import ConfigError
from p2pqueue.workers.children.protocol import Leave, Message, Progress, Ready
from p2pqueue.workers.running import processes
from p2pqueue.workers.running.endpoint import Endpoint
from p2pqueue.workers.running.log import AttemptLog
from p2pqueue.workers.running.processes import Known
from p2pqueue.workers.running.spawn import spawn

START_PATIENCE = 120.0  # seconds for an application to load: some bring large libraries along
LEAVE_PATIENCE = 1.0  # seconds for a child's own tidying-up at an orderly end
HANG_UP_PATIENCE = 0.3  # seconds from a closed connection to the end of the process that closed it
_EVENTS = 32  # messages that wait to be dealt with before the child is read no further
_READ = 64 * 1024
_READS = 16  # reads of output before others get their turn
_EARLY = 4096  # bytes of output kept while no attempt runs
_POLL = 0.05  # seconds between looks for the end of a process, where the system can't tell


@dataclass(frozen=True)
class Exited:
    """The process has ended."""

    status: int  # negative: killed by that signal


@dataclass(frozen=True)
class HungUp:
    """The process can't be talked to any more."""

    reason: str


Event = Message | Exited | HungUp


class WarmChild:
    """One worker process, seen from its node. Made inside a running loop."""

    def __init__(self, application: str | None, home: Path, *, describe: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        started = spawn(application, home, describe=describe)
        self.root = started.root
        self.status: int | None = None
        self.idle_since = time.monotonic()
        self._process = started.process
        self._output = started.output
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._log: AttemptLog | None = None
        self._early = bytearray()
        self._echo = describe
        self._ready: Ready | None = None
        self._gone = asyncio.Event()
        self._hung = False
        self._pid_descriptor = _pid_descriptor(self._process.pid)
        self._endpoint = Endpoint(started.connection, self._push, self._hang_up)
        self._loop.add_reader(self._output, self._read_output)
        if self._pid_descriptor is not None:
            self._loop.add_reader(self._pid_descriptor, self._check_end)
        else:
            self._loop.call_later(_POLL, self._poll_end)

    @property
    def pid(self) -> int:
        """The id of the process, of its group and of its session."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Says whether it runs and can be talked to."""
        return self.status is None and not self._hung

    async def ready(self) -> Ready:
        """Waits until the application is loaded. Raises `ConfigError` in words where it can't be."""
        if self._ready is None:
            try:
                async with asyncio.timeout(START_PATIENCE):
                    event = await self.next()
                    if isinstance(event, HungUp):
                        event = await self.next()
            except TimeoutError:
                raise ConfigError(f"the application has not been loaded within {START_PATIENCE:.0f} s") from None
            if not isinstance(event, Ready):
                words = event.status if isinstance(event, Exited) else event
                raise ConfigError(f"the application can't be loaded: its process {describe_status(words)}{self._last_words()}")
            self._ready = event
            self._echo = False
        if self._ready.error is not None:
            raise ConfigError(self._ready.error)
        return self._ready

    async def next(self) -> Event:
        """The next event. Where many wait, the child is not read until they are dealt with."""
        while not self._events:
            self._news.clear()
            await self._news.wait()
        event = self._events.popleft()
        if len(self._events) < _EVENTS // 2:
            self._endpoint.resume()
        return event

    def send(self, message: Message) -> bool:
        """Sends a message without waiting; False where the child can't be reached."""
        return self._endpoint.send(message)

    # -- its output ---------------------------------------------------------------------------------------------------

    def begin_log(self, log: AttemptLog) -> None:
        """From now on its output belongs to an attempt."""
        self._drain()
        self._log = log

    def end_log(self) -> None:
        """Takes what is still in the pipe and closes the log."""
        self._drain()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _read_output(self) -> None:
        for _ in range(_READS):
            if not self._read_some():
                return

    def _drain(self) -> None:
        while self._output >= 0 and self._read_some():
            pass

    def _read_some(self) -> bool:
        try:
            data = os.read(self._output, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._output)
            return False
        if self._log is not None:
            self._log.write(data)
        else:
            self._early = (self._early + data)[-_EARLY:]
            if self._echo:
                sys.stderr.write(data.decode("utf-8", "replace"))
        return True

    def _last_words(self) -> str:
        self._drain()
        lines = [line.strip() for line in self._early.decode("utf-8", "replace").splitlines() if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""

    # -- its end ------------------------------------------------------------------------------------------------------

    async def is_gone(self, patience: float) -> bool:
        """Waits for its end, for so many seconds, and says whether it came."""
        try:
            async with asyncio.timeout(patience):
                await self._gone.wait()
        except TimeoutError:
            pass
        return self.status is not None

    def send_term(self) -> None:
        """Sends TERM to the process alone."""
        if self.status is None:
            self._process.terminate()

    async def leave(self) -> None:
        """Ends an idle child in an orderly way; kills it where it takes its time."""
        self.send(Leave())
        await self.is_gone(LEAVE_PATIENCE)
        await self.end(set())

    async def end(self, known: Known) -> bool:
        """Kills it and all that belongs to it; says whether all is gone. Closes everything."""
        gone = await asyncio.to_thread(processes.kill, self.root, known)
        ended = await self.is_gone(LEAVE_PATIENCE)
        self._close()
        return gone and ended

    def kill_now(self) -> None:
        """Kills it and all that belongs to it, blocking for some milliseconds: for when there is no more time."""
        processes.kill(self.root, set(), patience=0.1)
        self._process.poll()
        self._close()

    def _close(self) -> None:
        self.end_log()
        self._endpoint.close()
        if self._output >= 0:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = -1
        if self._pid_descriptor is not None:
            self._loop.remove_reader(self._pid_descriptor)
            os.close(self._pid_descriptor)
            self._pid_descriptor = None

    def _check_end(self) -> None:
        # Not reaped yet, it still holds the group's number, so this can't hit a stranger.
        processes.send_group(self.pid, processes.KILL)
        self.status = self._process.poll()
        if self.status is None:
            return
        if self._pid_descriptor is not None:
            self._loop.remove_reader(self._pid_descriptor)
        self._push(Exited(self.status))
        self._gone.set()

    def _poll_end(self) -> None:
        if self._output < 0:
            return
        self.status = self._process.poll()
        if self.status is None:
            self._loop.call_later(_POLL, self._poll_end)
        else:
            self._push(Exited(self.status))
            self._gone.set()

    def _hang_up(self, reason: str) -> None:
        self._hung = True
        self._push(HungUp(reason))

    def _push(self, event: Event) -> None:
        if isinstance(event, Progress) and self._events and isinstance(self._events[-1], Progress):
            self._events.pop()  # only the newest step counts
        self._events.append(event)
        if len(self._events) >= _EVENTS:
            self._endpoint.pause()
        self._news.set()


def describe_status(status: int | object) -> str:
    """How a process ended, in words."""
    if not isinstance(status, int):
        return f"is out of step ({status})"
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-status} ({name})"


def _pid_descriptor(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
