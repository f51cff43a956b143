"""What do the SCTP packets that carry data and acknowledgements look like? Pure (RFC 9260, 3; RFC 9653).

Everything else, such as opening and closing an association, is read and written by aiortc.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from google_crc32c import extend, value

DATA, SACK, HEARTBEAT, HEARTBEAT_ACK = 0, 3, 4, 5  # kinds of chunks
HEAD = 12  # bytes before the first chunk
DATA_HEAD = 28  # bytes before the data of a packet with one chunk
MARK = 1  # the parameter of a heartbeat
LAST, FIRST = 1, 2  # flags of a DATA chunk: the fragment of a message that it holds
GAPS_LIMIT = 200  # ranges in one acknowledgement, which has to fit a packet
DUPLICATES_LIMIT = 32  # numbers in one acknowledgement

_DATA = Struct("!HHLLBBHLHHL")
_SACK = Struct("!HHLLBBHLLHH")
_HEARTBEAT = Struct("!HHLLBBHHH")
_CHUNK = Struct("!BBH")
_DATA_CHUNK = Struct("!LHHL")
_SACK_CHUNK = Struct("!LLHH")
_GAP = Struct("!HH")
_NO_CHECKSUM = bytes(4)
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")

Gaps = Sequence[tuple[int, int]]
Fragment = tuple[int, int, int, int, bytes]  # TSN, flags, stream, protocol, data
Report = tuple[int, int, Gaps, Sequence[int]]  # everything up to this TSN, the receiver's window, ranges after it, duplicates


class Writer:
    """Writes packets of one association; without a checksum where the peer wants none, since DTLS has a better one."""

    def __init__(self, source: int, destination: int, tag: int, *, checked: bool) -> None:
        self._to = (source, destination, tag, 0)
        self._checked = checked

    def data(self, tsn: int, flags: int, stream: int, sequence: int, protocol: int, data: bytes) -> bytes:
        """A packet with one DATA chunk."""
        length = len(data)
        head = _DATA.pack(*self._to, DATA, flags, length + 16, tsn, stream, sequence, protocol)
        packet = head + data + _PADDING[length % 4] if length % 4 else head + data
        return _with_checksum(packet) if self._checked else packet

    def sack(self, cumulative: int, window: int, gaps: Gaps, duplicates: Sequence[int]) -> bytes:
        """A packet with one SACK chunk. Gaps are counted from `cumulative`."""
        gaps, duplicates = gaps[:GAPS_LIMIT], duplicates[:DUPLICATES_LIMIT]
        length = 16 + 4 * (len(gaps) + len(duplicates))
        packet = _SACK.pack(*self._to, SACK, 0, length, cumulative, window, len(gaps), len(duplicates))
        if length > 16:
            packet += b"".join(_GAP.pack(*gap) for gap in gaps) + b"".join(tsn.to_bytes(4, "big") for tsn in duplicates)
        return _with_checksum(packet) if self._checked else packet

    def heartbeat(self, mark: bytes) -> bytes:
        """A packet with one HEARTBEAT chunk; whoever gets it sends `mark` back in a packet as large."""
        head = _HEARTBEAT.pack(*self._to, HEARTBEAT, 0, len(mark) + 8, MARK, len(mark) + 4)
        return _with_checksum(head + mark)


def is_intact(packet: bytes, *, unchecked: bool) -> bool:
    """Says whether the checksum is right; where `unchecked`, none is needed."""
    checksum = packet[8:HEAD]
    if unchecked and checksum == _NO_CHECKSUM:
        return True
    whole: int = extend(value(packet[:8] + _NO_CHECKSUM), packet[HEAD:])
    return int.from_bytes(checksum, "little") == whole


def read_alone(packet: bytes) -> Fragment | None:
    """The one DATA chunk of a packet that has nothing else; None for any other packet."""
    size = len(packet)
    if size <= DATA_HEAD or packet[HEAD]:
        return None
    _, _, _, _, _, flags, length, tsn, stream, _, protocol = _DATA.unpack_from(packet)
    end = HEAD + length
    if end != size:
        if not DATA_HEAD < end < size < end + 4:
            return None
        return tsn, flags, stream, protocol, packet[DATA_HEAD:end]
    return tsn, flags, stream, protocol, packet[DATA_HEAD:]


def read(packet: bytes) -> list[Fragment | Report] | None:
    """The chunks of a packet that holds data and acknowledgements alone; None for any other packet."""
    chunks: list[Fragment | Report] = []
    at, size = HEAD, len(packet)
    while at + 4 <= size:
        kind, flags, length = _CHUNK.unpack_from(packet, at)
        if length < 16 or at + length > size:
            return None
        if kind == DATA:
            tsn, stream, _, protocol = _DATA_CHUNK.unpack_from(packet, at + 4)
            chunks.append((tsn, flags, stream, protocol, packet[at + 16 : at + length]))
        elif kind == SACK:
            report = _report(packet, at, length)
            if report is None:
                return None
            chunks.append(report)
        else:
            return None
        at += length + -length % 4
    return chunks or None


def tag_of(packet: bytes) -> int:
    """The verification tag."""
    return int.from_bytes(packet[4:8], "big")


def _report(packet: bytes, at: int, length: int) -> Report | None:
    cumulative, window, gaps, duplicates = _SACK_CHUNK.unpack_from(packet, at + 4)
    if length < 16 + 4 * (gaps + duplicates):
        return None
    if not gaps and not duplicates:
        return cumulative, window, (), ()
    middle = at + 16 + 4 * gaps
    ranges: list[tuple[int, int]] = list(_GAP.iter_unpack(packet[at + 16 : middle]))
    twice = [int.from_bytes(packet[place : place + 4], "big") for place in range(middle, middle + 4 * duplicates, 4)]
    return cumulative, window, ranges, twice


def _with_checksum(packet: bytes) -> bytes:
    return b"".join((packet[:8], value(packet).to_bytes(4, "little"), packet[HEAD:]))
