"""How does a handler learn that it has to stop, without a message of ours being cut in two?

The node sends TERM. In the child it becomes `Cancelled`, raised in the main thread where the handler is; while a
message is sent or taken apart it waits until that is done. It is raised once: `finally` blocks run undisturbed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from p2pqueue.errors import Cancelled
from p2pqueue.workers.children.protocol import IDLE_END


class Interrupt:
    """The stop signal of one child process. `with interrupt:` puts it off for a few lines."""

    def __init__(self) -> None:
        self.stopping = False
        self.delivered = False
        self._main = threading.main_thread().ident
        self._open = False  # a handler runs: it may be raised in
        self._idle = False  # nothing runs: the process just ends
        self._holds = 0
        self._deliver_softly: Callable[[], object] | None = None

    def install(self) -> None:
        """Takes over TERM; again before each run, as a handler may have taken it for itself."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def open(self, softly: Callable[[], object] | None = None) -> None:
        """From now on TERM raises `Cancelled` here, or calls `softly` in its place; at once where TERM came before."""
        self._deliver_softly = softly
        self._open = True
        if self.stopping:
            self._deliver()

    def close(self) -> None:
        """From now on TERM is only noted."""
        self._open = False
        self._deliver_softly = None

    def rest(self, wait: Callable[[], bytes]) -> bytes:
        """Waits for something while nothing runs: TERM ends the process."""
        self._idle = True
        try:
            if self.stopping:
                raise SystemExit(IDLE_END)
            return wait()
        finally:
            self._idle = False

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:  # Python runs signal handlers in the main thread alone
            self._holds += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() == self._main:
            self._holds -= 1
            if self.stopping and not self._holds:
                self._deliver()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True
        if self._idle:
            raise SystemExit(IDLE_END)
        if not self._holds:
            self._deliver()

    def _deliver(self) -> None:
        if not self._open or self.delivered:
            return
        self.delivered = True
        if self._deliver_softly is not None:
            self._deliver_softly()
        else:
            raise Cancelled("the node stopped this job")

    def after_fork(self) -> None:
        """In a process that a handler forked: TERM ends it, as in any other."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._main = threading.get_ident()
