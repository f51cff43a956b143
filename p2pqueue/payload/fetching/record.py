"""Which chunks of a half-done file are on the disk and were checked, after whatever ended the fetch?

A bit for each chunk, twice in one small file: *durable* bits were written after their chunks had been forced to the
disk, and hold for ever; *soft* bits are written with each chunk, and hold as long as the machine isn't started anew,
since what a process has written outlives it. So neither a killed node nor a power cut makes anything be hashed again,
and no bit ever stands for a chunk that isn't there.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from p2pqueue.private import FILE_MODE

COMMIT_EVERY: Final = 32 * 1024**2  # bytes of chunks after which they are forced to the disk

_HEAD = struct.Struct(">8sI32s36s")  # what it is, number of chunks, hash of the content, boot of the soft bits
_MAGIC: Final = b"p2pqhave"
_BOOT_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
_BOOT_GRAIN: Final = 60.0  # seconds: what systems tell of the time of their start wavers with their clocks


class Record:
    """The record of one file of `count` chunks, whose content has that hash. For any thread."""

    def __init__(self, path: Path, count: int, content: bytes) -> None:
        self._size = -(-count // 8)
        self._lock = threading.Lock()
        self._boot = _boot()
        self._head = _HEAD.pack(_MAGIC, count, content, self._boot)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(path, flags, FILE_MODE)
        try:
            self._durable, soft = self._read(count, content)
            self._here = bytearray(soft)
            self._write(0, self._head + self._durable + self._here)
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def here(self) -> bytes:
        """The bits of all chunks that are there, the lowest first."""
        with self._lock:
            return bytes(self._here)

    def mark(self, chunk: int) -> None:
        """A chunk was written."""
        with self._lock:
            place = chunk >> 3
            self._here[place] |= 1 << (chunk & 7)
            self._write(len(self._head) + self._size + place, bytes(self._here[place : place + 1]))

    def commit(self, written: int | Callable[[], object]) -> None:
        """Forces the chunks to the disk that were written to the file of that descriptor so far, and notes it.

        A function instead forces all that was written when it is called.
        """
        here = self.here
        if callable(written):
            written()
        else:
            os.fsync(written)
        with self._lock:
            self._durable = here
            self._write(len(self._head), here)
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Closes the file; it stays."""
        os.close(self._descriptor)

    def _read(self, count: int, content: bytes) -> tuple[bytes, bytes]:
        """Durable and soft bits, as far as they count; none of one that belongs to another file, or is cut short."""
        whole = os.read(self._descriptor, len(self._head) + 2 * self._size)
        if len(whole) < len(self._head) + 2 * self._size:
            return bytes(self._size), bytes(self._size)
        magic, told, hashed, boot = _HEAD.unpack_from(whole)
        if (magic, told, hashed) != (_MAGIC, count, content):
            return bytes(self._size), bytes(self._size)
        durable, soft = whole[_HEAD.size : _HEAD.size + self._size], whole[_HEAD.size + self._size :]
        return durable, soft if boot == self._boot else durable

    def _write(self, place: int, data: bytes | bytearray) -> None:
        if hasattr(os, "pwrite"):
            os.pwrite(self._descriptor, data, place)
        else:
            os.lseek(self._descriptor, place, os.SEEK_SET)
            os.write(self._descriptor, data)


def share_of(path: Path) -> float:
    """Which share of the chunks the record in a file says are there; of none that can't be read."""
    try:
        whole = path.read_bytes()
    except OSError:
        return 0.0
    if len(whole) < _HEAD.size:
        return 0.0
    _, count, _, boot = _HEAD.unpack_from(whole)
    bits = whole[_HEAD.size :]
    size = -(-count // 8)
    share: float = int.from_bytes(bits[size:] if boot == _boot() else bits[:size], "little").bit_count() / max(1, count)
    return share


def _boot() -> bytes:
    """What tells this start of the machine from others."""
    try:
        told = _BOOT_FILE.read_text().strip()
    except OSError:
        import psutil  # only where the system has no better word

        told = f"{psutil.boot_time() // _BOOT_GRAIN:.0f}"
    return told.encode()[:36].ljust(36)
