"""What ends the worker processes of a node that was killed, when they can't do it themselves?

Each child watches its node and kills all that it started. One that is stopped (SIGSTOP), or that never leaves a call
into C code, can't. So a node has one small process more, `python -m p2pqueue.workers.running.guard`, that knows its children:
when the node's end of a pipe closes, it kills what is left of them, and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from p2pqueue.workers.running.processes import Root, kill

PATIENCE = 0.3  # seconds that children have to end themselves
_READ = 64 * 1024


class Guard:
    """The node's side: tells the guard which children there are. Where it can't be started, the children watch alone."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._roots: set[Root] = set()

    def start(self) -> None:
        """Starts the guard, and tells it of all children that there are by now."""
        from p2pqueue.workers.running.spawn import environment

        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "p2pqueue.workers.running.guard"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True, env=environment(os.environ, Path(), ""),
            )  # fmt: skip
        except OSError:
            self._process = None
            return
        for root in self._roots:
            self._tell("+", root)

    def watch(self, root: Root) -> None:
        """Tells the guard of a child."""
        self._roots.add(root)
        if self._process is not None and self._process.poll() is not None:  # somebody killed it
            self.close(keep=True)
            self.start()
        else:
            self._tell("+", root)

    def release(self, root: Root) -> None:
        """Tells the guard that nothing of a child is left."""
        if root in self._roots:
            self._roots.discard(root)
            self._tell("-", root)

    def close(self, *, keep: bool = False) -> None:
        """Ends the guard."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        if not keep:
            self._roots.clear()
        try:
            process.stdin.close()
        except OSError:
            pass
        process.kill()
        process.wait()

    def _tell(self, sign: str, root: Root) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            os.write(self._process.stdin.fileno(), f"{sign} {root.pid} {root.started!r} {root.mark}\n".encode())
        except OSError:
            pass  # it is gone: the next child finds that out and starts another


def main() -> None:
    """The guard itself: reads until the node's end closes."""
    roots: set[Root] = set()
    rest = b""
    while data := os.read(0, _READ):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            sign, pid, started, mark = line.decode().split(" ")
            change = roots.add if sign == "+" else roots.discard
            change(Root(int(pid), float(started), mark))
    time.sleep(PATIENCE)
    for root in roots:
        kill(root, set())


if __name__ == "__main__":
    main()
