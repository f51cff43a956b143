"""How do results reach stdout and words stderr, safely for a terminal and exactly for a program?

Names, titles and errors are data: `plain` shows whatever could steer a terminal as an escape. JSON is pure ASCII,
so that it survives every locale.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_STEERING = frozenset(
    [*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
_SHORT = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x1B: "\\x1b"}
_NARROWEST = 14  # columns below which no cell is cut: an id must stay one

STATUS_COLORS = {
    "queued": "cyan", "running": "blue", "paused": "yellow", "succeeded": "green", "failed": "red", "cancelled": "magenta",
}  # fmt: skip
_COLORS = {
    name: f"\x1b[{number}m" for number, name in enumerate(("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"), start=30)
}
_BOLD, _RESET = "\x1b[1m", "\x1b[0m"


def plain(text: object, *, lines: bool = False) -> str:
    """The text with everything that could steer a terminal shown as an escape; `lines` keeps line ends and tabs."""
    shown = str(text)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(_safe(character, lines) for character in shown)


def _safe(character: str, lines: bool) -> str:
    code = ord(character)
    if code in _STEERING:
        if lines and code in (0x09, 0x0A):
            return character
        return _SHORT.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that isn't UTF-8, as Python carries it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else character


def line(text: str = "") -> None:
    """Writes a line of the result to stdout, without its colours where none are shown. The text is already plain."""
    import click

    click.echo(text)


def document(value: Any) -> None:
    """Writes one JSON object as one line to stdout."""
    import json

    line(json.dumps(value, default=str))


def colored(text: str, color: str | None, *, bold: bool = False) -> str:
    """The text in a colour, as terminals understand it; `line` takes it away for all others."""
    codes = [*([_COLORS[color]] if color else []), *([_BOLD] if bold else [])]
    return f"{''.join(codes)}{text}{_RESET}" if codes else text


def on_terminal() -> bool:
    """Says whether a person reads stdout on a terminal that can move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def terminal_width() -> int:
    """The columns of the terminal; 0 where stdout is none, which means: cut nothing."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except (OSError, ValueError):
        return 0


def width(text: str) -> int:
    """How many columns a terminal needs for the text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) or char in "\u200b\u200d\ufe0f" else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, columns: int) -> str:
    """The text, ended by an ellipsis where it is wider than `columns`."""
    if columns <= 0 or width(text) <= columns:
        return text
    kept = ""
    for char in text:
        if width(kept + char) > columns - 1:
            break
        kept += char
    return kept + "…"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, colors: Sequence[str | None] = (), painted: bool = True) -> list[str]:
    """Lines of a table in columns; on a terminal, the widest cells are cut so that a row fits.

    `colors` gives a row's colour for its second column, where the status stands; not `painted`, nothing has one.
    """
    whole = [list(row) for row in rows]
    widths = [max([width(header), *(width(row[column]) for row in whole)]) for column, header in enumerate(headers)]
    available = terminal_width()
    if available:
        widths = _shrunk(widths, available)
    lines = [colored(_padded([cut(header, wide) for header, wide in zip(headers, widths, strict=True)], widths), None, bold=painted)]
    for index, row in enumerate(whole):
        cells = [cut(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        lines.append(_tinted(_padded(cells, widths), cells, widths, colors[index] if painted and index < len(colors) else None))
    return lines


def _shrunk(widths: list[int], available: int) -> list[int]:
    """The widths of columns, the widest made narrower until a row fits into a terminal."""
    fitted = list(widths)
    while sum(fitted) + 2 * (len(fitted) - 1) > available and max(fitted) > _NARROWEST:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True)).rstrip()


def _tinted(text: str, row: Sequence[str], widths: Sequence[int], color: str | None) -> str:
    start = widths[0] + 2
    if color is None or not text[start:].startswith(row[1]):
        return text
    return text[:start] + colored(row[1], color) + text[start + len(row[1]) :]


def pairs(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of names and values, the values below one another."""
    known = list(entries)
    wide = max((len(name) for name, _ in known), default=0)
    return [f"{name + ':':<{wide + 1}} {value}".rstrip() for name, value in known]


def bar(fraction: float, columns: int = 24) -> str:
    """A progress bar."""
    share = min(1.0, max(0.0, fraction))
    full = int(share * columns)
    return f"[{'#' * full}{'.' * (columns - full)}] {share * 100:3.0f} %"
