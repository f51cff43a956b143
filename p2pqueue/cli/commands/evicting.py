"""Which files may go to make room, and how do they?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from p2pqueue.cli import carrying, interrupted
from p2pqueue.cli.held import Known, why_kept
from p2pqueue.cli.invocation import Invocation
from p2pqueue.cli.opening import writing

if TYPE_CHECKING:
    from p2pqueue.payload.fetching.halves import Half
    from p2pqueue.payload.inventory import Held
    from p2pqueue.payload.shelf import Shelf

_TOGETHER = "it was shared, or is named by a job, together with others; evict those as a whole"


class Eviction:
    """Removes files of this device, unless something speaks against it. Several that were shared as one go as one."""

    def __init__(self, invocation: Invocation, shelf: Shelf, known: list[Known], force: bool) -> None:
        self._invocation = invocation
        self._shelf = shelf
        self._known = {each.held.capability: each for each in known}
        self._force = force
        self.freed = 0  # bytes
        self.left = sum(each.held.takes for each in known)  # bytes in the home
        self.evicted: list[Held | Half] = []
        self.kept: list[tuple[Held | Half, str]] = []  # and why

    def evict_half(self, text: str) -> bool:
        """Removes what was fetched in part, where a manifest or name means such a one alone; says whether it does."""
        from p2pqueue.payload.fetching.landing import remove_landing

        found = interrupted.named(self._invocation, text)
        if len(found) != 1 or any(text.strip() in (each.held.name, each.held.capability) for each in self._known.values()):
            return False
        (half,) = found
        if half.capability in {each["root"] for each in carrying.transfers(self._invocation) if not each["failed"]}:
            self.kept.append((half, "it is being fetched"))
        else:
            self.freed += remove_landing(half.folder)
            self.evicted.append(half)
        return True

    def evict(self, chosen: list[Known]) -> None:
        """Removes these, or notes why not."""
        for each in chosen:
            members = self._members(each)
            why = _TOGETHER if each.held.listed else None if self._force else self._why_kept(each, members)
            if why is None:
                for one in (each, *members):
                    self._remove(one)
                self.evicted.append(each.held)
            else:
                self.kept.append((each.held, why))

    def evict_down_to(self, size: int) -> None:
        """Removes the oldest until no more than that is left in the home."""
        for each in sorted(self._known.values(), key=lambda known: known.held.since):
            if self.left <= size:
                return
            if not each.held.listed and (each.held.is_own or each.held.kind == "set"):
                self.evict([each])

    def _members(self, each: Known) -> list[Known]:
        """Those of several files that nobody keeps for themselves."""
        from p2pqueue.errors import P2PQueueError

        if each.held.kind != "set":
            return []
        try:
            found = [self._known.get(one.capability) for one in self._shelf.unbundle(each.held.capability).values()]
        except P2PQueueError:  # its manifest is damaged
            return []
        return [one for one in found if one is not None and not (one.shared or one.jobs or one.pinned_at is not None)]

    def _why_kept(self, each: Known, members: list[Known]) -> str | None:
        return next((why for one in (each, *members) if (why := why_kept(one)) is not None), None)

    def _remove(self, each: Known) -> None:
        from p2pqueue.jobs import filed

        capability = each.held.capability
        with writing(self._invocation.home) as replica:
            replica.write(lambda writer: filed.forget(writer.connection, capability))
        self.freed += self._shelf.remove(capability)
        self.left -= each.held.takes
