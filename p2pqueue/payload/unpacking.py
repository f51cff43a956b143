"""How do the chunks of a folder become its files again?

Below one new folder, in whatever order the chunks come, by several threads at once. Names are data: each is one name
below the folder, mapped by the rule of `names` where that has something to do with it. Nothing is followed, nothing
outside is written.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from p2pqueue.payload.layout import Layout
from p2pqueue.payload.names import names_below

PRIVATE: Final = 0o700
_FLAGS: Final = (
    os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
)  # fmt: skip
_WHOLE: Final = _FLAGS | os.O_TRUNC
_MODES: Final = (0o666, 0o777)  # of files that can't be executed, and that can; the user's mask counts


class Unpacking:
    """Writes the files of a layout below `base`, which is made if need be. `write` may be called by several threads at once."""

    def __init__(self, base: Path, layout: Layout) -> None:
        self.base = base
        self._layout = layout
        self._skipped = len(os.path.join(base, ""))
        self._turn = threading.Lock()  # several threads among small files wait for one another longer than they write
        base.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        names = _Names(base, layout, folding=folds(base))
        self._paths = [names.local(path) for path in layout.paths]
        for folder in names.folders():
            os.makedirs(folder, exist_ok=True)
        for number, size in enumerate(layout.sizes):
            if not size:
                os.close(os.open(self._paths[number], _WHOLE, _MODES[layout.executable[number]]))

    def local(self, file: int) -> str:
        """Where a file of the layout is, below the base."""
        return self._paths[file][self._skipped :]

    def write(self, number: int, plain: memoryview) -> None:
        """Writes what a chunk holds of each file."""
        paths, sizes, executable = self._paths, self._layout.sizes, self._layout.executable
        with self._turn if self._layout.is_shared(number) else nullcontext():
            for file, offset, skip, size in self._layout.places(number):
                flags = _WHOLE if size == sizes[file] else _FLAGS
                descriptor = os.open(paths[file], flags, _MODES[executable[file]])
                try:
                    _write_at(descriptor, plain[skip : skip + size], offset)
                finally:
                    os.close(descriptor)


def local_paths(base: Path, layout: Layout, *, folding: bool) -> list[str]:
    """Where the files of a layout are when they were written below a folder of a disk that folds names, or doesn't."""
    names = _Names(base, layout, folding=folding)
    return [names.local(path) for path in layout.paths]


class _Names:
    """Which path here each path of a layout becomes."""

    def __init__(self, base: Path, layout: Layout, *, folding: bool) -> None:
        below: dict[str, dict[str, None]] = {"": {}}
        for path in layout.paths:
            _note(below, path)
        for path in layout.folders:
            _note(below, path)
            below.setdefault(path, {})
        self._folders = {"": str(base)}
        self._odd: dict[str, str] = {}  # names here of files whose names are others there
        for path in sorted(below, key=lambda each: each.count("/") + bool(each)):  # those above come first
            self._map(path, list(below[path]), below, folding)

    def local(self, path: str) -> str:
        """The path here."""
        folder, _, name = path.rpartition("/")
        return f"{self._folders[folder]}{os.sep}{self._odd.get(path, name)}"

    def folders(self) -> list[str]:
        """All folders, those above first."""
        return list(self._folders.values())

    def _map(self, folder: str, names: list[str], below: dict[str, dict[str, None]], folding: bool) -> None:
        prefix = f"{folder}/" if folder else ""
        for name, mapped in zip(names, names_below(names, folds=folding), strict=True):
            path = prefix + name
            if path in below:
                self._folders[path] = f"{self._folders[folder]}{os.sep}{mapped}"
            elif mapped != name:
                self._odd[path] = mapped


def folds(base: Path) -> bool:
    """Says whether the disk under a folder takes names for one that differ in letter case or normal form alone."""
    probe = base / f".p2pq-é-{os.getpid()}"
    probe.touch(mode=0o600)
    try:
        return any(os.path.lexists(base / name) for name in (probe.name.upper(), probe.name.replace("é", "e\u0301")))
    finally:
        probe.unlink()


def sync_below(base: Path) -> None:
    """Makes all that was written below a folder durable, in one go for all files of its disk where the system has that."""
    if sys.platform == "linux":
        import ctypes

        descriptor = os.open(base, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(descriptor)
    elif hasattr(os, "sync"):
        os.sync()


def _note(below: dict[str, dict[str, None]], path: str) -> None:
    while path:
        folder, _, name = path.rpartition("/")
        known = below.get(folder)
        if known is not None:
            known[name] = None
            return
        below[folder] = {name: None}
        path = folder


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    if offset:
        os.lseek(descriptor, offset, os.SEEK_SET)
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])
