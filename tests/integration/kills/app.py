"""Which jobs run while nodes are killed? Each writes down that it ran, so that a success without a run would show."""

from __future__ import annotations

import os
import sys
import time

from p2pqueue import Queue, current_job

queue = Queue("kills")
RAN = "KILLS_RAN"  # the file that runs are written down in
ATTEMPTS = 10_000  # more than there are kills: no job may end for being interrupted


def _ran() -> None:
    descriptor = os.open(os.environ[RAN], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{current_job().id}\n".encode())
    os.close(descriptor)


@queue.task(inline=True, max_attempts=ATTEMPTS)
async def inline(number: int) -> int:
    """Runs in the node's own loop."""
    _ran()
    return number


@queue.task(max_attempts=ATTEMPTS)
def child(number: int) -> int:
    """Runs for a moment in a child process, with progress."""
    _ran()
    for step in range(5):
        time.sleep(0.01 * (number % 5))
        current_job().set_progress(step / 5, "at it")
    return number


@queue.task(max_attempts=ATTEMPTS)
def grandchild(number: int) -> int:
    """Runs a program that heeds no signal but the ninth."""
    _ran()
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(0.2)"
    current_job().run([sys.executable, "-S", "-c", stubborn])
    return number


@queue.task
def endless(number: int) -> None:
    """Runs a program that never ends, and heeds no signal but the ninth."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    current_job().set_progress(0.5, "at it")
    current_job().run([sys.executable, "-S", "-c", stubborn])
