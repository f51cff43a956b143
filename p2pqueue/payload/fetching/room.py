"""Is there room on this disk, and in its quota, for what is to be fetched?"""

from __future__ import annotations

from pathlib import Path

from p2pqueue.errors import DiskFull
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.expected import Claim
from p2pqueue.payload.fetching.landing import IDLE_AFTER, allocated, allocated_below, sweep_landings
from p2pqueue.payload.store import ShardStore


def claim_room(store: ShardStore, landings: Path, root: Capability, size: int) -> Claim | None:
    """Speaks for the room that a fetch of so many bytes still needs; None where it must wait for other transfers.

    Raises `DiskFull` when there is no room for it, even without those and what others left half done.
    """
    with store.expected.turn:
        needed = max(0, size - allocated(landings, root))
        try:
            store.check_fetched(needed)
        except DiskFull:
            if not sweep_landings(landings, older_than=IDLE_AFTER, needed=needed, but=root):
                raise
            store.check_fetched(needed)
        expected = store.expected.total()
        try:
            store.check_fetched(needed, expected=expected)
        except DiskFull:
            return None
        return store.expected.claim(needed)


def half_fetched(landings: Path) -> int:
    """How many bytes all half-done files and folders take on the disk."""
    return sum(allocated_below(folder) for folder in landings.glob("*"))
