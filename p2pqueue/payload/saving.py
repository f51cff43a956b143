"""How does the content of a file or a folder reach a path, whole and checked or not at all?"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from p2pqueue.errors import BadShard, DiskFull, MisuseError, WorldError
from p2pqueue.payload.names import LONGEST, distinct_names, safe_name
from p2pqueue.payload.plain import absolute, shown


def target_of(path: str | os.PathLike[str], name: str) -> Path:
    """Where a file of that name goes: the path, or, in a folder, the name as the rule of names writes it.

    Raises `MisuseError` where something lies that is no file, and `InputUnreadable` for a path that can't be one.
    """
    text = os.fspath(path)
    target = Path(os.path.realpath(absolute(path)))  # a link to a file is followed, never replaced
    separators = (os.sep, os.altsep) if os.altsep else (os.sep,)
    if target.is_dir() or text.endswith(separators):
        target /= _free_spelling(target, name)
        if target.is_symlink():
            raise MisuseError(f"{shown(str(target))} is a link that leads elsewhere; name the file to write")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise MisuseError(f"{shown(str(target))} is no regular file, so it isn't replaced; read the file's `chunks` instead")
    return target


def folder_of(path: str | os.PathLike[str] | None, name: str) -> Path:
    """Where a folder of that name goes: the path, or, in a folder that is there, the name as the rule of names writes it.

    Raises `MisuseError` where something lies already: a folder is never mixed with another.
    """
    target = parent_of(os.curdir if path is None else path)
    target = Path(os.path.realpath(absolute(os.curdir if path is None else path))) if target is None else target / safe_name(name)
    if os.path.lexists(target):
        raise MisuseError(f"{shown(str(target))} is there already; name another place for the folder, or take that one away")
    return target


def parent_of(path: str | os.PathLike[str]) -> Path | None:
    """The folder in which something goes under its own name; None where the path names the thing itself."""
    text = os.fspath(path)
    target = Path(os.path.realpath(absolute(path)))
    separators = (os.sep, os.altsep) if os.altsep else (os.sep,)
    return target if target.is_dir() or text.endswith(separators) else None


def check_place(path: str | os.PathLike[str]) -> Path:
    """Tries, with a file that is gone at once, whether something can be written to a path, or into a folder; gives that folder.

    Raises `DiskFull` and `WorldError`.
    """
    folder = parent_of(path) or Path(os.path.realpath(absolute(path))).parent
    there = next(each for each in (folder, *folder.parents) if os.path.lexists(each))  # the rest is made
    probe = there / f".{os.urandom(6).hex()}.part"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as error:
        raise in_words(error, folder) from error
    return there


def check_free(folder: Path, size: int) -> None:
    """Raises `DiskFull` where fewer bytes are free than are to be written there."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DiskFull(f"{size:,} bytes are to be written to {shown(str(folder))}, and {free:,} are free there; name another place")


@contextmanager
def made_folder(target: Path) -> Iterator[Path]:
    """A private folder beside the target, which becomes it when the context ends well, and is removed otherwise."""
    temporary = target.with_name(f".{os.urandom(6).hex()}.{safe_name(target.name)[: LONGEST // 4]}.part")
    try:
        try:
            temporary.mkdir(mode=0o700, parents=True)
            yield temporary
            open_up(temporary)
            os.rename(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except OSError as error:
        raise in_words(error, target) from error


def open_up(path: Path) -> None:
    """Gives what was made in private the mode that the user's mask leaves to new files and folders."""
    mask = _mask()
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def _mask() -> int:
    try:  # asking for it by `umask` would change it for a moment, for all threads
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def save(pieces: Iterable[bytes | memoryview], target: Path, *, content: bytes | None, mode: int = 0o666) -> None:
    """Writes pieces to a file beside the target and renames it at the end; the whole fits the hash `content`, if given.

    Raises `DiskFull`, `WorldError` where the folder can't be written, `BadShard` when the whole doesn't fit.
    """
    temporary = target.with_name(f".{os.urandom(6).hex()}.{safe_name(target.name)[: LONGEST // 4]}.part")
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
            with open(descriptor, "wb", buffering=0) as file:
                whole = blake3()
                for piece in pieces:
                    _write(file.fileno(), memoryview(piece))
                    if content is not None:
                        whole.update(piece)
                if content is not None and whole.digest() != content:
                    raise BadShard(f"The content of {shown(target.name)} doesn't fit its manifest; nothing was written")
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise in_words(error, target) from error


def _free_spelling(folder: Path, name: str) -> str:
    """The name as the rule writes it, unless this folder takes that for another name that is there (É for é, or its other form)."""
    mapped = safe_name(name)
    if os.path.lexists(folder / mapped):
        taken = os.listdir(folder)
        if mapped not in taken:
            return distinct_names([name], taken=taken)[0]
    return mapped


def _write(descriptor: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]


def in_words(error: OSError, target: Path) -> WorldError:
    """The error of the house for what stood in the way of writing to a place that the user chose."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"No space left to write {shown(str(target))}; nothing of it was kept")
    return WorldError(f"{shown(str(target))} can't be written: {reason}")
