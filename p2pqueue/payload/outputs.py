"""How does a large output outlive the folder in which a handler made it?

It is moved, not copied, into `outputs/` of the home, each into a folder of its own so that it keeps its name, and is
served from there. So nothing is sealed onto the disk a second time.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from p2pqueue.payload.names import safe_name
from p2pqueue.payload.plain import unreadable
from p2pqueue.payload.scan import scan
from p2pqueue.payload.unpacking import sync_below
from p2pqueue.private import DIR_MODE, FILE_MODE, in_words, make_private_dir, sync_dir


def lies_within(path: Path, folder: Path) -> bool:
    """Says whether a path, links followed, lies under a folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


@contextmanager
def moved(path: Path, outputs: Path, name: str, *, check_room: Callable[[int], None]) -> Iterator[Path]:
    """Moves a file or folder into `outputs`, private and durable; when the context fails it is moved back.

    A file that has other names as well is copied, since its mode and fate are not ours alone. A copy takes room:
    `check_room` is told how much and may refuse.
    """
    folder = outputs / os.urandom(8).hex()
    target = folder / safe_name(name)
    make_private_dir(outputs)
    make_private_dir(folder)
    found = path.stat()
    copied = (found.st_nlink > 1 and not path.is_dir()) or found.st_dev != folder.stat().st_dev
    try:
        if copied:
            check_room(scan(path).size if path.is_dir() else found.st_size)
        _bring(path, target, copied)
    except OSError as error:
        _discard(target)
        raise (unreadable(str(path), error) if error.filename == str(path) else in_words(error, target)) from error
    except BaseException:
        _discard(target)
        raise
    try:
        yield target
    except BaseException:
        if copied:
            _discard(target)
        else:
            os.replace(target, path)
            folder.rmdir()
        raise


def can_be_moved(path: Path) -> bool:
    """Says whether moving takes all of a file or folder along: no link leads out of it, and no file in it has other names."""
    if not path.is_dir():
        return True
    for parent, folders, files in os.walk(path):
        found = [os.lstat(os.path.join(parent, name)) for name in (*folders, *files)]
        if any(stat.S_ISLNK(each.st_mode) or (stat.S_ISREG(each.st_mode) and each.st_nlink > 1) for each in found):
            return False
    return True


def _bring(path: Path, target: Path, copied: bool) -> None:
    if path.is_dir():
        _bring_folder(path, target, copied)
        return
    if copied:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        shutil.copyfile(path, target)
    else:
        os.chmod(path, FILE_MODE)
        os.rename(path, target)
    with open(target, "rb+", buffering=0) as file:
        os.fsync(file.fileno())
    sync_dir(target.parent)


def _bring_folder(path: Path, target: Path, copied: bool) -> None:
    if copied:
        shutil.copytree(path, target)
    else:
        os.rename(path, target)
    os.chmod(target, DIR_MODE)
    sync_below(target)
    sync_dir(target.parent)


def _discard(target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target, ignore_errors=True)
    target.unlink(missing_ok=True)
    target.parent.rmdir()
