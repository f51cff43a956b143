"""How does a process tell the node that it has written, ask it something, or listen to what happens?

The client's side: synchronous, so that programs, commands and threads use it alike. The node's side is
`doorbell_server`. A ring that is missed costs latency, never data.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pqueue import errors
from p2pqueue.errors import MalformedMessage, NodeNotRunning, P2PQueueError, WorldError
from p2pqueue.replica.door.local_socket import FRAME_LIMIT, LENGTH, connect, frame, unframe

if TYPE_CHECKING:
    from p2pqueue.replica.door.server import DoorbellServer

RING_WAIT = 0.05  # seconds that a ring may take
ABSENT_FOR = 0.02  # seconds for which a node that was not there is not looked for again: a producer rings at every commit
ANSWER_WAIT = 10.0  # seconds for the answer to a request
_HERE: dict[tuple[str, int], Callable[[], object]] = {}  # by path and process: a fork must not ring its parent's loop
_RING = frame({"kind": "ring"})

__all__ = ["DoorbellClient", "DoorbellServer", "ring"]


def __getattr__(name: str) -> Any:
    # The node's side needs asyncio, whose import would slow every command that rings.
    if name != "DoorbellServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from p2pqueue.replica.door.server import DoorbellServer

    return DoorbellServer


def ring(socket_path: Path) -> None:
    """Tells the node, if one runs, that there is something new. Never raises, never waits long.

    The connection is kept for the next ring; a full one means that the node has rings to read already.
    """
    ringer(socket_path)()


def ringer(socket_path: Path) -> Callable[[], None]:
    """As `ring`, for whoever rings often."""
    name = os.fspath(socket_path)
    absent, monotonic = _BELLS.absent, time.monotonic

    def ring() -> None:
        here = _HERE.get((name, os.getpid())) if _HERE else None
        if here is not None:
            try:
                here()
            except RuntimeError:
                pass  # its loop has just been closed
        elif name not in absent or absent[name] <= monotonic():
            _BELLS.ring(name)

    return ring


def answer_here(socket_path: Path, on_ring: Callable[[], object] | None) -> None:
    """Has the rings of this very process answered without a socket; None ends that."""
    key = (os.fspath(socket_path), os.getpid())
    if on_ring is None:
        _HERE.pop(key, None)
    else:
        _HERE[key] = on_ring


class _Bells:
    """Kept connections to nodes, by path and process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int], socket.socket] = {}
        self.absent: dict[str, float] = {}  # paths where no node was, and until when that is believed

    def ring(self, name: str) -> None:
        key = (name, os.getpid())
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is None or not _rings(kept):
                kept = _new_bell(name)
            if kept is not None:
                self._kept[key] = kept
            else:
                self.absent[name] = time.monotonic() + ABSENT_FOR

    def close(self) -> None:
        with self._lock:
            for kept in self._kept.values():
                kept.close()
            self._kept.clear()


def _new_bell(path: str) -> socket.socket | None:
    if not os.path.exists(path):  # no node: a look costs a tenth of a socket, and programs ring at every commit
        return None
    try:
        bell = connect(Path(path), timeout=RING_WAIT)
    except NodeNotRunning:
        return None
    bell.setblocking(False)
    return bell if _rings(bell) else None


def _rings(bell: socket.socket) -> bool:
    try:
        bell.send(_RING)
    except BlockingIOError:
        return True
    except OSError:
        bell.close()
        return False
    return True


_BELLS = _Bells()
atexit.register(_BELLS.close)


class DoorbellClient:
    """Asks the node of a home. Each request and each stream has a connection of its own."""

    def __init__(self, socket_path: Path | str) -> None:
        self._path = Path(socket_path)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The node's answer. Raises `NodeNotRunning`, or what the node's handler raised."""
        with self._connection(ANSWER_WAIT) as connection:
            connection.sendall(frame({"kind": "request", "name": kind, "fields": fields}))
            answer = _receive(connection)
        if answer is None:
            raise NodeNotRunning("The node went away before it answered")
        return _checked(answer).get("value") or {}

    def stream(self, kind: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """What the node tells, until it ends or `close` is called. Raises as `request` does."""
        with self._connection(ANSWER_WAIT) as connection:
            connection.sendall(frame({"kind": "stream", "name": kind, "fields": fields}))
            connection.settimeout(None)
            while True:
                try:
                    event = _receive(connection)
                except OSError:
                    event = None
                if event is None or self._closed:
                    return
                if _checked(event).get("end"):
                    return
                yield event.get("value") or {}

    def close(self) -> None:
        """Ends every stream, from whatever thread."""
        self._closed = True
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _connection(self, timeout: float) -> Iterator[socket.socket]:
        connection = connect(self._path, timeout=timeout)
        try:
            with self._lock:
                self._open.add(connection)
            if not self._closed:
                yield connection
            else:
                raise NodeNotRunning("This client has been closed")
        except TimeoutError as error:
            raise NodeNotRunning(f"The node didn't answer within {ANSWER_WAIT:.0f} s") from error
        except (ConnectionError, BrokenPipeError) as error:
            raise NodeNotRunning("The node went away before it answered") from error
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    head = _exactly(connection, LENGTH.size)
    if head is None:
        return None
    (length,) = LENGTH.unpack(head)
    if length > FRAME_LIMIT:
        raise MalformedMessage(f"the node announced a message of {length} bytes")
    body = _exactly(connection, length)
    return None if body is None else unframe(body)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" not in answer:
        return answer
    kind = getattr(errors, str(answer.get("type")), WorldError)
    text = str(answer["error"])
    if not (isinstance(kind, type) and issubclass(kind, P2PQueueError)) or issubclass(kind, errors.JobError):
        kind = WorldError
    raise kind(text)
