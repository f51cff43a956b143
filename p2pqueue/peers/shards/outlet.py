"""How does one thread answer the asks of one connection for shards (`stream`)?

It reads an ask, makes the shard in a kept buffer or takes its file, and sends it, without the event loop. A reader that
takes too long is cut off, so that it holds neither the thread nor the memory.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
from collections.abc import Callable
from typing import Final

from p2pqueue.errors import InputChanged, P2PQueueError, PayloadUnavailable
from p2pqueue.payload.limit import Limit
from p2pqueue.payload.supply import Held, Supply
from p2pqueue.peers.shards.buffers import Buffers
from p2pqueue.peers.shards.stream import ANSWER, ASK, FAILED, MISSING, QUIET_AFTER, SHARD, answer_head, words_of

SLOWEST: Final = 64 * 1024  # bytes a second that a reader has to take
GRACE: Final = 10.0  # seconds more, for one shard
LIMITED_PIECE: Final = 64 * 1024  # bytes that are sent at once where a rate is set
_BEFORE: Final = 64  # bytes of a buffer before the shard: the head of the answer ends there, and the shard lies aligned
_MORE: Final = getattr(socket, "MSG_MORE", 0)

_log = logging.getLogger(__name__)


class Outlet:
    """One connection that is served.

    :param sock: is owned: it is closed at the end.
    :param forbidden: why this peer may have nothing now, in words; None while it may.
    :param sent: told the bytes of each shard that went out.
    """

    def __init__(
        self, sock: socket.socket, supply: Supply, *, peer: str, buffers: Buffers, forbidden: Callable[[], str | None],
        limit: Limit, sent: Callable[[int], object], quiet_after: float = QUIET_AFTER, grace: float = GRACE,
    ) -> None:  # fmt: skip
        self._sock = sock
        self._supply = supply
        self._peer = peer
        self._buffers = buffers
        self._forbidden = forbidden
        self._limit = limit
        self._sent = sent
        self._quiet_after = quiet_after
        self._grace = grace
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._begun = False

    def run(self) -> None:
        """Answers until the other side goes, is too slow, or `end` is called. Never raises for what a peer does."""
        with self._lock:
            if self._ended.is_set():
                return
            self._begun = True
        try:
            with self._supply, self._sock.makefile("rb", buffering=ASK.size * 32) as asks:
                while not self._ended.is_set():
                    self._sock.settimeout(self._quiet_after)
                    ask = asks.read(ASK.size)
                    if len(ask) < ASK.size:
                        break
                    self._answer(*ASK.unpack(ask))
        except OSError as error:  # it left, or was too slow
            _log.debug("a connection for shards ended: %s", error)
        finally:
            with self._lock:  # else `end` could meet another socket of the same number
                self._ended.set()
                self._sock.close()

    def end(self) -> None:
        """Ends it at once, whatever it waits for. For any thread."""
        with self._lock:
            self._ended.set()
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended already
            if not self._begun:
                self._sock.close()

    def _answer(self, address: bytes, limit: int) -> None:
        if (why := self._forbidden()) is not None:
            self._tell(FAILED, why)
            return
        try:
            held = self._supply.find(address)
            if held is None or held.size > limit:
                self._tell(MISSING)
            else:
                self._give(held)
        except PayloadUnavailable:
            self._tell(MISSING)
        except InputChanged as error:
            _log.info("%s", error)
            self._tell(MISSING, str(error))
        except P2PQueueError as error:
            self._tell(FAILED, str(error))

    def _give(self, held: Held) -> None:
        file = self._supply.file(held)
        if file is not None:
            with file:
                self._send_file(file, held.size)
        else:
            with self._buffers.of(_BEFORE + held.size, self._peer) as buffer:
                self._supply.fill(held, buffer[_BEFORE:])
                begin = _BEFORE - ANSWER.size
                ANSWER.pack_into(buffer, begin, SHARD, held.size)
                self._send(buffer[begin : _BEFORE + held.size])
        self._sent(held.size)

    def _send(self, data: memoryview) -> None:
        if self._limit.rate is None:
            self._push(data)
            return
        for start in range(0, len(data), LIMITED_PIECE):
            piece = data[start : start + LIMITED_PIECE]
            self._pay(len(piece))
            self._push(piece)

    def _push(self, data: memoryview) -> None:
        self._sock.settimeout(self._grace + len(data) / SLOWEST)  # for all of it
        self._sock.sendall(data)

    def _send_file(self, file: io.FileIO, size: int) -> None:
        self._sock.settimeout(self._grace)
        self._sock.sendall(answer_head(SHARD, size), _MORE)
        step = size if self._limit.rate is None else LIMITED_PIECE
        for start in range(0, size, step):
            count = min(step, size - start)
            self._pay(count)
            if self._sock.sendfile(file, start, count) != count:
                raise OSError("a stored shard became shorter while it was sent")

    def _pay(self, size: int) -> None:
        while wait := self._limit.try_take(size):
            if self._ended.wait(wait):
                raise OSError("it was ended")

    def _tell(self, kind: int, words: str = "") -> None:
        told = words_of(words)
        self._sock.settimeout(self._grace)
        self._sock.sendall(answer_head(kind, len(told)) + told)
