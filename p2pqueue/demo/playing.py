"""Who sees to it that nothing of the demo stays behind? A process that plays no part in it.

The story is told by a child process, inside of network namespaces where they can be had: in a process namespace whose
end is the end of all that is in it. The child ends when its stdin does, and what it leaves when it is killed goes with
its process group; so whichever of the two dies, the other tidies up.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from p2pqueue.demo.network import way_in

END_LIMIT = 30.0  # seconds for an orderly end: three nodes are stopped


def play(options: Sequence[str], *, loopback: bool, keep: bool) -> tuple[int, Path]:
    """Has the story told by a child, `p2pqueue OPTIONS demo …`; gives its exit code, and the folder, which is left only by `keep`.

    :param loopback: plays on the loopback interface also where network namespaces can be had.
    """
    way = None if loopback else way_in()
    folder = Path(tempfile.mkdtemp(prefix="p2pqueue-demo-"))
    words = ["demo", "--within", str(folder), "--on", "lo" if way is None else "namespaces", *(["--keep"] if keep else [])]
    try:
        return _run([*(way or ()), sys.executable, "-m", "p2pqueue", *options, *words]), folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _run(command: Sequence[str]) -> int:
    # In a session of its own, Ctrl-C reaches this process alone, which ends the story in order.
    child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert child.stdin is not None
    try:
        return child.wait()
    finally:
        child.stdin.close()
        try:
            child.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if hasattr(os, "killpg"):
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # as it should be: nobody is left


@contextmanager
def ends_with_stdin(folder: Path, *, keep: bool) -> Iterator[None]:
    """Ends the block in order when stdin ends: whoever started this process has gone, or wants the end. The folder goes then too."""
    ended = threading.Event()

    def wait() -> None:
        while os.read(0, 1):
            pass
        ended.set()
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    threading.Thread(target=wait, daemon=True, name="p2pqueue-demo-end").start()
    try:
        yield
    finally:
        if ended.is_set() and not keep:
            shutil.rmtree(folder, ignore_errors=True)
