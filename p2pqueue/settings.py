"""Which settings are there, of what kind, and what do they mean?

`Settings` is the one declared table. Flags, `P2PQUEUE_…` variables, the keys of `config.toml` and the page
`docs/reference/settings.md` are made from it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from p2pqueue.errors import ConfigError

Value = str | int | float | bool | tuple[str, ...]
Kind = Literal["text", "count", "duration", "size", "switch", "list"]

_DAY = 86_400.0  # seconds
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY, "w": 7 * _DAY}  # seconds
_SIZE_UNITS = (
    {"": 1, "b": 1}
    | {f"{p}{b}": 1000**n for n, p in enumerate("kmgt", 1) for b in ("", "b")}
    | {f"{p}ib": 1024**n for n, p in enumerate("kmgt", 1)}
)
_SHOWN_DURATIONS = {unit: _DURATION_UNITS[unit] for unit in "dhms"}  # the largest first
_SHOWN_SIZES = {unit: _SIZE_UNITS[unit.lower()] for unit in ("TiB", "GiB", "MiB", "KiB", "GB", "MB")}
_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_LARGEST = 2**63 - 1


def _declared(default: Any, kind: Kind, doc: str, *, least: float = 0, shown: str = "") -> Any:
    metadata = {"kind": kind, "doc": doc, "least": least, "shown": shown}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """What a node may be told. Durations are in seconds, sizes in bytes."""

    slots: int = _declared(
        lambda: os.cpu_count() or 1, "count", "How many jobs run at the same time on this device.", least=1, shown="the number of cores"
    )
    work: bool = _declared(True, "switch", "Whether this device takes jobs; without it, it only keeps and shows them.")
    allow_exec: bool = _declared(False, "switch", "Whether `exec` jobs and command tasks, which start any program, may run here.")
    allow_tasks: tuple[str, ...] = _declared((), "list", "The command tasks that may run here where `allow_exec` is off, by their names.")
    tags: tuple[str, ...] = _declared((), "list", "What this device offers to jobs that need it, beside the programs on its PATH.")
    max_input: int = _declared(0, "size", "The largest input that this device takes; 0 takes any.", shown="0 (any size)")
    score: int = _declared(
        0,
        "count",
        "What this device shall count for where several could take a job; 0 counts its cores.",
        shown="0 (cores × 30)",
    )
    stale_after: float = _declared(
        45.0, "duration", "How long a running job's lease may stand still before another device takes it over.", least=0.05
    )
    beat_every: float = _declared(10.0, "duration", "How often a worker renews the lease of a running job.", least=0.01)
    grace: float = _declared(10.0, "duration", "How long running handlers may go on when the node is told to stop.")
    retention: float = _declared(7 * _DAY, "duration", "How long ended jobs, their results and files are kept; at least a day.", least=_DAY)
    unknown_task_after: float = _declared(_DAY, "duration", "After how long a job fails whose task no device knows.", least=1.0)
    log_limit: int = _declared(8 * 1024**2, "size", "The most that is kept of one attempt's log; its middle is cut out.", least=1024)
    network: bool = _declared(True, "switch", "Whether this device links to the others of its space; `p2pqueue online` begins it later.")
    listen: str = _declared(
        "", "text", "Where other devices reach this one, as HOST:PORT.", shown="port 7433 of every interface, or the next free one"
    )
    peers: tuple[str, ...] = _declared(
        (), "list", "Further addresses to dial, as HOST:PORT or HOST (then with port 7433), whoever of the space is there."
    )
    discovery: bool = _declared(True, "switch", "Whether devices find one another by mDNS.")
    interfaces: tuple[str, ...] = _declared(
        (), "list", "The network interfaces to use, by names or addresses; `lo` keeps everything on this host.", shown="the ordinary ones"
    )
    lanes: tuple[str, ...] = _declared(("webrtc", "http", "origin"), "list", "The ways that files may take, of webrtc, http and origin.")
    origin: str = _declared(
        "", "text", "The URL of an origin, as `p2pqueue origin` prints it, or a bucket, as s3://BUCKET/PREFIX.", shown="none"
    )
    origin_policy: str = _declared(
        "needed",
        "text",
        "What is put on the origin: `never` anything, what is `needed` and nobody linked can take, or `always` all.",
    )
    rate: int = _declared(
        0, "size", "How many bytes a second files may take of the network, in each direction; 0 sets no limit.", shown="0 (no limit)"
    )
    metered: tuple[str, ...] = _declared(
        (), "list", "The network interfaces whose bytes cost money, by names or addresses: no files go over them.", shown="none"
    )
    quota: int = _declared(
        0,
        "size",
        "How much disk files may take in the home, fetched ones included; 0 decides by the disk, and for sealed ones alone.",
        shown="0 (the smaller of 20 GiB and 10 % of the disk)",
    )
    reserve: int = _declared(1024**3, "size", "How much of the disk is left free: nothing is stored below that.")


@dataclass(frozen=True)
class Setting:
    """One row of the table of settings, as documentation, flags and the command `config` read it."""

    name: str
    kind: Kind
    doc: str
    least: float
    default: Value
    shown: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"P2PQUEUE_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The flag that sets it on the command line, where a command has it."""
        return "--" + self.name.replace("_", "-")

    @property
    def unit(self) -> str:
        """What a bare number counts; empty for texts, switches and lists."""
        return {"duration": "seconds", "size": "bytes"}.get(self.kind, "")

    def parse(self, raw: object, *, where: str = "") -> Value:
        """The value that a text, or a value from TOML, stands for. Raises `ConfigError`, naming `where` it stood."""
        try:
            value: Value = _PARSERS[self.kind](raw)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and not self.least <= value <= _LARGEST:
                raise ValueError(f"must be at least {self.text(self.least)}" if value < self.least else "is too large")
        except ValueError as error:
            raise ConfigError(f"{where or self.name}: {raw!r} {error}") from error
        return value

    def text(self, value: Value) -> str:
        """A value as `parse` reads it and people write it: `true`, `30d`, `8MiB`, `gpu,blender`."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, str):
            return value
        units = {"duration": _SHOWN_DURATIONS, "size": _SHOWN_SIZES}.get(self.kind, {})
        return next((f"{value / one:.0f}{unit}" for unit, one in units.items() if value and value % one == 0), f"{value:.15g}")


def parse_duration(raw: object) -> float:
    """Seconds from a number, or from a text like `90`, `1.5h` or `1h30m` (units ms s m h d w). Raises `ValueError`."""
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return _finite(raw)
    words = "is no duration; write seconds, or a number with one of ms s m h d w, such as 10m"
    if not isinstance(raw, str):
        raise ValueError(words)
    text = raw.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _finite(float(text))
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|[smhdw]))+", text):
        raise ValueError(words)
    return _finite(sum(float(n) * _DURATION_UNITS[unit] for n, _, unit in re.findall(r"(\d+(\.\d+)?)(ms|[smhdw])", text)))


def parse_size(raw: object) -> int:
    """Bytes from an integer, or from a text like `500`, `64MiB` or `2 GB`. Raises `ValueError`."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", raw.strip().lower()) if isinstance(raw, str) else None
    if match is None or match[2] not in _SIZE_UNITS:
        raise ValueError("is no size; write bytes, or a number with a unit, such as 500k, 2MB or 1.5GiB")
    return int(_finite(float(match[1]) * _SIZE_UNITS[match[2]])) if "." in match[1] else int(match[1]) * _SIZE_UNITS[match[2]]


def find_setting(name: str, *, where: object = "") -> Setting:
    """The setting of that name; dashes count as underscores. Raises `ConfigError`, with the nearest name, naming `where` it stood."""
    known = TABLE_BY_NAME.get(name.replace("-", "_"))
    if known is None:
        near = difflib.get_close_matches(name, TABLE_BY_NAME, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TABLE_BY_NAME)}"
        raise ConfigError(f"{where}: there is no setting {name!r}; {hint}" if where else f"There is no setting {name!r}; {hint}")
    return known


def merged(*layers: Mapping[str, Value]) -> Settings:
    """Settings from the defaults and the given values, later layers over earlier ones."""
    values: dict[str, Any] = {}
    for layer in layers:
        values.update(layer)
    settings = Settings(**values)
    if settings.beat_every >= settings.stale_after:
        raise ConfigError(
            f"beat_every ({settings.beat_every:g} s) must be below stale_after ({settings.stale_after:g} s), "
            "or every running job would be taken over"
        )
    return settings


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("must be finite")
    return float(number)


def _parse_count(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and re.fullmatch(r"\s*[+-]?\d{1,20}\s*", raw):
        return int(raw)
    raise ValueError("is no whole number")


def _parse_switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.strip().lower() in _SWITCHES:
        return _SWITCHES[raw.strip().lower()]
    raise ValueError("is neither true nor false")


def _parse_text(raw: object) -> str:
    if isinstance(raw, str):
        return raw
    raise ValueError("is no text")


def _parse_list(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if isinstance(raw, (list, tuple)) and all(isinstance(part, str) for part in raw):
        return tuple(raw)
    raise ValueError("is no list of texts")


_PARSERS: Mapping[Kind, Any] = {
    "text": _parse_text,
    "count": _parse_count,
    "duration": parse_duration,
    "size": parse_size,
    "switch": _parse_switch,
    "list": _parse_list,
}


def _row(field: dataclasses.Field[Any]) -> Setting:
    default: Any = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    return Setting(field.name, default=default, **field.metadata)


TABLE = tuple(_row(field) for field in dataclasses.fields(Settings))
TABLE_BY_NAME = {setting.name: setting for setting in TABLE}
