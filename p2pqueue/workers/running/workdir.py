"""Where may an attempt keep its files while it runs, and who takes them away?

One folder per attempt, made private when the handler first asks for it and removed after every end. What a killed
node left behind is removed when the next one starts.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from p2pqueue.private import DIR_MODE


def make(path: str | os.PathLike[str]) -> Path:
    """Makes the folder, readable by its owner alone, with its parents; an existing one is used as it is."""
    folder = Path(path)
    folder.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
    return folder


def remove(path: str | os.PathLike[str]) -> bool:
    """Removes the folder with all in it, and says whether it is gone; a missing one is. Symbolic links are not followed."""
    import shutil  # with its compressors: too much for every idle child

    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=_unlock)
    else:
        shutil.rmtree(path, onerror=_unlock)
    return not os.path.lexists(path)


def sweep(root: str | Path) -> int:
    """Removes all that earlier attempts left under `root`; says how many. For a node's start, before it runs anything."""
    try:
        left = list(Path(root).iterdir())
    except FileNotFoundError:
        return 0
    return sum(_remove_any(path) for path in left)


def folder_of(root: str | Path, key: str) -> Path:
    """The folder of an attempt: its key as one plain name, so that no key leads out of `root`."""
    name = "".join(c if c.isalnum() or c in "-_" else "-" for c in key).strip("-") or "attempt"
    return Path(root) / name[:120]


def _remove_any(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        return remove(path)
    path.unlink(missing_ok=True)
    return True


def _unlock(function: object, path: str, error: object) -> None:
    """A handler may have taken its own rights away (a read-only tree from an archive): they are given back once."""
    import shutil

    try:
        os.chmod(os.path.dirname(path), stat.S_IRWXU)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, stat.S_IRWXU)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        pass
