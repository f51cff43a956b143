"""Can this command line be answered at once, without what understands every command line?

A plain `p2pqueue list` is typed often and read by scripts, and importing click takes longer than everything else it
does. Whatever is not understood here, or goes wrong, is left to `app`, which does it over and finds the words.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p2pqueue.cli.listing import Listing

_COMMAND = "list"
_FLAGS = {"--json": "json", "-q": "quiet", "--quiet": "quiet", "--no-color": "plain"}
_LONGEST_LIMIT = 1_000_000


def answer(words: Sequence[str]) -> bool:
    """Prints the list that these words ask for. False leaves them to `app`; nothing was printed then."""
    asked = _understood(words) if _COMMAND in words and _is_usual() else None
    if asked is None:
        return False
    home, switches, wanted = asked
    gc.disable()  # hardly anything of all that is imported here is ever freed
    try:
        from p2pqueue.cli.listing import Listing
        from p2pqueue.cli.opening import node_pid, reading
        from p2pqueue.home import Home
        from p2pqueue.jobs.rows import JobFilter

        place = Home.find(home)
        with reading(place) as connection:
            text = _written(Listing(connection, JobFilter(**wanted), node_running=node_pid(place) is not None), switches)
        sys.stdout.write(text)
        sys.stdout.flush()
    except Exception:  # noqa: BLE001  (`app` meets it again, and tells it)
        return False
    finally:
        gc.enable()
    return True


# The home, and what only nodes read.
_HARMLESS = frozenset(f"P2PQUEUE_{name}" for name in ("HOME", "NETWORK", "LISTEN", "PEERS", "DISCOVERY", "INTERFACES", "LANES"))


def _is_usual() -> bool:
    """Says whether neither a variable with a default for an option nor a Windows console needs click."""
    if os.name == "nt" and sys.stdout.isatty():
        return False
    return all(name in _HARMLESS or not name.startswith(("P2PQUEUE_", "_P2PQUEUE_")) for name in os.environ)


def _understood(words: Sequence[str]) -> tuple[str | None, set[str], dict[str, Any]] | None:
    """The home, the switches and the filter that were typed; None for anything unusual."""
    home, switches, wanted, commands = None, set(), {}, 0
    rest = iter(words)
    for word in rest:
        if word in _FLAGS:
            switches.add(_FLAGS[word])
        elif word == _COMMAND:
            commands += 1
        elif word == "--home":
            home = next(rest, "")
            if not home:
                return None
        elif commands and word in _OPTIONS:
            value = _OPTIONS[word](next(rest, ""))
            if value is None:
                return None
            wanted[word.removeprefix("--")] = value
        else:
            return None
    return (home, switches, wanted) if commands == 1 else None


def _status(text: str) -> str | None:
    from p2pqueue.jobs.rows import STATUSES

    return text if text in STATUSES else None


def _name(text: str) -> str | None:
    return text if text.isascii() and text.isprintable() and 0 < len(text) < 256 else None


def _limit(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 and 0 < int(text) <= _LONGEST_LIMIT else None


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "--status": _status, "--queue": _name, "--task": _name, "--limit": _limit,
}  # fmt: skip


def _written(listing: Listing, switches: set[str]) -> str:
    if "json" in switches:
        import json

        return json.dumps(listing.document(), default=str) + "\n"
    if not listing.jobs:
        if "quiet" not in switches:
            from p2pqueue.cli.listing import EMPTY

            sys.stderr.write(f"{EMPTY}\n")
        return ""
    painted = sys.stdout.isatty() and "plain" not in switches and not os.environ.get("NO_COLOR")
    return "".join(f"{line}\n" for line in listing.lines(painted=painted))
