"""Which outboxes of others may be removed? Those of devices that have been gone for long, and nothing of which is needed.

A device that is there writes its outbox anew every week. What lies unchanged for far longer belongs to one that is gone:
whoever counts all of it, and may pass it on, removes it; what can't be read at all goes as well,
and so does a letter that lies there for an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from p2pqueue.payload.origins.objects import Listed
from p2pqueue.peers.mail.inbox import Seen
from p2pqueue.peers.mail.letters import LETTERS

LETTER_LEFT: Final = 3_600.0  # seconds: whoever left a letter waited minutes for it at most
ABANDONED: Final = 30 * 86_400.0  # seconds: four times as long as a device leaves its outbox as it is


def abandoned(listed: Iterable[Listed], seen: Mapping[str, Seen], own: str, counted: Mapping[bytes, int], *, now: float) -> list[str]:
    """The names of what may be removed; `own` is the outbox of this device, `counted` what it counts, `now` in seconds UTC."""
    outboxes: dict[str, list[Listed]] = {}
    found: list[str] = []
    for each in listed:
        _, tag, name = each.name.split("/")
        if name.startswith(LETTERS):
            found += [each.name] if now - each.modified >= LETTER_LEFT else []
        else:
            outboxes.setdefault(tag, []).append(each)
    for tag, objects in outboxes.items():
        if tag == own or now - max(each.modified for each in objects) < ABANDONED:
            continue
        known = seen.get(tag)
        if known is None or all(counted.get(author, 0) >= seq for author, seq in known.index.covers.items()):
            found += [each.name for each in objects]
    return found
