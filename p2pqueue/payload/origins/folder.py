"""How does a folder keep the objects of an origin? One private file for each, written whole and durable."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from p2pqueue.errors import DiskFull, WorldError
from p2pqueue.payload.origins.objects import MAIL, SHARDS, Listed, StoreFailed, StoreFull
from p2pqueue.private import FILE_MODE, in_words, make_private_dir, sync_dir

RESERVE: Final = 256 * 1024**2  # bytes of the disk that are left free
_CUT: Final = "."  # begins the names of files that are not whole yet


class Folder:
    """Objects as files of a folder. What an upload that was cut by the end of an earlier run left is removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_private_dir(path)
        for part in (SHARDS, MAIL):
            for cut in list((path / part).rglob(f"{_CUT}*")):
                if cut.is_file():
                    cut.unlink()

    @property
    def shown(self) -> str:
        """The folder."""
        return str(self.path)

    def path_of(self, name: str) -> Path:
        """The file of an object. Names are checked by whoever takes them from outside."""
        return self.path / name

    async def get(self, name: str, *, limit: int) -> bytes | None:
        """As `ObjectStore.get`."""
        return await asyncio.to_thread(self._read, self.path_of(name), limit)

    async def view(self, name: str, *, limit: int) -> memoryview | None:
        """As `ObjectStore.view`."""
        body = await self.get(name, limit=limit)
        return None if body is None else memoryview(body)

    async def size(self, name: str) -> int | None:
        """As `ObjectStore.size`."""
        return await asyncio.to_thread(_size, self.path_of(name))

    async def put(self, name: str, body: bytes | memoryview) -> None:
        """As `ObjectStore.put`."""
        await asyncio.to_thread(self._write, self.path_of(name), body)

    async def delete(self, name: str) -> None:
        """As `ObjectStore.delete`."""
        await asyncio.to_thread(self.path_of(name).unlink, missing_ok=True)

    async def listed(self, prefix: str, *, most: int | None = None) -> list[Listed]:
        """As `ObjectStore.listed`."""
        return await asyncio.to_thread(self._list, prefix, most)

    async def url(self, method: Literal["GET", "PUT"], name: str) -> str | None:
        """A folder signs nothing."""
        return None

    def _read(self, path: Path, limit: int) -> bytes | None:
        try:
            with open(path, "rb") as file:
                body = file.read(limit + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreFailed(str(in_words(error, path))) from error
        if len(body) > limit:
            raise StoreFailed(f"{path.name} has more than {limit} bytes")
        return body

    def _write(self, target: Path, body: bytes | memoryview) -> None:
        try:
            if not target.parent.is_dir():
                self._make(target.parent)
            free = shutil.disk_usage(target.parent).free
            if free - len(body) < RESERVE:
                raise StoreFull(f"its disk is full: {free} bytes are free")
            self._replace(target, body)
        except DiskFull as error:
            raise StoreFull(str(error)) from error
        except WorldError as error:
            raise StoreFailed(str(error)) from error

    def _replace(self, target: Path, body: bytes | memoryview) -> None:
        temporary = target.parent / f"{_CUT}{target.name}.{os.urandom(4).hex()}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), FILE_MODE), "wb", 0) as file:
                file.write(body)
                os.fsync(file.fileno())
            os.replace(temporary, target)
            sync_dir(target.parent)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise in_words(error, target) from error

    def _make(self, folder: Path) -> None:
        for parent in reversed([folder, *folder.parents]):
            if parent.is_relative_to(self.path) and not parent.is_dir():
                make_private_dir(parent)

    def _list(self, prefix: str, most: int | None) -> list[Listed]:
        found: list[Listed] = []
        for each in self._walk(self.path / prefix):
            found.append(each)
            if len(found) == most:
                break
        return found

    def _walk(self, folder: Path) -> Iterator[Listed]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.name.startswith(_CUT):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from self._walk(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    stat = entry.stat()
                    name = Path(entry.path).relative_to(self.path).as_posix()
                    yield Listed(name, stat.st_size, f"{stat.st_mtime_ns:x}-{stat.st_ino:x}", stat.st_mtime)
            except FileNotFoundError:  # deleted meanwhile
                continue


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
