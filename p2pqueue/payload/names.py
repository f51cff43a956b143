"""Which file name do we write for a name that somebody else chose?

The rule: a name is one component, and every character in it that could mean something else is written as `%` and
two hexadecimal digits for each of its bytes in UTF-8. These are

- `/` and `\\`, NUL and every other control character, characters that change the direction of text or can't be seen,
  and bytes that are not UTF-8 (each of them by itself);
- the dots of `.` and `..`;
- a `%` before two hexadecimal digits, so that no two names become one;
- a space at either end, and a dot at the end;
- on Windows also `: * ? " < > |`, and the first letter of a reserved name such as `con.txt`.

A name beyond 255 bytes keeps its beginning and its extension, with a hash of the whole between them. An empty one
becomes `unnamed`. Everything else, whatever its script, is kept; a name in another normal form of Unicode is another
name. Where the folder takes two names for one (letter case, normal forms), the second gets a hash too.

In a folder that was shared as a whole a name with nothing odd in it is kept as it is, also one with `%` and digits;
where another would be written as just that, the other gets a hash. Pure.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from blake3 import blake3

LONGEST: Final = 255  # bytes of a name on every file system in use
UNNAMED: Final = "unnamed"

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)\s*(\..*)?", re.IGNORECASE | re.DOTALL)
_LOOKS_ESCAPED = re.compile(r"%(?=[0-9A-Fa-f]{2})")
_PLAIN = re.compile(r"[A-Za-z0-9_%-](?:[A-Za-z0-9_%. -]{0,200}[A-Za-z0-9_%-])?")  # most names; the rest is looked at closely
_ODD_EVERYWHERE = frozenset("/\\")
_ODD_ON_WINDOWS = frozenset(':*?"<>|')
_ODD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control, format, surrogate, separators of lines
_HARMLESS_FORMAT = frozenset("\u200c\u200d")  # joiners: emoji and several scripts need them
_EXTENSION_LIMIT: Final = 32  # bytes of an extension that a shortened name keeps


def safe_name(name: str | bytes, *, windows: bool = os.name == "nt") -> str:
    """The name under which a file of that name is written, or shown: one component, printable, at most 255 bytes."""
    text = os.fsdecode(name) if isinstance(name, bytes) else name
    text = _LOOKS_ESCAPED.sub("%25", text)
    odd = _ODD_EVERYWHERE | _ODD_ON_WINDOWS if windows else _ODD_EVERYWHERE
    mapped = "".join(_escaped(character) if _is_odd(character, odd) else character for character in text)
    if mapped in (".", ".."):
        mapped = mapped.replace(".", "%2E")
    if mapped[:1] == " ":
        mapped = "%20" + mapped[1:]
    if mapped[-1:] in (" ", "."):
        mapped = mapped[:-1] + _escaped(mapped[-1])
    if windows and _RESERVED.fullmatch(mapped):
        mapped = _escaped(mapped[0]) + mapped[1:]
    if len(mapped.encode()) > LONGEST:
        return _shortened(mapped, text)
    return mapped or UNNAMED


def wellformed_name(name: str) -> str:
    """A name that UTF-8 can carry: bytes that are no UTF-8 are escaped by the rule, everything else is kept."""
    return "".join(_escaped(c) if unicodedata.category(c) == "Cs" else c for c in name)


def distinct_names(names: Iterable[str], *, taken: Collection[str] = (), windows: bool = os.name == "nt") -> list[str]:
    """The names to write for several names in one folder, so that none overwrites another, or one of `taken`.

    Names count as one when they differ in letter case or in Unicode's normal form alone.
    """
    used = {_folded(name) for name in taken}
    chosen = []
    for name in names:
        mapped = safe_name(name, windows=windows)
        for attempt in range(1000):
            if _folded(mapped) not in used:
                break
            mapped = _shortened(safe_name(name, windows=windows), f"{name}/{attempt}")
        used.add(_folded(mapped))
        chosen.append(mapped)
    return chosen


def names_below(names: Sequence[str], *, folds: bool, windows: bool = os.name == "nt") -> list[str]:
    """The names to write for all names of one folder that was shared as a whole.

    `folds` says whether the disk takes names for one that differ in letter case or normal form alone.
    """
    chosen = [name if is_kept(name, windows=windows) else "" for name in names]
    if all(chosen) and not folds:
        return chosen
    used: set[str] = set() if folds else set(chosen)
    for number, name in enumerate(names):
        mapped = chosen[number] or safe_name(name, windows=windows)
        for attempt in range(1000):
            if (_folded(mapped) if folds else mapped) not in used or (chosen[number] and not folds):
                break
            mapped = _shortened(safe_name(name, windows=windows), f"{name}/{attempt}")
        used.add(_folded(mapped) if folds else mapped)
        chosen[number] = mapped
    return chosen


def is_kept(name: str, *, windows: bool = os.name == "nt") -> bool:
    """Says whether the rule has nothing to do with a name, but for a `%`."""
    if not windows and _PLAIN.fullmatch(name):
        return True
    return safe_name(name.replace("%", "_"), windows=windows) == name.replace("%", "_")


def _is_odd(character: str, odd: frozenset[str]) -> bool:
    return character in odd or (unicodedata.category(character) in _ODD_CATEGORIES and character not in _HARMLESS_FORMAT)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python carries a byte that is no UTF-8
        return f"%{code - 0xDC00:02X}"
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _shortened(mapped: str, whole: str) -> str:
    mark = "~" + blake3(whole.encode("utf-8", "surrogatepass")).hexdigest(8)
    stem, dot, extension = mapped.rpartition(".")
    tail = dot + extension
    if not stem or len(tail.encode()) > _EXTENSION_LIMIT:
        stem, tail = mapped, ""
    room = LONGEST - len(mark) - len(tail.encode())
    kept = stem.encode()[:room].decode("utf-8", "ignore")
    return re.sub(r"%[0-9A-F]?$", "", kept) + mark + tail


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
