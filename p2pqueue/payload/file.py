"""What does a program hold in its hands when an argument or a result is a file or a folder?

A `File` is made from a path or from the text of a manifest. It opens nothing before it is read.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from p2pqueue.errors import ArgumentError, InputChanged, PayloadUnavailable
from p2pqueue.payload.format import PREFIX

if TYPE_CHECKING:
    from p2pqueue.payload.shelf import Shelf

# What opens files and shards is imported where it is used: a warm child that was given no file stays small.

PIECE: Final = 1024**2  # bytes in one piece of `chunks`
BYTES_LIMIT: Final = 256 * 1024**2  # bytes that `bytes` gives without being told to

Piece = bytes  # inside the class the name `bytes` is a method

_END: Final = object()


class File:
    """A file of any size, or a folder with all that lies in it, as an argument or a result of a job.

    `File("clip.mov")` or `File("frames/")` names one by its path, `File("p2pq1-…")` one that was shared, by its manifest. With
    `copy=True` even a large file is copied when it is enqueued, so that the original may go away afterwards; without
    it, files from 64 MiB are served from where they lie, and must stay as they are until the job has ended.
    """

    def __init__(self, source: str | os.PathLike[str], *, copy: bool = False) -> None:
        self.copy = copy
        self._path: Path | None = None
        self._capability: str | None = None
        if isinstance(source, str) and source.startswith(PREFIX):
            self._capability = _checked(source)
        else:
            from p2pqueue.payload.plain import absolute

            self._path = Path(absolute(source))
        self._name: str | None = None
        self._size: int | None = None
        self._shelf: Shelf | Callable[[], Shelf] | None = None
        self._scratch: Path | None = None
        self._unpacked: Path | None = None

    @classmethod
    def granted(
        cls,
        path: str | os.PathLike[str] | None,
        capability: str | None,
        *,
        name: str,
        size: int | None,
        shelf: Shelf | Callable[[], Shelf] | None = None,
        scratch: Path | None = None,
    ) -> File:
        """A file that a job was given: its plain original, if that is here, and its manifest, if there is one yet.

        `shelf`, or a function that opens it when it is needed, gives the content; into the folder `scratch` the
        property `path` unpacks it.
        """
        if path is None and capability is None:
            raise PayloadUnavailable(f"{name}: neither the file nor a manifest of it is here")
        file = cls(os.fspath(path)) if path is not None else cls(capability or "")
        file._capability = None if capability is None else _checked(capability)
        file._name, file._size, file._shelf, file._scratch = name, size, shelf, scratch
        return file

    @property
    def name(self) -> str:
        """The file's own name, without folders. It may have come from elsewhere: data, never a path to write to."""
        if self._name is None:
            self._name = self._path.name if self._path is not None else self._described()[0]
        return self._name

    @property
    def size(self) -> int:
        """How many bytes it has, or all files of a folder together. Raises `InputUnreadable` for a path that can't be read."""
        if self._size is not None:
            return self._size
        if self._path is not None:
            from p2pqueue.payload.original import look_at

            return look_at(self._path).size
        self._size = self._described()[1]
        return self._size

    @property
    def is_folder(self) -> bool:
        """Says whether it is a folder; then `path` leads to all that lies in it, and it has no content of its own."""
        if self._path is not None:
            return self._path.is_dir()
        return self._opened_shelf().identify(self._capability or "").kind == "folder"

    @property
    def manifest(self) -> str | None:
        """The text by which any device of the space can read it; None for a path that was not shared yet."""
        return self._capability

    @property
    def original(self) -> Path | None:
        """The path that it was made from, or the plain original on this device; None for one known by its manifest alone."""
        return self._path

    @property
    def path(self) -> Path:
        """A plain file or folder with the content, unpacked if there is none: the original where that is here, so read it only."""
        if self._path is not None and (self._capability is None or self._is_unchanged(self._path)):
            return self._path
        if self._unpacked is None:
            shelf = self._opened_shelf()
            self._unpacked = shelf.locate(self._capability or "") or self._unpack(shelf)
        return self._unpacked

    def chunks(self, size: int = PIECE) -> Iterator[bytes]:
        """The content in pieces of at most `size` bytes, up to 1 MiB, each checked before it is given.

        Memory stays the same whatever the file's size. Raises `InputChanged` when the original is not what it was,
        `PayloadUnavailable` when a part is not to be had.
        """
        if not 0 < size <= PIECE:
            raise ArgumentError(f"A piece has between 1 and {PIECE} bytes, not {size}")
        pieces = self._plain_pieces() if self._capability is None else self._opened_shelf().open(self._capability)
        for piece in pieces:
            if len(piece) <= size:
                yield piece
            else:
                yield from (piece[start : start + size] for start in range(0, len(piece), size))

    async def achunks(self, size: int = PIECE) -> AsyncIterator[bytes]:
        """The same for `async for`: reading and checking happen in a thread."""
        import asyncio

        pieces = self.chunks(size)
        while True:
            piece = await asyncio.to_thread(next, pieces, _END)
            if piece is _END:
                return
            assert isinstance(piece, bytes)
            yield piece

    def bytes(self, limit: int = BYTES_LIMIT) -> bytes:
        """The whole content. Raises `ArgumentError` when it has more than `limit` bytes; `chunks` gives it bit by bit."""
        size = self.size
        if size > limit:
            raise ArgumentError(f"{self!r} is larger than the limit of {limit} bytes; read it by `chunks`, or raise the limit")
        content = b"".join(self.chunks())
        if len(content) != size:
            raise InputChanged(f"{self!r} has {len(content)} bytes now; it changed while it was being read")
        return content

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes it to a path, or into a folder under its own name (odd names are mapped), and tells where.

        A folder is never mixed with one that is there.
        It appears whole and checked, or not at all. Raises `DiskFull`, `MisuseError` where no file can be written.
        """
        from p2pqueue.payload import saving

        if self._capability is not None:
            return self._opened_shelf().fetch_to(self._capability, path)
        if self.is_folder:
            return self._copy_folder(saving.folder_of(path, self.name))
        target = saving.target_of(path, self.name)
        saving.save(self._plain_pieces(), target, content=None)
        return target

    def __repr__(self) -> str:
        from p2pqueue.payload.names import safe_name

        known = self._name if self._name is not None else self._path.name if self._path is not None else None
        return "File(shared)" if known is None else f"File({safe_name(known)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and (self._path, self._capability, self.copy) == (other._path, other._capability, other.copy)

    def __hash__(self) -> int:
        return hash((self._path, self._capability, self.copy))

    def _copy_folder(self, target: Path) -> Path:
        import shutil

        from p2pqueue.payload import saving

        assert self._path is not None
        with saving.made_folder(target) as folder:
            shutil.copytree(self._path, folder, dirs_exist_ok=True)
        return target

    def _plain_pieces(self) -> Iterator[Piece]:
        from p2pqueue.payload.plain import read_pieces

        assert self._path is not None
        return read_pieces(self._path, PIECE, expected=self._size)

    def _is_unchanged(self, path: Path) -> bool:
        from p2pqueue.payload.plain import identify

        found = identify(path)
        return found is not None and self._size in (None, found.size)

    def _described(self) -> tuple[str, int]:
        stored = self._opened_shelf().identify(self._capability or "")
        return stored.name, stored.size

    def _unpack(self, shelf: Shelf) -> Path:
        import shutil
        import tempfile
        import weakref

        if self._scratch is None:
            folder = Path(tempfile.mkdtemp(prefix="p2pqueue-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        else:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)  # the handler may not have asked for it yet
            folder = Path(tempfile.mkdtemp(prefix="input-", dir=self._scratch))
        return shelf.fetch_to(self._capability or "", folder, private=True)

    def _opened_shelf(self) -> Shelf:
        if self._shelf is None:
            from p2pqueue.home import Home
            from p2pqueue.identity import keys
            from p2pqueue.payload.shelf import Shelf

            home = Home.find()
            self._shelf = Shelf(home, keys.load(home).space_key)
        elif callable(self._shelf):
            self._shelf = self._shelf()
        return self._shelf


def _checked(capability: str) -> str:
    from p2pqueue.payload.capability import parse_capability

    return parse_capability(capability).text
