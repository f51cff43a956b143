"""Which packets are under way to a peer, and which of them are lost? Pure: the time goes in (RFC 9260, 6; RFC 8985).

    sent ──acknowledged, all before it too──> forgotten
      │ ──acknowledged in a gap──> kept, since a peer may take that back
      └─ sent well before one that has arrived ──> lost ──resent──> sent

Whatever was sent some packets, or some time, before a packet that has arrived counts as lost, a packet that was
resent as well: no loss waits for a time-out while anything arrives. Where nothing does, the last packet is sent
once more; only then the time-out takes everything for lost. Whoever resends in vain learns of it by the
duplicates that the peer reports, and becomes more patient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from p2pqueue.net.webrtc.congestion import LONGEST_RTO, Congestion
from p2pqueue.net.webrtc.packets import Report

REORDERED = 3  # packets that may overtake one before it counts as lost
DOUBTS = 2  # acknowledgements after a time-out by which one sees that nothing was lost (RFC 5682)
MOST_REORDERED = 256  # what that grows to on a path that reorders


@dataclass(slots=True, eq=False)
class Sent:
    """One packet that was sent."""

    packet: bytes
    size: int  # bytes of data
    serial: int  # counts every sending
    at: float
    again: bool = False  # sent more than once: its acknowledgement tells no round trip
    arrived: bool = False
    lost: bool = False


class Flight:
    """What is under way in one direction. TSNs are counted without bound here; on the wire they are 32 bits."""

    def __init__(self, first: int, congestion: Congestion, *, window: int) -> None:
        """`first` is the first TSN, `window` what the peer said that it takes."""
        self.congestion = congestion
        self.next = first
        self.under_way = 0  # bytes sent that are neither acknowledged nor lost
        self._window = window
        self._packets: list[Sent] = []  # all after the last that is acknowledged with all before it
        self._lost: deque[Sent] = deque()
        self._serial = 0
        self._newest: Sent | None = None  # the last sent of those that have arrived
        self._since = 0.0  # when anything arrived last, or when the first of those under way was sent
        self._tries = 0  # time-outs without progress
        self._probed = False
        self._reordered = REORDERED
        self._recovers_at: int | None = None  # the TSN with which a loss is repaired
        self._resent = self._in_vain = 0
        self._doubts = 0  # acknowledgements that may still show a time-out to have been wrong
        self._for_nothing = False  # whether something arrived as it was sent first
        self._urgent = False  # the first lost packet is sent whatever the window says

    @property
    def room(self) -> int:
        """Bytes that may be sent now; where nothing is under way one packet always may."""
        congestion = self.congestion
        whole = self._window - congestion.payload + 1  # a peer's window is kept to the byte
        room = min(congestion.window, congestion.limit, whole) - self.under_way
        return room if self.under_way else max(room, 1)

    @property
    def empty(self) -> bool:
        """Whether everything has arrived."""
        return not self._packets

    @property
    def unsettled(self) -> bool:
        """Whether lost packets wait for being sent."""
        return bool(self._lost)

    def add(self, packet: bytes, size: int, now: float) -> None:
        """Takes a new packet that is sent now; the next TSN follows."""
        if not self._packets:
            self.congestion.rest(now - self._since if self._since else 0.0)
            self._since, self._tries, self._probed = now, 0, False
        self._serial += 1
        self._packets.append(Sent(packet, size, self._serial, now))
        self.under_way += size
        self.next += 1

    def resend(self, now: float, *, most: int) -> list[bytes]:
        """The lost packets that may be sent now; they count as sent."""
        packets: list[bytes] = []
        while self._lost and len(packets) < most and (self.room > 0 or self._urgent):
            sent = self._lost.popleft()
            if sent.lost:
                self._urgent = False
                packets.append(self._again(sent, now))
                self._resent += 1
        return packets

    def acknowledge(self, report: Report, now: float) -> bool:
        """Takes what a peer reports; says whether the first that was missing has arrived."""
        cumulative, window, gaps, duplicates = report
        before = self.next - len(self._packets) - 1
        count = (cumulative - before) & 0xFFFFFFFF
        if count > len(self._packets):
            return False  # older than what is known, or of packets that were never sent
        self._window = window
        full = self.under_way + self.congestion.payload > self.congestion.window
        newest, self._for_nothing = self._newest, False
        acknowledged = self._arrive(self._packets[:count], now)
        del self._packets[:count]
        end = 0
        for first, last in gaps:
            if not end < first <= last:
                break  # ranges that nobody means
            acknowledged += self._arrive(self._packets[first - 1 : last], now)
            end = last
        if self._doubts and count:
            self._doubts = 0 if self._for_nothing else self._doubts - 1
            if self._for_nothing:
                self._take_back()
        if count or (acknowledged and not self._tries):
            self._since, self._tries, self._probed = now, 0, False
        if self._newest is not newest and (gaps or self._recovers_at is not None):
            self._look_for_losses()
        self._settle(before + count)
        if duplicates:
            self._count_in_vain(len(duplicates))
        if count and full and acknowledged and self._recovers_at is None:
            self.congestion.grow(acknowledged)
        return count > 0

    @property
    def expires_at(self) -> float | None:
        """When `expire` is due; None where nothing is waited for."""
        if not self._packets:
            return None
        patience = self.congestion.patience(alone=len(self._packets) == 1)
        if self._probed or self._tries:
            patience = min(max(patience, self.congestion.rto) * 2**self._tries, LONGEST_RTO)
        return self._since + patience

    def expire(self, now: float) -> list[bytes]:
        """Nothing has arrived for long: gives the packet to be sent now, if any; `resend` may give more."""
        if not self._probed and not self._tries:
            self._probed, self._since = True, now
            last = next((sent for sent in reversed(self._packets) if not sent.arrived), None)
            self._in_vain -= 1  # it will be reported, and says nothing of the path
            return [] if last is None else [self._again(last, now)]
        self._since, self._probed = now, False
        self._tries += 1
        self.congestion.collapse()
        self._doubts = DOUBTS if self._tries == 1 else 0
        if self._tries > 1:
            for sent in self._packets:
                sent.arrived = False  # a peer may take back what it held in a gap
        for sent in self._packets:
            sent.lost = not sent.arrived
        self._lost = deque(self._packets)
        self.under_way, self._recovers_at = 0, None
        return []

    def _again(self, sent: Sent, now: float) -> bytes:
        self._serial += 1
        if sent.lost:
            sent.lost = False
            self.under_way += sent.size
        sent.serial, sent.at, sent.again = self._serial, now, True
        return sent.packet

    def _arrive(self, packets: Sequence[Sent], now: float) -> int:
        """Marks packets as arrived; gives the bytes that are new."""
        acknowledged, newest = 0, None
        for sent in packets:
            if sent.arrived:
                continue
            sent.arrived = True
            acknowledged += sent.size
            self._for_nothing |= not sent.again or now - sent.at < self.congestion.shortest / 2
            if sent.lost:
                sent.lost = False
            else:
                self.under_way -= sent.size
            if newest is None or sent.serial > newest.serial:
                newest = sent
        if newest is not None:
            if not newest.again:
                self.congestion.hear(now - newest.at)
            if self._newest is None or newest.serial > self._newest.serial:
                self._newest = newest
        return acknowledged

    def _look_for_losses(self) -> None:
        newest = self._newest
        assert newest is not None
        serial = newest.serial - self._reordered
        at = newest.at - (self.congestion.smoothed or 1.0) * self._reordered / (2 * REORDERED)
        found = False
        for sent in self._packets:
            if (sent.serial <= serial or sent.at < at) and not sent.arrived and not sent.lost:
                sent.lost = found = True
                self.under_way -= sent.size
                self._lost.append(sent)
        if found and self._recovers_at is None:
            self._recovers_at, self._urgent = self.next - 1, True
            self._resent = self._in_vain = 0
            self.congestion.fall()

    def _take_back(self) -> None:
        """What was taken for lost arrives without having been sent again: the peer had only stood still."""
        self.congestion.undo()
        for sent in self._packets:
            if sent.lost and not sent.again:
                sent.lost = False
                self.under_way += sent.size

    def _settle(self, cumulative: int) -> None:
        if self._recovers_at is not None and cumulative >= self._recovers_at:
            self._recovers_at = None

    def _count_in_vain(self, duplicates: int) -> None:
        self._in_vain += duplicates
        if 0 < self._resent <= self._in_vain:
            self._reordered = min(2 * self._reordered, MOST_REORDERED)
            self._resent = self._in_vain = 0
            self.congestion.undo()
