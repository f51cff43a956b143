"""How is a worker process started?

By exec of the interpreter in a session of its own, with one end of a socket pair, an empty stdin, and a pipe for all
that it prints. Its environment is the node's, without the settings and secrets of p2pqueue.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import p2pqueue
from p2pqueue.errors import WorldError
from p2pqueue.home import HOME_VARIABLE
from p2pqueue.workers.running.processes import MARK_VARIABLE, Root, root_of

PATH_VARIABLE = "P2PQUEUE_CHILD_PYTHONPATH"
FOLDERS_VARIABLE = "P2PQUEUE_CHILD_FOLDERS"


@dataclass(frozen=True)
class Started:
    """A process that was started, and the node's ends of what connects it."""

    process: subprocess.Popen[bytes]
    root: Root
    connection: socket.socket
    output: int  # descriptor of the reading end of its stdout and stderr


def spawn(application: str | None, home: Path, *, describe: bool) -> Started:
    """Starts a child. Raises `WorldError` where the system allows no further process or descriptor."""
    if not hasattr(os, "killpg"):
        raise WorldError("worker processes need a Unix system; only inline tasks can run here")
    command = [sys.executable, "-P", "-m", "p2pqueue.workers.children.child"]
    try:
        mine, theirs = socket.socketpair()
    except OSError as error:
        raise WorldError(f"no worker process can be started: {error.strerror}") from error
    words = [str(theirs.fileno()), *([application] if application else []), *(["--describe"] if describe else [])]
    reading = writing = -1
    try:
        reading, writing = os.pipe()
        mark = secrets.token_hex(8)
        process = subprocess.Popen(
            command + words, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, pass_fds=(theirs.fileno(),),
            start_new_session=True, env=environment(os.environ, home, mark),
        )  # fmt: skip
    except OSError as error:
        mine.close()
        if reading >= 0:
            os.close(reading)
        raise WorldError(f"no worker process can be started: {error.strerror}") from error
    finally:
        theirs.close()
        if writing >= 0:
            os.close(writing)
    mine.setblocking(False)
    os.set_blocking(reading, False)
    return Started(process, root_of(process.pid, mark), mine, reading)


def environment(outer: Mapping[str, str], home: Path, mark: str) -> dict[str, str]:
    """The environment of a child: the node's own, but of p2pqueue only the home, and what the child itself needs."""
    inner = {name: value for name, value in outer.items() if not name.startswith("P2PQUEUE_")}
    inner[HOME_VARIABLE] = str(home)
    inner[MARK_VARIABLE] = mark
    inner[FOLDERS_VARIABLE] = os.pathsep.join(_folders())
    package = str(Path(p2pqueue.__file__).resolve().parent.parent)
    if not _is_installed(package):
        before = inner.get("PYTHONPATH", "")
        inner[PATH_VARIABLE] = before
        inner["PYTHONPATH"] = package + (os.pathsep + before if before else "")
    return inner


def _folders() -> list[str]:
    """Where the node's own program finds its modules, beside the standard library and what is installed."""
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(sys.executable)}
    found = [os.path.abspath(path) for path in sys.path if os.path.isdir(path or ".")]
    return [path for path in found if not (_is_installed(path) or path in library or os.path.basename(path) == "lib-dynload")]


def _is_installed(folder: str) -> bool:
    return folder.endswith(("site-packages", "dist-packages"))
