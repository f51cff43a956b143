"""How do several datagrams leave, and come, by one system call?

Linux cuts a large buffer into datagrams of one size itself (UDP_SEGMENT, since 4.18), and hands over in one buffer
those of one size that came together from one sender (UDP_GRO, since 5.0). Elsewhere, and where a network card or
a tunnel refuses, each is sent by itself.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any

TOGETHER = 40  # datagrams in one call; the kernel takes 64, and 64 KiB
_UDP_SEGMENT, _UDP_GRO = 103, 104  # of <linux/udp.h>
_SIZE = Struct("=H")
_LINUX = sys.platform == "linux"
_REFUSALS = {errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.ENOPROTOOPT, errno.EOPNOTSUPP}
_RECORD_HEAD = 13  # bytes before the content of a DTLS 1.2 record; the last two tell its length
_STUN_HEAD = 20


class Burst:
    """Sends datagrams over the socket of a transport, several at once where that works."""

    def __init__(self, transport: asyncio.DatagramTransport, own: socket.socket | None) -> None:
        """`own` is a second, non-blocking socket on the transport's descriptor."""
        self._transport = transport
        self._socket = own if own is not None and _can_cut(own) else None
        self._waiting: Callable[[], int] = getattr(transport, "get_write_buffer_size", int)

    def send(self, block: memoryview, lengths: Sequence[int], to: tuple[str, int]) -> None:
        """Sends what lies in `block`, one datagram behind the other. What the system can't take now waits in the transport."""
        at = 0
        for size, count, length in _runs(lengths):
            part = block[at : at + length]
            at += length
            if count == 1 or not self._send_run(part, size, to):
                for start in range(0, length, size):
                    if not self._transport.is_closing():
                        self._transport.sendto(bytes(part[start : start + size]), to)

    def close(self) -> None:
        """Nothing is sent together any more: the socket is about to be closed."""
        self._socket = None

    def _send_run(self, part: memoryview, size: int, to: tuple[str, int]) -> bool:
        if self._socket is None or self._transport.is_closing() or self._waiting():
            return False
        try:
            self._socket.sendmsg((part,), ((socket.IPPROTO_UDP, _UDP_SEGMENT, _SIZE.pack(size)),), 0, to)
        except OSError as error:
            if error.errno in _REFUSALS:
                self._socket = None
            return False  # one by one: the transport waits, or tells its protocol why it can't
        return True


def _can_cut(own: socket.socket) -> bool:
    """Whether the kernel knows how: an older one would send the whole buffer as one datagram, without a word."""
    try:
        return _LINUX and own.getsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT) >= 0
    except OSError:
        return False


def gather(own: socket.socket | None) -> bool:
    """Asks for datagrams that come together in one buffer; says whether that may happen from now on."""
    if own is None or not _LINUX:
        return False
    try:
        own.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError:
        return False
    return True


def parted(data: bytes) -> Iterator[bytes]:
    """The DTLS 1.2 records and STUN messages that came in one buffer; both tell how long they are."""
    at, size = 0, len(data)
    while at + _STUN_HEAD <= size:
        first = data[at]
        if first > 19:
            end = at + _RECORD_HEAD + (data[at + 11] << 8 | data[at + 12])
        else:
            end = at + _STUN_HEAD + (data[at + 2] << 8 | data[at + 3])
        if end > size:
            return
        yield data[at:end] if at or end < size else data
        at = end


def _runs(lengths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Datagrams of one size, of which the last may be shorter: their size, their number, and all their bytes."""
    at, end = 0, len(lengths)
    while at < end:
        size, start = lengths[at], at
        while at < end and lengths[at] == size and at - start < TOGETHER:
            at += 1
        total = size * (at - start)
        if at < end and at - start < TOGETHER and lengths[at] < size:
            total += lengths[at]
            at += 1
        yield size, at - start, total


def second_socket(transport: asyncio.DatagramTransport) -> socket.socket | None:
    """A socket of our own on the transport's descriptor; None where the loop itself reads ahead (Windows)."""
    if not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
        return None
    shared: Any = transport.get_extra_info("socket")
    if shared is None:
        return None
    own: socket.socket = shared.dup()
    own.setblocking(False)
    return own
