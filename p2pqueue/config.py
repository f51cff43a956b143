"""Where does a device keep its things, and which settings hold there?"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from p2pqueue.errors import ConfigError, DamagedHome, ReadOnlyHome
from p2pqueue.private import DIR_MODE, in_words, loosened, make_private_dir, write_private
from p2pqueue.settings import TABLE, Setting, Settings, Value, find_setting, merged

__all__ = ["Home", "Settings", "get_setting", "load_settings", "set_setting", "socket_path"]

HOME_VARIABLE = "P2PQUEUE_HOME"

_log = logging.getLogger(__name__)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Home:
    """The folder of one device: its keys, its replica, its files. Private to its user."""

    path: Path

    @classmethod
    def find(cls, explicit: str | Path | None = None) -> Home:
        """The home that was named, else that of `P2PQUEUE_HOME`, else the user's own. It need not exist."""
        named = explicit or os.environ.get(HOME_VARIABLE)
        if named:
            return cls(Path(named).expanduser().absolute())
        import platformdirs  # a few milliseconds that a named home needn't pay

        return cls(Path(platformdirs.user_data_dir("p2pqueue")))

    @property
    def identity_file(self) -> Path:
        """Keys of the device and its space."""
        return self.path / "identity"

    @property
    def replica_file(self) -> Path:
        """The database of jobs."""
        return self.path / "replica.sqlite"

    @property
    def lock_file(self) -> Path:
        """Orders the writers of all processes."""
        return self.path / "replica.lock"

    @property
    def node_lock_file(self) -> Path:
        """Held by the running node; contains its process id."""
        return self.path / "node.lock"

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
        name = job_id if _PLAIN_NAME.fullmatch(job_id) else _digest(job_id)
        return self.logs_dir / name / f"{generation}-{claim}.log"

    def ensure(self) -> None:
        """Makes the home and its folders, private, and checks that it can be written.

        Raises `ReadOnlyHome`, `DiskFull`, or `DamagedHome` where something else is in the way.
        """
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
        try:
            # Somebody's own folder that was named as a home by mistake keeps its mode.
            if self.identity_file.exists() or not any(self.path.iterdir()):
                os.chmod(self.path, DIR_MODE)
                _log.warning("%s may have been entered by other users until now; its mode is %o again", self.path, DIR_MODE)
            else:
                _log.warning("%s", problem)
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


def load_settings(home: Home, overrides: Mapping[str, object] | None = None) -> Settings:
    """The settings of a home: `overrides` (None counts as not given) over `P2PQUEUE_…` over `config.toml`.

    Raises `ConfigError` for an unknown name or a value of the wrong kind, saying where it stands.
    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    in_file = {name: find_setting(name).parse(raw, where=f"{home.config_file}: {name}") for name, raw in _read(home).items()}
    in_environment = {s.name: s.parse(os.environ[s.variable], where=s.variable) for s in TABLE if os.environ.get(s.variable)}
    named = {find_setting(name).name: find_setting(name).parse(raw, where=find_setting(name).flag) for name, raw in given.items()}
    return merged(in_file, in_environment, named)


def get_setting(home: Home, name: str) -> Value:
    """The value that a setting has in a home now."""
    value: Value = getattr(load_settings(home), find_setting(name).name)
    return value


def set_setting(home: Home, name: str, raw: object) -> Value:
    """Writes one setting into `config.toml`, whole and durable; comments and other keys stay. Gives its value."""
    setting = find_setting(name)
    value = setting.parse(raw)
    before = _read(home)
    wanted = before | {setting.name: list(value) if isinstance(value, tuple) else value}
    merged({key: find_setting(key).parse(other) for key, other in wanted.items()})
    make_private_dir(home.path)
    write_private(home.config_file, _changed(_text(home), setting, value, wanted).encode())
    return value


def _changed(text: str, setting: Setting, value: Value, wanted: Mapping[str, object]) -> str:
    line = f"{setting.name} = {_toml(value)}"
    pattern = re.compile(rf"^[ \t]*{setting.name}[ \t]*=.*$", re.MULTILINE)
    candidate = pattern.sub(lambda _: line, text, count=1) if pattern.search(text) else f"{text.rstrip()}\n{line}\n".lstrip()
    try:
        if _parse_toml(candidate) == wanted:
            return candidate
    except ValueError:
        pass
    # A value over several lines, a key inside a text: then the file is written anew, without its comments.
    return "".join(f"{key} = {_toml(other)}\n" for key, other in wanted.items())


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{value!r} can't be written: it is no Unicode text") from error
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(home: Home) -> dict[str, object]:
    try:
        return _parse_toml(_text(home))
    except ValueError as error:
        raise ConfigError(f"{home.config_file} is no TOML: {error}") from error


def _text(home: Home) -> str:
    try:
        return home.config_file.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{home.config_file} is no UTF-8 text: {error}") from error
    except OSError as error:
        raise DamagedHome(f"{home.config_file} can't be read: {error.strerror}") from error


def _parse_toml(text: str) -> dict[str, object]:
    if not text.strip():
        return {}
    import tomllib  # most homes have no such file, and every command asks

    return tomllib.loads(text)


def _runtime_dir() -> Path:
    if not hasattr(os, "getuid"):
        return Path(tempfile.gettempdir()) / "p2pqueue"
    # A session without XDG_RUNTIME_DIR (cron, ssh, su) must find the same socket as a desktop's.
    for base in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
        if base and os.path.isabs(base) and os.path.isdir(base) and os.stat(base).st_uid == os.getuid():
            return Path(base) / "p2pqueue"
    return Path(tempfile.gettempdir()) / f"p2pqueue-{os.getuid()}"


def _digest(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=12).hexdigest()
