"""How is a file below a folder read in the very state in which it was found, and in no other?

A state is its size, time of change and inode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from p2pqueue.errors import InputUnreadable
from p2pqueue.payload.plain import changed, shown, unreadable
from p2pqueue.payload.scan import Item, local_name

_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
)


class Steady:
    """A file that is read from its beginning to its end, in a known state. A context that checks the state at its end."""

    def __init__(self, path: str, state: Sequence[Any]) -> None:
        self._path, self._state = path, state

    def __enter__(self) -> Steady:
        try:
            self._descriptor = os.open(self._path, _FLAGS)
        except OSError as error:
            raise unreadable(self._path, error) from error
        return self

    def fill(self, buffer: memoryview) -> None:
        """Fills a buffer with what comes next. Raises `InputChanged` where there is less."""
        try:
            while buffer:
                read = _read_into(self._descriptor, buffer)
                if not read:
                    raise changed(self._path)
                buffer = buffer[read:]
        except OSError as error:
            raise unreadable(self._path, error) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            told = os.fstat(self._descriptor)
            more = os.read(self._descriptor, 1) if error is None and not self._state[0] else b""
        finally:
            os.close(self._descriptor)
        if more and not told.st_size:
            raise InputUnreadable(f"{shown(self._path)} doesn't tell its size; copy what it holds to a file first")
        if error is None and (told.st_size, told.st_mtime_ns, told.st_ino) != tuple(self._state):
            raise changed(self._path)


@contextmanager
def folder_at(path: str) -> Iterator[int | None]:
    """A folder below which files are opened sooner; None where the system doesn't have that."""
    if os.open not in os.supports_dir_fd:
        yield None
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_small(at: int | None, folder: str, item: Item, buffer: memoryview) -> None:
    """Reads a file into a buffer of its size. Raises `InputUnreadable`, and `InputChanged` when its state is another.

    The path of its folder has a separator at its end.
    """
    name = local_name(item)
    try:
        descriptor = os.open(name, _FLAGS, dir_fd=at) if at is not None else os.open(folder + name, _FLAGS)
        try:
            left = len(buffer) - _read_into(descriptor, buffer)
            while left:
                read = _read_into(descriptor, buffer[-left:])
                if not read:
                    raise changed(folder + name)
                left -= read
            told = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable(folder + name, error) from error
    if told.st_size != item[2] or told.st_mtime_ns != item[3] or told.st_ino != item[4]:
        raise changed(folder + name)


def read_piece(path: bytes, marks: str, offset: int, buffer: memoryview) -> bool:
    """Reads a part of a file; False where it is gone, or is another by its marks (see `FileIdentity`)."""
    try:
        descriptor = os.open(path, _FLAGS)
        try:
            if offset:
                os.lseek(descriptor, offset, os.SEEK_SET)
            left = len(buffer) - _read_into(descriptor, buffer)
            while left:
                read = _read_into(descriptor, buffer[-left:])
                if not read:
                    return False
                left -= read
            told = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return f"{told.st_ino}:{told.st_size}:{told.st_mtime_ns}" == marks


if hasattr(os, "readv"):

    def _read_into(descriptor: int, buffer: memoryview) -> int:
        return os.readv(descriptor, [buffer])

else:

    def _read_into(descriptor: int, buffer: memoryview) -> int:
        data = os.read(descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)
