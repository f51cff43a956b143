"""How do processes of one user reach their node, and nobody else?

A Unix stream socket with mode 0600 in a folder with mode 0700, where the system says whose process connects. Where
there are none (Windows): TCP on loopback, its port and a secret token in a private file at the socket's path.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
from pathlib import Path
from typing import Any

import msgpack

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage, NodeNotRunning
from p2pqueue.private import in_words, write_private

HAS_UNIX = hasattr(socket, "AF_UNIX") and os.name == "posix"
FRAME_LIMIT = wire.MESSAGE_LIMIT  # bytes of one message, either way
LENGTH = struct.Struct(">I")
TOKEN_SIZE = 32  # bytes
_PEER = struct.Struct("3i")  # pid, uid, gid


def frame(message: dict[str, Any]) -> bytes:
    """A message with its length before it."""
    packed: bytes = msgpack.packb(message, datetime=True)
    if len(packed) > FRAME_LIMIT:
        raise MalformedMessage(f"a message of {len(packed)} bytes, where the local socket carries {FRAME_LIMIT}")
    return LENGTH.pack(len(packed)) + packed


def unframe(packed: bytes) -> dict[str, Any]:
    """The message in a frame. Raises `MalformedMessage`."""
    message = wire.unpack(packed, limit=FRAME_LIMIT)
    if not isinstance(message, dict):
        raise MalformedMessage("a message of the local socket is a map")
    return message


def listen(path: Path) -> tuple[socket.socket, bytes | None]:
    """A socket that listens there, private from its first moment, and the token that must be shown, if any."""
    try:
        path.unlink(missing_ok=True)
        if HAS_UNIX:
            return _listen_unix(path), None
        listening = socket.create_server(("127.0.0.1", 0))
        token = os.urandom(TOKEN_SIZE)
        write_private(path, f"{listening.getsockname()[1]} {token.hex()}".encode())
    except OSError as error:
        raise in_words(error, path) from error
    return listening, token


def _listen_unix(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(OSError):
            os.fchmod(listening.fileno(), 0o600)  # Linux gives the path this mode when it comes into being
        listening.bind(os.fspath(path))
        os.chmod(path, 0o600)
        listening.listen(128)
    except BaseException:
        listening.close()
        raise
    return listening


def connect(path: Path, *, timeout: float) -> socket.socket:
    """A connection to the node. Raises `NodeNotRunning`."""
    try:
        if HAS_UNIX:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(timeout)
                connection.connect(os.fspath(path))
            except BaseException:
                connection.close()
                raise
            return connection
        port, token = path.read_text(encoding="ascii").split()
        connection = socket.create_connection(("127.0.0.1", int(port)), timeout=timeout)
        connection.sendall(bytes.fromhex(token))
    except (OSError, ValueError) as error:
        raise NodeNotRunning("No node of this home answers; start one with `p2pqueue run`") from error
    return connection


def is_own_user(connection: Any) -> bool:
    """Says whether the process at the other end is this user's (or root's), as far as the system can tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or not HAS_UNIX:
        return True
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    return uid in (os.getuid(), 0)


def is_token(shown: bytes, token: bytes) -> bool:
    """Compares tokens in constant time."""
    return hmac.compare_digest(shown, token)
