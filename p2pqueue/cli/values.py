"""Which values do people mean by `key=value`?

By the task's annotation where it is known; else JSON; else text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from p2pqueue.cli import quantities

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_STDIN_LIMIT = 1 << 20  # bytes read from stdin: sixteen times what a job can carry, so that the refusal can say so
_MOST_DIGITS = 40  # of a whole number: twice what a job can carry, so that its refusal can say so
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[(.*)\]")


def pair(text: str) -> tuple[str, str]:
    """The name and the text of `key=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is no key=value; write the parameter's name, `=`, and its value.")
    return name, value


def arguments(given: Iterable[str], parameters: Iterable[Mapping[str, Any]], stdin: Callable[[int], str]) -> dict[str, Any]:
    """The arguments of a job from what was typed; a bare `-` adds the JSON object on stdin.

    Raises `click.UsageError` for a name that is given twice and a value that doesn't fit its annotation.
    """
    annotations = {each["name"]: each.get("annotation") or "" for each in parameters}
    files = {each["name"] for each in parameters if each.get("is_file")}
    values: dict[str, Any] = {}
    for text in given:
        if text == "-":
            found = _object(stdin(_STDIN_LIMIT + 1))
        else:
            name, typed = pair(text)
            if name in files:
                raise click.UsageError(f"{name} takes a file: write -f {name}=PATH.")
            found = {name: value(typed, annotations.get(name, ""), name=name)}
        twice = values.keys() & found.keys()
        if twice:
            raise click.UsageError(f"{', '.join(sorted(twice))} is given twice.")
        values |= found
    return values


def value(text: str, annotation: str = "", *, name: str = "the value") -> Any:
    """What a text means for a parameter of that annotation (its text; empty where it is not known)."""
    kinds = _kinds(annotation)
    failures = []
    for kind in kinds:
        reader = _READERS.get(kind)
        if reader is None:
            return _json_or_text(text, name)
        try:
            return reader(text)
        except (ValueError, RecursionError, click.BadParameter):
            failures.append(kind)
    if failures:
        raise click.UsageError(f"{name} takes {' or '.join(_WORDS.get(kind, kind) for kind in failures)}, and {text[:80]!r} is none.")
    return _json_or_text(text, name)


def check_names(task: str, values: Iterable[str], parameters: Iterable[Mapping[str, Any]]) -> None:
    """Raises `click.UsageError` where a name is no parameter of the task, or a required one is missing."""
    known = {each["name"]: bool(each.get("required", "default" not in each)) for each in parameters}
    given = set(values)
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    for name in sorted(given - known.keys()):
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise click.UsageError(f"{task} has no parameter {name!r}; {takes}.{hint}")
    missing = [name for name, required in known.items() if required and name not in given]
    if missing:
        raise click.UsageError(f"{task} misses {', '.join(missing)}; {takes}.")


def _object(text: str) -> dict[str, Any]:
    if len(text) > _STDIN_LIMIT:
        raise click.UsageError("stdin holds more than a job can carry (64 KiB); pass large data as a file, with -f name=PATH.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"stdin holds no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise click.UsageError('stdin holds no JSON object; write {"parameter": value, …}.')
    return found


def _kinds(annotation: str) -> list[str]:
    text = annotation.strip().strip("'\"").strip()
    optional = _OPTIONAL.fullmatch(text)
    if optional:
        text = f"{optional[1]} | None"
    parts = [part.strip() for part in _split(text)]
    # `None` first, so that `null` is one where the other kinds would refuse it; text takes all, so it comes last
    order = {"None": 0, "str": 2}
    names = [part.split("[")[0].split(".")[-1] for part in parts if part]
    return sorted(names, key=lambda kind: order.get(kind, 1))


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in ")]")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _json_or_text(text: str, name: str) -> Any:
    def whole(digits: str) -> int:
        if len(digits) > _MOST_DIGITS:
            raise click.UsageError(f"{name} has a whole number of {len(digits):,} digits, which no job can carry; quoted it is text.")
        return int(digits)

    try:
        return json.loads(text, parse_constant=_no_constant, parse_int=whole)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are words here, not numbers


def _null(text: str) -> None:
    if text not in ("null", "None"):
        raise ValueError(text)


def _int(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9][0-9_]{0,39}", text.strip()):
        raise ValueError(text)
    return int(text)


def _float(text: str) -> float:
    return float(text)


def _bool(text: str) -> bool:
    try:
        return _SWITCHES[text.strip().lower()]
    except KeyError:
        raise ValueError(text) from None


def _datetime(text: str) -> datetime:
    return datetime.fromtimestamp(quantities.moment(text) / 1000, UTC)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _of(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        found = json.loads(text)
        if not isinstance(found, kind):
            raise ValueError(text)
        return found

    return read


_READERS: dict[str, Callable[[str], Any]] = {
    "None": _null, "NoneType": _null, "str": str, "int": _int, "float": _float, "bool": _bool, "datetime": _datetime, "bytes": _bytes,
    "list": _of(list), "tuple": _of(list), "dict": _of(dict),
}  # fmt: skip
_WORDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "datetime": "a time (2026-12-24T18:30)",
    "list": "a JSON array", "tuple": "a JSON array", "dict": "a JSON object", "None": "null",
}  # fmt: skip
