"""What lies below a folder, in which state, and what of it is not shared?

The rule: files are shared with their content and, of their modes, whether their owner may execute them; folders too,
empty ones included. Times, owners and other modes are not. A symbolic link is followed: what it leads to stands in its
place. Left out, and told, are links that lead nowhere or to a folder in which they lie, and pipes, sockets and devices.
What can't be read is an error.

Each folder is kept as one packed list, so that a million files take no more than some hundred megabytes.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgpack
from blake3 import blake3

from p2pqueue.errors import ArgumentError
from p2pqueue.payload.manifest import ENTRIES_LIMIT
from p2pqueue.payload.names import wellformed_name
from p2pqueue.payload.plain import absolute, shown, unreadable
from p2pqueue.payload.tree import DEEPEST

_ODD_KINDS: Final = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a device"), (stat.S_ISCHR, "a device"))
_ENCODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()
_FILE: Final = 7  # values of a file's item; a folder's has two

Item = list[Any]  # of a file: name, name here where it is another, and the values of its state


class Stretch(NamedTuple):
    """Files that follow one another in one folder. Both paths are those of the folder, with a separator at their end if need be."""

    path: str  # as it is told to others: components joined by "/"
    local: str  # as it is here, below the base
    files: list[Item]


class State(NamedTuple):
    """What tells one state of a file from another, and whether it can be executed."""

    size: int
    mtime_ns: int
    inode: int
    device: int
    executable: bool


@dataclass
class Scan:
    """What was found below a folder."""

    base: str
    size: int = 0  # bytes of all files
    count: int = 0  # files and empty folders
    newest: int = 0  # the latest time of change, in nanoseconds since 1970
    left_out: list[str] = field(default_factory=list)  # in words
    _lists: dict[str, bytes] = field(default_factory=dict)  # by local paths below the base

    def walk(self) -> Iterator[Stretch]:
        """All files in the order of the components of their paths. An empty folder is a stretch without a file."""
        yield from self._walk("", "")

    def folders(self) -> Iterator[tuple[str, list[Item]]]:
        """Each folder's path here, and the files in it."""
        for path, packed in self._lists.items():
            yield path, [item for item in msgpack.unpackb(packed) if len(item) == _FILE]

    @property
    def digest(self) -> bytes:
        """What tells this state of the whole folder from any other."""
        whole = blake3()
        for path, packed in self._lists.items():
            name = os.fsencode(path)
            whole.update(len(name).to_bytes(4, "big") + len(packed).to_bytes(8, "big") + name + packed)
        return whole.digest()

    def _walk(self, path: str, local: str) -> Iterator[Stretch]:
        files: list[Item] = []
        items = msgpack.unpackb(self._lists[local.removesuffix(os.sep)])
        for item in items:
            if len(item) == _FILE:
                files.append(item)
                continue
            if files:
                yield Stretch(path, local, files)
                files = []
            yield from self._walk(f"{path}{item[0]}/", f"{local}{local_name(item)}{os.sep}")
        if files or (not items and path):
            yield Stretch(path, local, files)


def scan(path: str | os.PathLike[str]) -> Scan:
    """What lies below a folder. Raises `InputUnreadable`, naming what can't be read, and `ArgumentError` for too much."""
    base = absolute(path)
    found = Scan(base)
    try:
        _scan_folder(found, "", [_key(os.stat(base))])
    except RecursionError:
        raise ArgumentError(f"{shown(base)} has more than {DEEPEST} folders in one another") from None
    except OSError as error:
        raise unreadable(base, error) from error
    return found


def _scan_folder(found: Scan, local: str, above: list[tuple[int, int]]) -> None:
    if len(above) > DEEPEST:
        raise ArgumentError(f"{shown(found.base)} has more than {DEEPEST} folders in one another; share a part of it")
    whole = os.path.join(found.base, local) if local else found.base
    files: list[Item] = []
    folders: list[tuple[str, tuple[int, int]]] = []
    size, newest = 0, found.newest
    try:
        with os.scandir(whole) as entries:
            for entry in entries:
                told = _state(found, entry)
                if told is None:
                    continue
                mode = told.st_mode
                if stat.S_ISREG(mode):
                    length, mtime_ns = told.st_size, told.st_mtime_ns
                    files.append([entry.name, None, length, mtime_ns, told.st_ino, told.st_dev, mode & stat.S_IXUSR != 0])
                    size += length
                    newest = mtime_ns if mtime_ns > newest else newest
                else:
                    _sort_in(found, entry, told, folders, above)
    except OSError as error:
        raise unreadable(whole, error) from error
    found.size, found.newest = found.size + size, newest
    items = _named(files, [name for name, _ in folders])
    found.count += len(files) or (not folders and local != "")
    if found.count > ENTRIES_LIMIT:
        raise ArgumentError(f"{shown(found.base)} has more than {ENTRIES_LIMIT:,} files; share its parts one by one")
    found._lists[local] = msgpack.packb(items)
    for name, key in sorted(folders):
        _scan_folder(found, f"{local}{os.sep}{name}" if local else name, [*above, key])


def _state(found: Scan, entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat() if os.name != "nt" else os.stat(entry.path)  # there the entry itself knows neither device nor inode
    except OSError as error:
        if not entry.is_symlink():
            raise unreadable(entry.path, error) from error
        found.left_out.append(f"{shown(entry.path)} is a link that leads nowhere")
        return None


def _sort_in(
    found: Scan, entry: os.DirEntry[str], told: os.stat_result, folders: list[tuple[str, tuple[int, int]]], above: list[tuple[int, int]]
) -> None:  # fmt: skip
    """Takes in what is no file."""
    if stat.S_ISDIR(told.st_mode):
        key = _key(told)
        if key in above:
            found.left_out.append(f"{shown(entry.path)} is a link to a folder in which it lies")
        else:
            folders.append((entry.name, key))
        return
    kind = next((words for is_kind, words in _ODD_KINDS if is_kind(told.st_mode)), "no file")
    found.left_out.append(f"{shown(entry.path)} is {kind}")


def _named(files: list[list[Any]], folders: list[str]) -> list[list[Any]]:
    """The items of one folder with the names by which others are told of them, in the order of those."""
    items = files + [[name, None] for name in folders]
    try:
        "".join([item[0] for item in items]).encode()
        odd = []
    except UnicodeEncodeError:
        odd = [item for item in items if not _is_text(item[0])]
    taken = {item[0] for item in items} if odd else set()
    for item in odd:
        local, name = os.fsencode(item[0]), wellformed_name(item[0])
        while name in taken:
            name += "~"
        taken.add(name)
        item[:2] = name, local
    items.sort(key=_told_name)
    return items


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told_name(item: list[Any]) -> str:
    name: str = item[0]
    return name


def marks_of(item: Item) -> str:
    """As `FileIdentity.marks`."""
    return f"{item[4]}:{item[2]}:{item[3]}"


def encoded(path: str) -> bytes:
    """As `os.fsencode`, for many."""
    return path.encode(_ENCODING, _ERRORS)


def local_name(item: Item) -> str:
    """The name of an item as it is here."""
    name: str = item[0] if item[1] is None else os.fsdecode(item[1])
    return name


def _key(told: os.stat_result) -> tuple[int, int]:
    return told.st_dev, told.st_ino


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Says whether a path is that of a folder. Raises `InputUnreadable` for one that can't be a path."""
    return os.path.isdir(absolute(path))
