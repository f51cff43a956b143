"""How does a thread get shards from an HTTP server, straight into the buffers where they are checked?

One connection, kept for one request after the other. The thread reads the socket itself, half a second at a time, so
that what nobody wants any more ends at once; what the head of an answer says is read by `http.client`. Nothing is
redirected, unpacked or read beyond what was asked for.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from p2pqueue.errors import BadShard
from p2pqueue.payload.fetching.source import Request, ShardMissing, SourceFailed, Work

CONNECT_WITHIN: Final = 5.0  # seconds
ANSWER_WITHIN: Final = 15.0  # seconds from a request to the head of its answer, and without a byte of its body
LOOK_EVERY: Final = 0.5  # seconds between two looks whether it is wanted still
REUSED_WITHIN: Final = 20.0  # seconds of rest after which a connection is not used again: servers close theirs
_HEAD_LIMIT: Final = 16 * 1024  # bytes
_WORDS: Final = 1000  # bytes of the server's own words
# Linux fills a whole buffer in one call, and says after the time-out how far it came; others would wait for all of it.
_WHOLE: Final = socket.MSG_WAITALL if sys.platform == "linux" else 0

Came = Callable[[int], object]


class Unreachable(SourceFailed):
    """No connection can be made."""


@dataclass(frozen=True)
class Place:
    """Where a server is, and what it is shown."""

    base: str  # http://HOST:PORT/PATH
    token: str | None = None
    name: str = ""  # what it is called in words

    @property
    def called(self) -> str:
        """Its name, or its host."""
        return self.name or urlsplit(self.base).netloc


class HttpLine:
    """One connection. For one thread at a time; `end` is for any thread."""

    def __init__(self, place: Place, *, answer_within: float = ANSWER_WITHIN) -> None:
        self.place = place
        self._answer_within = answer_within
        self._sock: socket.socket | None = None
        self._whole = 0  # the flag by which the system fills buffers; 0 where they are filled here
        self._ended = False
        self._lock = threading.Lock()
        self._early = memoryview(b"")  # of a body, came with its head
        self._used_at = time.monotonic()

    @property
    def is_fit(self) -> bool:
        """Says whether it can be used again: it stands, and nothing came that wasn't asked for."""
        if self._sock is None or self._ended or self._early or time.monotonic() - self._used_at >= self.reused_within:
            return False
        return not _is_readable(self._sock)

    @property
    def reused_within(self) -> float:
        """Seconds of rest after which it is not used again."""
        return REUSED_WITHIN

    def end(self) -> None:
        """Ends it, whatever its thread waits for."""
        with self._lock:
            self._ended = True
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended already

    def close(self) -> None:
        """Closes it. For its own thread."""
        with self._lock:
            self._ended = True
            sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def carry(self, work: Work, came: Came, *, first: Request | None = None) -> None:
        """Gets `first` and what the work gives, until that gives nothing. Raises `SourceFailed`; then it is of no use any more."""
        request = work.take() if first is None else first
        while request is not None:
            try:
                self.get(request, came)
            except ShardMissing as error:
                request.fail(error)
            else:
                request.finish()
            request = work.take()

    def get(self, request: Request, came: Came) -> None:
        """Fills the buffer of one request. Raises `ShardMissing` and `SourceFailed`."""
        self.take(self.ask(f"/shards/{request.address.hex()}", wanted=lambda: request.wanted), request, came)

    def take(self, answer: http.client.HTTPResponse, request: Request, came: Came) -> None:
        """Takes what follows the head of an answer. Raises as `get` does."""
        if answer.status in (404, 410):
            words = self.words(answer, lambda: request.wanted)
            raise ShardMissing(words if answer.status == 410 else "")
        if answer.status != 200:
            raise SourceFailed(self._refusal(answer, lambda: request.wanted))
        self.receive(request, self._length(answer), came)
        if answer.will_close:
            self.close()

    def ask(self, path: str, *, wanted: Callable[[], bool], headers: str = "") -> http.client.HTTPResponse:
        """Sends a GET and reads the head of the answer. Raises `SourceFailed`."""
        parts = urlsplit(self.place.base)
        shown = "" if self.place.token is None else f"Authorization: Bearer {self.place.token}\r\n"
        text = f"GET {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n{shown}{headers}\r\n"
        sock = self.opened()
        try:
            self.send(text.encode("ascii"))
            return self._head(sock, wanted)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise SourceFailed(f"{self.place.called} can't be reached: {_reason(error)}") from error

    def send(self, data: bytes | bytearray) -> None:
        """Sends some bytes. Raises `SourceFailed`."""
        sock = self._sock
        if sock is None:
            raise SourceFailed("the connection has ended")
        try:
            sock.settimeout(self._answer_within)
            sock.sendall(data)
        except OSError as error:
            raise SourceFailed(f"{self.place.called} can't be reached: {_reason(error)}") from error

    def receive(self, request: Request, size: int, came: Came) -> None:
        """Fills the buffer of a request with the bytes that follow. Raises `SourceFailed`."""
        try:
            into = request.room(size)
        except BadShard as error:
            request.fail(error)
            raise SourceFailed(str(error)) from error
        early = min(len(self._early), size)
        into[:early] = self._early[:early]
        self._early = self._early[early:]
        if early:
            request.advance(early)
        self.fill(into[early:], wanted=lambda: request.wanted, advance=request.advance)
        came(size)

    def fill(self, into: memoryview, *, wanted: Callable[[], bool], advance: Came = lambda size: None) -> None:
        """Reads exactly so many bytes. Raises `SourceFailed` when they don't come, or nobody wants them any more."""
        sock = self._sock
        if sock is None:
            raise SourceFailed("the connection has ended")
        looked_at = came_at = time.monotonic()
        try:
            sock.settimeout(None if self._whole else LOOK_EVERY)
            while into:
                try:
                    read = sock.recv_into(into, len(into), self._whole)
                except (TimeoutError, BlockingIOError):
                    read = -1
                now = time.monotonic()
                if read == 0:
                    raise SourceFailed(f"{self.place.called} ended in the middle")
                if read > 0:
                    into, came_at = into[read:], now
                    advance(read)
                elif now - came_at >= self._answer_within:
                    raise SourceFailed(f"nothing came from {self.place.called} for {self._answer_within:.0f} s")
                if now - looked_at >= LOOK_EVERY:
                    looked_at = now
                    if not wanted():
                        raise SourceFailed("it is not wanted any more")
        except OSError as error:
            raise SourceFailed(f"{self.place.called} can't be reached: {_reason(error)}") from error
        self._used_at = time.monotonic()

    def opened(self) -> socket.socket:
        """The socket, connected if it wasn't. Raises `SourceFailed`."""
        if self._sock is not None:
            return self._sock
        parts = urlsplit(self.place.base)
        secure = parts.scheme == "https"
        try:
            sock = socket.create_connection((parts.hostname or "", parts.port or (443 if secure else 80)), timeout=CONNECT_WITHIN)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if secure:
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=parts.hostname)
            self._whole = 0 if secure else _let_fill(sock)
        except (OSError, ValueError) as error:
            raise Unreachable(f"{self.place.called} can't be reached: {_reason(error)}") from error
        with self._lock:
            if not self._ended:
                self._sock = sock
                return sock
        sock.close()
        raise SourceFailed("the connection has ended")

    def _head(self, sock: socket.socket, wanted: Callable[[], bool]) -> http.client.HTTPResponse:
        came = bytearray()
        until = time.monotonic() + self._answer_within
        sock.settimeout(LOOK_EVERY)
        while (end := came.find(b"\r\n\r\n")) < 0:
            if len(came) > _HEAD_LIMIT:
                raise SourceFailed(f"{self.place.called} answers with more than a head")
            try:
                piece = sock.recv(_HEAD_LIMIT)
            except TimeoutError:
                piece = None
            if piece == b"":
                raise SourceFailed(f"{self.place.called} ended without an answer")
            if time.monotonic() >= until:
                raise SourceFailed(f"{self.place.called} did not answer within {self._answer_within:.0f} s")
            if piece is None and not wanted():
                raise SourceFailed("it is not wanted any more")
            came += piece or b""
        self._early = memoryview(bytes(came[end + 4 :]))
        answer = http.client.HTTPResponse(_Head(bytes(came[: end + 4])), method="GET")  # type: ignore[arg-type]  # all that it asks of a socket
        answer.begin()
        return answer

    def _length(self, answer: http.client.HTTPResponse) -> int:
        if answer.length is None or answer.headers.get("Content-Encoding", "identity") != "identity":
            raise SourceFailed(f"{self.place.called} doesn't say how long a shard is")
        return answer.length

    def _refusal(self, answer: http.client.HTTPResponse, wanted: Callable[[], bool]) -> str:
        return f"{self.place.called} answers {answer.status}: {self.words(answer, wanted) or answer.reason}".rstrip(": ")

    def words(self, answer: http.client.HTTPResponse, wanted: Callable[[], bool]) -> str:
        """The few words of an answer that brings no shard; what is longer ends the connection."""
        size = answer.length
        if size is None or size > _WORDS or answer.will_close:
            text = bytes(self._early[:_WORDS])
            self.close()
        else:
            body = memoryview(bytearray(size))
            early = min(size, len(self._early))
            body[:early] = self._early[:early]
            self._early = self._early[early:]
            self.fill(body[early:], wanted=wanted)
            text = bytes(body)
        return " ".join(text.decode(errors="replace").split())


class _Head:
    """The head of an answer, as `http.client` wants it: in a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _let_fill(sock: socket.socket) -> int:
    """Sets the time after which the system stops filling a buffer; gives the flag to be filled by, 0 where it can't."""
    if _WHOLE:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(LOOK_EVERY * 1e6)))
        except OSError:
            return 0
    return _WHOLE


def _is_readable(sock: socket.socket) -> bool:
    try:
        if hasattr(select, "poll"):  # `select` fails for descriptors above 1,023
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
