"""When did a handler start? Handlers append the moment to a file that the benchmark reads.

`time.monotonic_ns` is one clock for all processes of a machine, so moments of different processes compare.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

ENVIRONMENT = "BENCH_MARKS"


def mark(sent_ns: int) -> None:
    """Appends (sent, started) as one line; a handler of every queue calls this first."""
    started = time.monotonic_ns()
    descriptor = os.open(os.environ[ENVIRONMENT], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, b"%d %d\n" % (sent_ns, started))
    os.close(descriptor)


class Marks:
    """The marks in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def environment(self) -> dict[str, str]:
        """What a consumer's environment needs for its handlers to find the file."""
        return {ENVIRONMENT: str(self.path)}

    def read(self) -> list[tuple[int, int]]:
        """All (sent, started) so far, in nanoseconds."""
        lines = self.path.read_bytes().splitlines()
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines if line.count(b" ") == 1]

    def wait(self, count: int, *, limit: float = 60.0) -> list[tuple[int, int]]:
        """Waits until there are `count` marks. Raises `TimeoutError` after `limit` seconds."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if len(found := self.read()) >= count:
                return found
            time.sleep(0.002)
        raise TimeoutError(f"{len(self.read())} of {count} handlers started in {limit} s")
