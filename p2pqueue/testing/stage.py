"""What happens in a test, and when: devices in a folder for the while, and everything that can run runs at once."""

from __future__ import annotations

import asyncio
import contextvars
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from p2pqueue.errors import MisuseError, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.identity import keys
from p2pqueue.testing.clock import Clock
from p2pqueue.testing.device import Device
from p2pqueue.testing.fetching import fetch
from p2pqueue.testing.loop import LoopThread
from p2pqueue.testing.pipe import Pipe

if TYPE_CHECKING:
    from p2pqueue.jobs.queue import Queue

NAMES: Final = "abcdefghijklmnopqrstuvwxyz"


class Space:
    """The devices of a test, and the pipes between them: `a, b = space`.

    :ivar devices: the devices, in their order; of several that could run a job the first does.
    :ivar clock: the clock of all of them.
    """

    def __init__(self, queues: Sequence[Queue], names: Sequence[str], *, folder: Path, clock: Clock) -> None:
        self.clock = clock
        self._busy = threading.Lock()
        self._asked = False
        self._loop = LoopThread()
        self.devices: list[Device] = []
        self._pipes: list[Pipe] = []
        try:
            self._make(queues, names, folder)
        except BaseException:
            self.close()
            raise

    def _make(self, queues: Sequence[Queue], names: Sequence[str], folder: Path) -> None:
        first: keys.Identity | None = None
        for name in names:
            home = Home(folder / name)
            if first is None:
                first = keys.create(home, space_name="test", label=name)
            else:
                keys.restore(home, keys.export_space(first), name)
            self.devices.append(Device(queues, home, clock=self.clock, loop=self._loop, then=self.run_due, bring=self._bring))
        self._pipes = [Pipe(one.access, two.access) for one, two in combinations(self.devices, 2)]
        self.clock.follow(self._next_due, self._go_on)
        self.run_due()

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices)

    def cut(self, *devices: Device) -> None:
        """Parts these devices from all others, or without any named all from one another."""
        for pipe in self._between(devices):
            pipe.cut()

    def join(self, *devices: Device) -> None:
        """Joins these devices with all others, or without any named all; what can run then has run on return."""
        for pipe in self._between(devices):
            pipe.join()
        for device in self.devices:
            device.look_again()
        self.run_due()

    def run_due(self) -> bool:
        """Replicates between joined devices and runs what can run, till nothing is left; says whether anything ran.

        Called by itself after each write, and as the clock goes on. Within a handler it only stops what was cancelled.
        """
        self._asked, ran = True, False
        while self._asked and self._busy.acquire(blocking=False):
            try:
                while self._asked:
                    self._asked = False
                    ran = _outside_loops(self._run_all) or ran
            finally:
                self._busy.release()
        if self._asked:
            for device in self.devices:
                device.heed()
        return ran

    def close(self) -> None:
        """Closes everything."""
        self.clock.leave(self._go_on)
        for device in self.devices:
            device.close()
        self._loop.close()

    def _run_all(self) -> bool:
        ran, again = False, True
        while again:
            again = False
            for device in self.devices:
                self._replicate()
                again = device.run_due() or again
            ran = ran or again
        self._replicate()
        return ran

    def _replicate(self) -> None:
        while any(pipe.carry() for pipe in self._pipes):
            pass

    def _bring(self, device: Device, capability: str) -> None:
        """Fetches a file from a device that is joined with this one."""
        for pipe in self._pipes:
            if device.access in pipe.ends and pipe.is_joined:
                (other,) = [end for end in pipe.ends if end is not device.access]
                if other.shelf.holds(capability):
                    fetch(capability, other.shelf, device.access.shelf)
                    return
        raise PayloadUnavailable("no device that is joined with this one has the file")

    def _between(self, devices: Sequence[Device]) -> list[Pipe]:
        named = [device.access for device in devices or self.devices]
        return [pipe for pipe in self._pipes if any(end in named for end in pipe.ends)]

    def _next_due(self) -> int | None:
        return min((due for device in self.devices if (due := device.next_due()) is not None), default=None)

    def _go_on(self) -> bool:
        ran = self.run_due()
        if not self._busy.locked():  # a handler may let the clock advance
            for device in self.devices:
                device.tidy()
        return ran


@contextmanager
def space(*queues: Queue, devices: int | Sequence[str] = 2, clock: Clock | None = None) -> Iterator[Space]:
    """Several devices of one space in this process, for as long as the block lasts: `with testing.space(queue) as space:`.

    They replicate over pipes that `cut` parts and `join` joins; each job runs at once, on the first device that is
    able. The program of the test runs on the first device, unless it says `with device.here():`.

    :param devices: how many, called a, b, c and so on, or their names; default 2.
    :param clock: their clock; default a new one that stands still.
    """
    names = NAMES[:devices] if isinstance(devices, int) else list(devices)
    if not queues or not names:
        raise MisuseError("name the queues that the test uses, as in testing.space(queue), and at least one device")
    with tempfile.TemporaryDirectory(prefix="p2pqueue-test-", ignore_cleanup_errors=True) as folder:
        made = Space(queues, names, folder=Path(folder), clock=clock or Clock())
        try:
            with made.devices[0].here():
                yield made
        finally:
            made.close()


@contextmanager
def immediate(*queues: Queue, clock: Clock | None = None) -> Iterator[Device]:
    """Runs each job of these queues in this process as soon as it is enqueued, for as long as the block lasts.

    Gives the device that runs them: `with testing.immediate(queue) as device:`.

    :param clock: its clock, which is `device.clock`; default a new one that stands still.
    """
    with space(*queues, devices=["test"], clock=clock) as made:
        yield made.devices[0]


def _outside_loops(fn: Callable[[], bool]) -> bool:
    """Calls a function in this thread; in another one where a loop runs in this one, as handlers may run loops of their own."""
    if _running_loop() is None:
        return fn()
    with ThreadPoolExecutor(1, thread_name_prefix="p2pqueue-testing") as threads:
        return threads.submit(contextvars.copy_context().run, fn).result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
