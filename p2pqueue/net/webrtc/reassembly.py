"""What has come from a peer, in which order, and what is missing? Pure (RFC 9260, 6.2, 6.6 and 6.9).

Data is put in the order of its TSNs, which is the order of the messages as well: one after the other, none between
the fragments of another. What comes early is held until the gap before it is filled.
"""

from __future__ import annotations

from bisect import bisect_left

from p2pqueue.errors import MalformedMessage
from p2pqueue.net.webrtc.packets import DUPLICATES_LIMIT, FIRST, LAST, Fragment

FARTHEST = 0xFFFF  # packets ahead of the first that is missing: what an acknowledgement can name
RANGES_LIMIT = 1000  # gaps that are kept; one acknowledgement tells of 200
_WHOLE = FIRST | LAST

Message = tuple[int, int, bytes]  # stream, protocol, data


class Inbound:
    """One direction of an association, as the receiver sees it. Whole messages are to be taken out of `messages`."""

    def __init__(self, first: int, *, limit: int) -> None:
        """`first` is the TSN that comes first, `limit` the bytes of unfinished messages that are held."""
        self.next = first  # TSNs are counted without bound here
        self.messages: list[Message] = []
        self.duplicates: list[int] = []
        self.held = 0  # bytes of unfinished messages
        self._limit = limit
        self._parts: list[bytes] = []
        self._early: dict[int, Fragment] = {}
        self._ranges: list[list[int]] = []  # of early TSNs, from and to, in order

    @property
    def has_gaps(self) -> bool:
        """Whether anything is missing."""
        return bool(self._ranges)

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of what has come early, counted from the last TSN before the first that is missing."""
        last = self.next - 1
        return [(first - last, end - last) for first, end in self._ranges]

    def take(self, fragment: Fragment) -> None:
        """Takes one fragment; raises `MalformedMessage` where a peer breaks the rules of fragments."""
        ahead = (fragment[0] - self.next) & 0xFFFFFFFF
        if ahead == 0:
            self._follow(fragment)
            self.next += 1
            if self._ranges:
                self._catch_up()
        elif ahead <= FARTHEST:
            self._hold(self.next + ahead, fragment)
        elif ahead > 0x7FFFFFFF:
            self._note_duplicate(fragment[0])

    def _follow(self, fragment: Fragment) -> None:
        _, flags, stream, protocol, data = fragment
        kind = flags & _WHOLE
        if bool(self._parts) is bool(kind & FIRST):
            raise MalformedMessage("fragments of a message that don't belong together")
        if kind == _WHOLE:
            self.messages.append((stream, protocol, data))
            return
        self._parts.append(data)
        self.held += len(data)
        if kind & LAST:
            message = b"".join(self._parts)
            self.held -= len(message)
            self._parts = []
            self.messages.append((stream, protocol, message))
        elif self.held > self._limit:
            raise MalformedMessage("a message without end")

    def _hold(self, tsn: int, fragment: Fragment) -> None:
        if tsn in self._early:
            self._note_duplicate(fragment[0])
            return
        if self.held + len(fragment[4]) > self._limit:
            return  # it will be sent again, since nobody acknowledges it
        if self._note_early(tsn):
            self._early[tsn] = fragment
            self.held += len(fragment[4])

    def _note_early(self, tsn: int) -> bool:
        """Adds it to the ranges, unless they are too many."""
        ranges = self._ranges
        if ranges and ranges[-1][1] == tsn - 1:  # as nearly always
            ranges[-1][1] = tsn
            return True
        at = bisect_left(ranges, [tsn])
        joins_before, joins_after = at > 0 and ranges[at - 1][1] == tsn - 1, at < len(ranges) and ranges[at][0] == tsn + 1
        if joins_before and joins_after:
            ranges[at - 1][1] = ranges.pop(at)[1]
        elif joins_before:
            ranges[at - 1][1] = tsn
        elif joins_after:
            ranges[at][0] = tsn
        elif len(ranges) < RANGES_LIMIT:
            ranges.insert(at, [tsn, tsn])
        else:
            return False
        return True

    def _catch_up(self) -> None:
        while self._ranges and self._ranges[0][0] == self.next:
            _, end = self._ranges.pop(0)
            for tsn in range(self.next, end + 1):
                fragment = self._early.pop(tsn)
                self.held -= len(fragment[4])
                self._follow(fragment)
            self.next = end + 1

    def _note_duplicate(self, tsn: int) -> None:
        if len(self.duplicates) < DUPLICATES_LIMIT:
            self.duplicates.append(tsn)
