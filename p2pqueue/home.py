"""Where does a device keep its things, and who may reach them?

Every command imports this module first, so it imports little, and the rest where it is used.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import NamedTuple

from p2pqueue.errors import ConfigError, ReadOnlyHome
from p2pqueue.private import DIR_MODE, check_owner, in_words, loosened, make_private_dir

HOME_VARIABLE = "P2PQUEUE_HOME"

_PLAIN_NAME = r"[A-Za-z0-9_-]{1,64}"  # compiled when it is first used: few commands do


class Home(NamedTuple):
    """The folder of one device: its keys, its replica, its files. Private to its user."""

    path: Path

    @classmethod
    def find(cls, explicit: str | Path | None = None) -> Home:
        """The home that was named, else that of `P2PQUEUE_HOME`, else the user's own. It need not exist."""
        named = explicit or os.environ.get(HOME_VARIABLE)
        if named:
            return cls(Path(named).expanduser().absolute())
        return cls(_users_own())

    @property
    def identity_file(self) -> Path:
        """Keys of the device and its space."""
        return self.path / "identity"

    @property
    def replica_file(self) -> Path:
        """The database of jobs."""
        return self.path / "replica.sqlite"

    @property
    def node_lock_file(self) -> Path:
        """Held by the running node; contains its process id."""
        return self.path / "node.lock"

    @property
    def twin_file(self) -> Path:
        """Tells while the node runs that another device runs with the same key."""
        return self.path / "twin"

    @property
    def config_file(self) -> Path:
        """Settings, as TOML."""
        return self.path / "config.toml"

    @property
    def shelf_file(self) -> Path:
        """The database of stored files."""
        return self.path / "shelf.sqlite"

    @property
    def shards_dir(self) -> Path:
        """Sealed chunks of stored files."""
        return self.path / "shards"

    @property
    def landings_dir(self) -> Path:
        """What is being fetched, and was in part."""
        return self.path / "landings"

    @property
    def work_dir(self) -> Path:
        """Working folders of running attempts."""
        return self.path / "work"

    @property
    def logs_dir(self) -> Path:
        """Logs of attempts."""
        return self.path / "logs"

    @property
    def socket_path(self) -> Path:
        """The local socket of this home's node; see `socket_path`."""
        return socket_path(self)

    def log_file(self, job_id: str, generation: int, claim: int) -> Path:
        """Where the log of one attempt lies. A job id from elsewhere is data: an odd one becomes its hash."""
        name = job_id if re.fullmatch(_PLAIN_NAME, job_id) else _digest(job_id)
        return self.logs_dir / name / f"{generation}-{claim}.log"

    def ensure(self) -> None:
        """Makes the home and its folders, private, and checks that it can be written.

        Raises `ReadOnlyHome`, also to root in another user's folder, `DiskFull`, or `DamagedHome` where something else is in the way.
        """
        check_owner(self.path)
        make_private_dir(self.path)
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise ReadOnlyHome(
                f"The home {self.path} can't be written by this user; check its owner and mode, or choose another with --home"
            )
        self._tighten()
        for folder in (self.shards_dir, self.work_dir, self.logs_dir):
            make_private_dir(folder)

    def _tighten(self) -> None:
        problem = loosened(self.path)
        if problem is None:
            return
        import logging

        try:
            # Somebody's own folder that was named as a home by mistake keeps its mode.
            if self.identity_file.exists() or not any(self.path.iterdir()):
                os.chmod(self.path, DIR_MODE)
                logging.getLogger(__name__).warning(
                    "%s may have been entered by other users until now; its mode is %o again", self.path, DIR_MODE
                )
            else:
                logging.getLogger(__name__).warning("%s", problem)
        except OSError as error:
            raise in_words(error, self.path) from error


def socket_path(home: Home) -> Path:
    """The path of the local socket: short, in a folder that only this user may enter, one per home.

    Makes the folder. Raises `ConfigError` where another user owns it already.
    """
    folder = _runtime_dir()
    make_private_dir(folder)
    found = os.lstat(folder)
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode)):
        raise ConfigError(f"{folder} belongs to another user or is no folder; set XDG_RUNTIME_DIR to a private folder of your own")
    if os.name != "nt" and stat.S_IMODE(found.st_mode) != DIR_MODE:
        os.chmod(folder, DIR_MODE)
    return folder / f"{_digest(str(home.path.resolve()))}.sock"


def _users_own() -> Path:
    """The user's data folder. On Linux it is found without platformdirs, whose import costs as much as a whole command."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    if sys.platform == "linux" and os.path.isabs(base):
        return Path(base, "p2pqueue")
    import platformdirs

    return Path(platformdirs.user_data_dir("p2pqueue"))


def _runtime_dir() -> Path:
    import tempfile

    if not hasattr(os, "getuid"):
        return Path(tempfile.gettempdir()) / "p2pqueue"
    # A session without XDG_RUNTIME_DIR (cron, ssh, su) must find the same socket as a desktop's.
    for base in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
        if base and os.path.isabs(base) and os.path.isdir(base) and os.stat(base).st_uid == os.getuid():
            return Path(base) / "p2pqueue"
    return Path(tempfile.gettempdir()) / f"p2pqueue-{os.getuid()}"


def _digest(text: str) -> str:
    import hashlib

    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
