"""What may a signal say, and how does it look on the wire?

A signal is a small map that tells other devices something sooner than their replicas would: a hint, never the
truth. Every one has a kind, its source and an id. Fields that a kind doesn't know are left out; a kind that this
version doesn't know is passed on and not delivered. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from p2pqueue import wire
from p2pqueue.errors import ArgumentError, MalformedMessage

SIGNAL_LIMIT = 48 * 1024  # bytes of a signal
ID_BYTES = 8
TEXT_LIMIT = 256  # characters of a text in a signal
LIST_LIMIT = 256  # entries of a list in a signal

_DEVICE = frozenset("0123456789abcdef")
_ENVELOPE = ("kind", "src", "id")


@dataclass(frozen=True)
class Signal:
    """One signal. `source` is the device that says it, whoever passed it on."""

    kind: str
    source: str
    id: bytes
    fields: Mapping[str, Any] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Its wire form. Raises `ArgumentError` beyond the limits."""
        data = wire.pack({**self.fields, "kind": self.kind, "src": bytes.fromhex(self.source), "id": self.id})
        if len(data) > SIGNAL_LIMIT:
            raise ArgumentError(f"a signal of {len(data)} bytes, where at most {SIGNAL_LIMIT} are sent")
        return data

    @property
    def is_known(self) -> bool:
        """Says whether this version knows its kind."""
        return self.kind in _FIELDS


def unpack(data: bytes) -> Signal:
    """The signal that these bytes stand for. Raises `MalformedMessage` for anything that isn't one."""
    said = wire.unpack(data, limit=SIGNAL_LIMIT, nesting=4)
    if not isinstance(said, dict) or not all(isinstance(name, str) for name in said):
        raise MalformedMessage("a signal that is no map of names")
    kind, source, identity = (said.get(name) for name in _ENVELOPE)
    if not isinstance(kind, str) or not 0 < len(kind) <= 32:
        raise MalformedMessage("a signal without a kind")
    if not isinstance(source, bytes) or len(source) != 16 or not isinstance(identity, bytes) or len(identity) != ID_BYTES:
        raise MalformedMessage("a signal without its source or its id")
    rest = {name: value for name, value in said.items() if name not in _ENVELOPE}
    return Signal(kind, source.hex(), identity, _known_fields(kind, rest))


def _known_fields(kind: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
    checks = _FIELDS.get(kind)
    if checks is None:
        return said
    for name, check in checks.items():
        if said.get(name) is not None and not check(said[name]):
            raise MalformedMessage(f"a signal {kind!r} whose {name!r} is none")
    return said if kind == "hello" else {name: said[name] for name in checks if said.get(name) is not None}


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_LIMIT


def _texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= LIST_LIMIT and all(map(_text, value))


def _list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= LIST_LIMIT


def _number(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _measure(value: Any) -> bool:
    return type(value) in (int, float) and value == value


def _fraction(value: Any) -> bool:
    return _measure(value) and 0 <= value <= 1


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= LIST_LIMIT and all(_text(name) and _number(number) for name, number in value.items())


def _devices(value: Any) -> bool:
    return _texts(value) and all(len(each) == 32 and _DEVICE.issuperset(each) for each in value)


_FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "hello": {"links": _devices},  # the rest is read by whoever wants to know who is there
    "progress": {"job": _text, "claim": _number, "fraction": _fraction, "phase": _text},
    "done": {"job": _text, "status": _text},
    "begun": {"jobs": _list, "back": _texts},
    "control": {"jobs": _list},
}  # fmt: skip
