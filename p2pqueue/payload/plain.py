"""Can this file of the user's be read, and is it still the one that we knew?

A file is known by its path, device, inode, size and time of change. Devices, pipes and folders are refused before
they are opened: a pipe would wait for its writer for ever.
"""

from __future__ import annotations

import io
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from p2pqueue.errors import InputChanged, InputUnreadable
from p2pqueue.payload.names import safe_name

COARSEST_TICK = 0.02  # seconds; within one tick of the file system's clock two changes have one time

_KINDS = (
    (stat.S_ISDIR, "is a folder; `p2pqueue share` shares one as a whole"),
    (stat.S_ISFIFO, "is a pipe; write what comes out of it to a file first"),
    (stat.S_ISSOCK, "is a socket, not a file"),
    (stat.S_ISBLK, "is a device, not a file"),
    (stat.S_ISCHR, "is a device, not a file"),
)


@dataclass(frozen=True)
class FileIdentity:
    """What tells one state of a file from another."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int

    @property
    def marks(self) -> str:
        """Inode, size and time of change as one text; without the device, whose number some file systems change at a reboot."""
        return f"{self.inode}:{self.size}:{self.mtime_ns}"

    @property
    def whole(self) -> str:
        """The marks, with the device."""
        return f"{self.device}:{self.marks}"


def check_readable(path: str | os.PathLike[str]) -> tuple[str, int]:
    """Name and size of a file that can be read now. Raises `InputUnreadable`, naming the path and the reason."""
    file, identity = open_plain(path)
    file.close()
    return os.path.basename(identity.path), identity.size


def open_plain(path: str | os.PathLike[str]) -> tuple[io.FileIO, FileIdentity]:
    """A regular file, open for reading, and its identity. Raises `InputUnreadable`."""
    whole = absolute(path)
    try:
        _refuse_odd_kinds(whole, os.stat(whole).st_mode)
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
        file = io.FileIO(os.open(whole, flags | getattr(os, "O_CLOEXEC", 0)), "rb")
    except OSError as error:
        raise unreadable(whole, error) from error
    try:
        found = os.fstat(file.fileno())
        _refuse_odd_kinds(whole, found.st_mode)
    except BaseException:
        file.close()
        raise
    return file, _identity(whole, found)


def read_pieces(path: str | os.PathLike[str], size: int, *, expected: int | None = None) -> Iterator[bytes]:
    """The content of a plain file in pieces. Raises `InputChanged` when it isn't as long as told, or changes meanwhile."""
    file, identity = open_plain(path)
    with file:
        if expected is not None and identity.size != expected:
            raise changed(identity.path)
        left = identity.size
        while left:
            try:
                piece = file.read(min(size, left))
            except OSError as error:
                raise unreadable(identity.path, error) from error
            if not piece:
                raise changed(identity.path)
            left -= len(piece)
            yield piece
        if identify_open(file, identity.path) != identity:
            raise changed(identity.path)


def identify(path: str | os.PathLike[str]) -> FileIdentity | None:
    """The identity of the file that lies at a path now; None where there is no regular file."""
    whole = absolute(path)
    try:
        found = os.stat(whole)
    except (OSError, ValueError):
        return None
    return _identity(whole, found) if stat.S_ISREG(found.st_mode) else None


def identify_open(file: io.FileIO, path: str) -> FileIdentity:
    """The identity of an open file, as of now."""
    return _identity(path, os.fstat(file.fileno()))


def absolute(path: str | os.PathLike[str]) -> str:
    """The path from the root. Raises `InputUnreadable` for one that no file system can hold."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InputUnreadable(f"{safe_name(text)}: give the path as text; os.fsdecode makes one")
    if "\0" in text:
        raise InputUnreadable(f"{shown(text)}: a path can't hold a NUL character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InputUnreadable(f"{shown(text)}: a path can't hold half of a surrogate pair") from None
    if not text:
        raise InputUnreadable("An empty path names no file")
    return os.path.abspath(text)


def shown(path: str | os.PathLike[str]) -> str:
    """A path as messages show it: one line, printable, whatever its name is made of."""
    return os.sep.join(safe_name(part, windows=False) if part else "" for part in os.fspath(path).split(os.sep))


def unreadable(path: str, error: OSError) -> InputUnreadable:
    """The error of the house for a file that can't be opened or read."""
    return InputUnreadable(f"{shown(path)} can't be read: {error.strerror or error}")


def changed(path: str) -> InputChanged:
    """The error of the house for a file that is not what it was while it is read."""
    return InputChanged(f"{shown(path)} changed while it was being read; try again when nothing writes to it")


def settle(identity: FileIdentity) -> None:
    """Waits out the tick of the clock in which the file was changed, so that a later change has another time."""
    settle_since(identity.mtime_ns)


def settle_since(mtime_ns: int) -> None:
    """The same for a time of change."""
    age = time.time() - mtime_ns / 1e9
    if 0 <= age < COARSEST_TICK:
        time.sleep(COARSEST_TICK - age)


def default_name(path: str | os.PathLike[str]) -> str:
    """The name of the file at a path."""
    return Path(path).name


def _refuse_odd_kinds(path: str, mode: int) -> None:
    for is_kind, words in _KINDS:
        if is_kind(mode):
            raise InputUnreadable(f"{shown(path)} {words}")


def _identity(path: str, found: os.stat_result) -> FileIdentity:
    return FileIdentity(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
