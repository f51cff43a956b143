"""What a peer's signal may say, and that nothing else is taken for one."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.net.webrtc.signal import CANDIDATES_LIMIT, SIGNAL_LIMIT, RtcSignal

ICE_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
HOSTS = st.ip_addresses().map(str)
PORTS = st.integers(1, 65535)
SIGNALS = st.builds(
    RtcSignal,
    ufrag=st.text(ICE_CHARACTERS, min_size=4, max_size=256),
    password=st.text(ICE_CHARACTERS, min_size=22, max_size=256),
    candidates=st.lists(st.tuples(HOSTS, PORTS), max_size=CANDIDATES_LIMIT).map(tuple),
    fingerprint=st.binary(min_size=32, max_size=32),
    sctp_port=PORTS,
)
GOOD: dict[str, Any] = {"u": "abcd", "p": "p" * 22, "c": [[b"\x7f\x00\x00\x01", 9]], "f": bytes(32), "s": 5000}


@given(SIGNALS)
def test_every_signal_reads_back_as_it_was(signal: RtcSignal) -> None:
    packed = signal.pack()
    assert len(packed) <= SIGNAL_LIMIT
    assert RtcSignal.unpack(packed) == signal


@given(st.binary(max_size=300))
def test_any_bytes_are_a_signal_or_refused(data: bytes) -> None:
    _read(data)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.fixed_dictionaries({}, optional={key: VALUES | st.just(value) for key, value in GOOD.items()}))
def test_any_map_with_the_right_keys_is_a_signal_or_refused(fields: dict[str, Any]) -> None:
    _read(wire.pack(fields))


@given(SIGNALS, st.data())
def test_a_signal_with_one_byte_changed_is_another_one_or_refused(signal: RtcSignal, data: st.DataObject) -> None:
    packed = bytearray(signal.pack())
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    _read(bytes(packed))


@pytest.mark.parametrize(
    "change",
    [
        {"u": "abc"},
        {"u": "ab:d"},
        {"u": "abcd\n"},
        {"u": "äbcd"},
        {"u": 4},
        {"p": "p" * 21},
        {"p": "p" * 257},
        {"p": None},
        {"f": bytes(31)},
        {"f": "0" * 32},
        {"s": 0},
        {"s": 65536},
        {"s": True},
        {"c": None},
        {"c": {}},
        {"c": [[b"\x7f\x00\x00\x01", 9]] * (CANDIDATES_LIMIT + 1)},
        {"c": [[b"\x7f\x00\x00", 9]]},
        {"c": [["127.0.0.1", 9]]},
        {"c": [["4f2a.local", 9]]},
        {"c": [[b"\x7f\x00\x00\x01", 0]]},
        {"c": [[b"\x7f\x00\x00\x01"]]},
        {"c": [5]},
    ],
)
def test_a_field_that_can_not_be_is_refused(change: dict[str, Any]) -> None:
    assert RtcSignal.unpack(wire.pack(GOOD)).candidates == (("127.0.0.1", 9),)
    with pytest.raises(MalformedMessage):
        RtcSignal.unpack(wire.pack({**GOOD, **change}))


@pytest.mark.parametrize("value", [None, [], 5, "signal", b"signal"])
def test_what_is_no_map_is_refused(value: Any) -> None:
    with pytest.raises(MalformedMessage):
        RtcSignal.unpack(wire.pack(value))


def test_fields_of_a_later_version_are_let_be() -> None:
    assert RtcSignal.unpack(wire.pack({**GOOD, "x": 1})) == RtcSignal.unpack(wire.pack(GOOD))


def _read(data: bytes) -> None:
    try:
        signal = RtcSignal.unpack(data)
    except MalformedMessage:
        return
    assert len(signal.candidates) <= CANDIDATES_LIMIT
    for host, port in signal.candidates:
        assert str(ipaddress.ip_address(host)) == host
        assert 0 < port < 65536
