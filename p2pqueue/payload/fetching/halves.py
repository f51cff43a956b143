"""Which files and folders are here in part, since their fetch was broken off, and how much of each?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from p2pqueue.payload.fetching.landing import HAVE, WHAT, allocated_below
from p2pqueue.payload.fetching.record import share_of

_UNKNOWN: Final = {"capability": "", "name": "", "size": 0, "kind": "file"}


@dataclass(frozen=True)
class Half:
    """What there is of a file or folder. One that an older version began has no name and capability."""

    folder: Path  # where it lies
    capability: str
    name: str
    size: int  # bytes of the whole
    kind: str
    verified: int  # bytes of it that are here and checked
    takes: int  # bytes on the disk
    since: float  # seconds since 1970, of the last fetch


def halves(landings: Path) -> list[Half]:
    """All that are here, those under way too, the oldest first."""
    found = []
    for folder in landings.glob("*"):
        try:
            since = folder.stat().st_mtime
            told = json.loads((folder / WHAT).read_bytes())
        except FileNotFoundError:
            told = {}
        except (OSError, ValueError):
            continue
        told = {**_UNKNOWN, **told}
        if folder.is_dir():
            verified = int(told["size"] * share_of(folder / HAVE))
            found.append(Half(folder, **told, verified=verified, takes=allocated_below(folder), since=since))
    return sorted(found, key=lambda half: half.since)
