"""Which settings hold in a home, and how is one changed?"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from p2pqueue.errors import ConfigError, DamagedHome
from p2pqueue.home import Home, socket_path
from p2pqueue.private import check_owner, make_private_dir, write_private
from p2pqueue.settings import TABLE, Setting, Settings, Value, find_setting, merged

__all__ = ["Home", "Settings", "get_setting", "load_settings", "set_setting", "socket_path"]


def load_settings(home: Home, overrides: Mapping[str, object] | None = None) -> Settings:
    """The settings of a home: `overrides` (None counts as not given) over `P2PQUEUE_…` over `config.toml`.

    Raises `ConfigError` for an unknown name or a value of the wrong kind, saying where it stands.
    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    file = home.config_file
    in_file = {name: find_setting(name, where=file).parse(raw, where=f"{file}: {name}") for name, raw in _read(home).items()}
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
    merged({key: find_setting(key, where=home.config_file).parse(other) for key, other in wanted.items()})
    check_owner(home.path)
    make_private_dir(home.path)
    write_private(home.config_file, _changed(_text(home), setting, value, wanted).encode())
    return value


def unset_setting(home: Home, name: str) -> bool:
    """Takes one setting out of `config.toml`; comments and other keys stay. Says whether it stood there."""
    setting = find_setting(name)
    before = _read(home)
    if setting.name not in before:
        return False
    wanted = {key: value for key, value in before.items() if key != setting.name}
    merged({key: find_setting(key, where=home.config_file).parse(other) for key, other in wanted.items()})
    check_owner(home.path)
    write_private(home.config_file, _without(_text(home), setting, wanted).encode())
    return True


def _without(text: str, setting: Setting, wanted: Mapping[str, object]) -> str:
    return _faithful(re.sub(rf"^[ \t]*{setting.name}[ \t]*=.*\n?", "", text, count=1, flags=re.MULTILINE), wanted)


def _changed(text: str, setting: Setting, value: Value, wanted: Mapping[str, object]) -> str:
    line = f"{setting.name} = {_toml(value)}"
    pattern = re.compile(rf"^[ \t]*{setting.name}[ \t]*=.*$", re.MULTILINE)
    return _faithful(pattern.sub(lambda _: line, text, count=1) if pattern.search(text) else f"{text.rstrip()}\n{line}\n".lstrip(), wanted)


def _faithful(edited: str, wanted: Mapping[str, object]) -> str:
    """The edited text if it says what is wanted, else a new one: a value over several lines, a key inside a text."""
    try:
        if _parse_toml(edited) == wanted:
            return edited
    except ValueError:
        pass
    return _anew(wanted)


def _anew(wanted: Mapping[str, object]) -> str:
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
