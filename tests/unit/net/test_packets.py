"""Packets of data and acknowledgements read and write as aiortc's do."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.net.webrtc.ortc import RTCSctpTransport
from p2pqueue.net.webrtc.packets import FIRST, LAST, Writer, is_intact, read, read_alone, tag_of

aiortc: Any = importlib.import_module(RTCSctpTransport.__module__)
WRITER = Writer(5000, 5001, 0xDEADBEEF, checked=True)
BARE = Writer(5000, 5001, 0xDEADBEEF, checked=False)

numbers = st.integers(0, 0xFFFFFFFF)
shorts = st.integers(0, 0xFFFF)


@given(tsn=numbers, flags=st.integers(0, 7), stream=shorts, sequence=shorts, protocol=numbers, data=st.binary(min_size=1, max_size=1372))
def test_data_is_what_aiortc_reads_and_writes(tsn: int, flags: int, stream: int, sequence: int, protocol: int, data: bytes) -> None:
    packet = WRITER.data(tsn, flags, stream, sequence, protocol, data)
    source, destination, tag, (chunk,) = aiortc.parse_packet(packet)
    assert (source, destination, tag) == (5000, 5001, 0xDEADBEEF)
    assert (chunk.tsn, chunk.flags, chunk.stream_id, chunk.stream_seq) == (tsn, flags, stream, sequence)
    assert (chunk.protocol, chunk.user_data) == (protocol, data)
    assert aiortc.serialize_packet(5000, 5001, 0xDEADBEEF, chunk) == packet
    assert read_alone(packet) == (tsn, flags, stream, protocol, data)
    assert read(packet) == [read_alone(packet)]


@given(numbers, numbers, st.lists(st.tuples(shorts, shorts), max_size=50), st.lists(numbers, max_size=20))
def test_acknowledgements_are_what_aiortc_reads_and_writes(
    cumulative: int, window: int, gaps: Sequence[tuple[int, int]], duplicates: Sequence[int]
) -> None:
    packet = WRITER.sack(cumulative, window, gaps, duplicates)
    _, _, _, (chunk,) = aiortc.parse_packet(packet)
    assert (chunk.cumulative_tsn, chunk.advertised_rwnd, chunk.gaps, chunk.duplicates) == (cumulative, window, gaps, duplicates)
    assert aiortc.serialize_packet(5000, 5001, 0xDEADBEEF, chunk) == packet
    report = read(packet)
    assert report is not None
    assert [list(part) if isinstance(part, tuple) else part for part in report[0]] == [cumulative, window, gaps, duplicates]


def test_an_acknowledgement_of_countless_gaps_still_fits_a_packet() -> None:
    assert len(WRITER.sack(1, 1, [(number, number) for number in range(2, 9000, 2)], range(1000))) < 1160


def test_a_heartbeat_is_one_that_aiortc_answers() -> None:
    _, _, _, (chunk,) = aiortc.parse_packet(WRITER.heartbeat(b"mark" * 10))
    assert (chunk.type, chunk.params) == (4, [(1, b"mark" * 10)])


@given(st.binary(min_size=1, max_size=100), st.integers(0, 127), st.integers(1, 255))
def test_a_packet_that_was_changed_is_noticed(data: bytes, at: int, change: int) -> None:
    packet = bytearray(WRITER.data(1, FIRST | LAST, 0, 0, 53, data))
    assert is_intact(bytes(packet), unchecked=True)
    packet[at % len(packet)] ^= change
    assert not is_intact(bytes(packet), unchecked=False)


def test_no_checksum_is_needed_only_where_none_is_wanted() -> None:
    packet = BARE.data(1, FIRST | LAST, 0, 0, 53, b"data")
    assert is_intact(packet, unchecked=True)
    assert not is_intact(packet, unchecked=False)
    assert tag_of(packet) == 0xDEADBEEF


def test_several_chunks_in_one_packet_are_all_read() -> None:
    sack, data = BARE.sack(5, 100, [(2, 3)], []), BARE.data(7, FIRST | LAST, 2, 0, 53, b"abc")
    assert read(sack + data[12:] + data[12:]) == [(5, 100, [(2, 3)], []), *2 * [(7, 3, 2, 53, b"abc")]]
    assert read_alone(sack + data[12:]) is None


@given(st.binary(max_size=80))
def test_no_bytes_at_all_raise(rest: bytes) -> None:
    for packet in (rest, bytes(12) + rest, BARE.sack(5, 100, [(2, 3)], [])[:-1] + rest):
        assert read(packet) is None or read(packet)
        read_alone(packet)
        is_intact(packet, unchecked=True)


OTHERS = [b"\x01\x00\x00\x04", b"\x06\x00\x00\x04", b"\x00\x00\x00\x04", b"\x03\x00\x00\x10" + bytes(8) + b"\xff" * 4]


@pytest.mark.parametrize("chunk", OTHERS, ids=["opening", "abort", "no data", "more gaps than bytes"])
def test_what_is_no_data_and_no_acknowledgement_is_left_to_aiortc(chunk: bytes) -> None:
    assert read(bytes(12) + chunk) is None
