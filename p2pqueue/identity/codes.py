"""How does a pairing code look, how is one made, and what is understood when somebody types it?

`7-orbit-velvet`: a nameplate, by which the inviter is found, and two words, which only the two devices know. A
slip is noticed before the one guess is used. Pure: randomness is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from p2pqueue.errors import ArgumentError
from p2pqueue.identity.words import FIRST, SECOND

HIGHEST_NAMEPLATE = 999
_SHORTEST = 3  # letters that stand for a word, where only one begins so
_LONGEST = 64  # characters that are looked at
_LONGEST_LINK = 1024  # characters of the addresses in a link
_SCHEME = "p2pqueue:"
_FORM = "a code is a number and two words, such as 7-orbit-velvet"


@dataclass(frozen=True)
class Code:
    """A pairing code. Its text form in logs and tracebacks shows no word."""

    nameplate: str
    first: str = field(repr=False)
    second: str = field(repr=False)

    @property
    def text(self) -> str:
        """As it is read out and typed. Keep it secret until it is used."""
        return f"{self.nameplate}-{self.first}-{self.second}"


def make(random: Callable[[int], bytes]) -> Code:
    """A new code: 16 bits of words, of which whoever doesn't know it may guess once."""
    one, two = random(2)
    nameplate = int.from_bytes(random(8), "big") % HIGHEST_NAMEPLATE + 1
    return Code(str(nameplate), FIRST[one], SECOND[two])


def parse(typed: str) -> Code:
    """The code that somebody typed, in whatever case, parted by whatever, its words shortened. Raises `ArgumentError`."""
    parts = [part for part in re.split(r"[\W_]+", typed[: _LONGEST + 1].casefold()) if part]
    if len(typed) > _LONGEST or len(parts) != 3:
        raise ArgumentError(f"This is no code: {_FORM}")
    number, *words = parts
    if not (number.isascii() and number.isdigit() and 0 < int(number) <= HIGHEST_NAMEPLATE):
        raise ArgumentError(f"A code begins with a number from 1 to {HIGHEST_NAMEPLATE}: {_FORM}")
    if words[0] not in FIRST and words[0] in SECOND:
        words.reverse()
    return Code(str(int(number)), _word(words[0], FIRST), _word(words[1], SECOND))


def link(code: Code, addresses: Sequence[str]) -> str:
    """The code with addresses (`HOST:PORT`) where its inviter listens, as a QR code carries it."""
    return "&".join([f"{_SCHEME}{code.text}", *(f"at={address}" for address in addresses)]).replace("&", "?", 1)


def parse_link(typed: str) -> tuple[Code, tuple[str, ...]]:
    """A code, or such a link, and the addresses in it. Raises `ArgumentError`."""
    if not typed.strip().startswith(_SCHEME):
        return parse(typed), ()
    text, _, query = typed.strip().removeprefix(_SCHEME).partition("?")
    named = tuple(part.removeprefix("at=") for part in query[:_LONGEST_LINK].split("&") if part.startswith("at="))
    return parse(text), named


def complete(typed: str) -> list[str]:
    """What the code that is being typed may become: with the next word, nothing before the first letter of one."""
    parts = re.split(r"[\W_]+", typed.casefold())
    if not parts[0].isdigit() or not 2 <= len(parts) <= 3 or not parts[-1]:
        return []
    words = FIRST if len(parts) == 2 else SECOND
    return ["-".join([*parts[:-1], word]) for word in words if word.startswith(parts[-1])]


def _word(typed: str, words: tuple[str, ...]) -> str:
    if typed in words:
        return typed
    begun = [word for word in words if word.startswith(typed)]
    if len(begun) == 1 and len(typed) >= _SHORTEST:
        return begun[0]
    near = begun[:2] or get_close_matches(typed, words, n=2)
    hint = f"; perhaps {' or '.join(near)}?" if near else f"; {_FORM}"
    raise ArgumentError(f"{typed!r} is no word of a code{hint}")
