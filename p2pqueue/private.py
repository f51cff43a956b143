"""How does a file become private from its first moment, and come to be whole or not at all?"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from p2pqueue.errors import DamagedHome, DiskFull, ReadOnlyHome, WorldError

DIR_MODE = 0o700
FILE_MODE = 0o600

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # what file systems without hard links say


def write_private(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Writes a file whole and durable, readable by its owner alone under any umask.

    A reader meets the old content or the new, never a part. With `replace=False` an existing file stays as
    it is and `FileExistsError` is raised. Raises `DiskFull` and `ReadOnlyHome`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        try:
            _write_new(temporary, data)
            if replace:
                os.replace(temporary, path)
            else:
                _name_new(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        sync_dir(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise in_words(error, path) from error


def make_private_dir(path: Path) -> None:
    """Makes a folder, with its parents, that only its owner may enter; leaves an existing one as it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mkdir(path, DIR_MODE)
        except FileExistsError:
            if not path.is_dir():
                raise
            return
        os.chmod(path, DIR_MODE)  # a umask may have taken the owner's own bits
        sync_dir(path.parent)
    except OSError as error:
        raise in_words(error, path) from error


def check_owner(path: Path) -> None:
    """Raises `ReadOnlyHome` where root would leave files in another user's folder, which that user could not open."""
    if os.name == "nt" or os.geteuid() != 0:
        return
    whole = path.absolute()
    there = next((each for each in (whole, *whole.parents) if each.exists()), None)
    owner = 0 if there is None else there.stat().st_uid
    if owner != 0:
        import pwd

        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"#{owner}"
        raise ReadOnlyHome(
            f"{there} belongs to {name}, and this is root: {name} could not open what root writes there; "
            f"run it as that user (sudo -u {name} p2pqueue …), or choose another home with --home"
        )


def sync_dir(path: Path) -> None:
    """Makes new and renamed names in a folder durable, where the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def loosened(path: Path) -> str | None:
    """Says in words what is wrong when others than the owner may enter or read a path; None if all is well."""
    if os.name == "nt":
        return None
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o077:
        return None
    wanted = DIR_MODE if path.is_dir() else FILE_MODE
    return f"{path} may be read by other users (mode {mode:04o}); run: chmod {wanted:o} {path}"


def in_words(error: OSError, path: Path) -> WorldError:
    """The error of the house for an operating system's one about a path in a home."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"No space left to write {path} ({reason}); free some and try again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyHome(f"{path} can't be written ({reason}); check its owner and mode, or choose another home")
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        return DamagedHome(f"{path} is in the way ({reason}); choose another home or move it")
    return DamagedHome(f"{path} can't be used: {reason}")


def _name_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)  # unlike a rename it fails where the name is taken
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(temporary, path)


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), FILE_MODE)
    with open(descriptor, "wb") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, FILE_MODE)  # a umask may have taken the owner's own bits
        file.write(data)
        file.flush()
        os.fsync(descriptor)
