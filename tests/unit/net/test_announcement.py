"""What is told on the LAN says nothing of space or device, and what others tell is believed in nothing."""

from __future__ import annotations

import ipaddress
import os

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.net.announcement import ID_LENGTH, Announcement, Sighting, announce, entries, instance_id, read
from p2pqueue.net.interfaces import Interface
from p2pqueue.net.mdns import hosts


def make(name: str, *addresses: str, index: int = 2) -> Interface:
    kind = "loopback" if name == "lo" else "ordinary"
    return Interface(name, tuple(ipaddress.ip_interface(address) for address in addresses), index, True, kind)  # type: ignore[arg-type]


ETH = make("eth0", "192.168.1.5/24", "fd00::5/64")
LO = make("lo", "127.0.0.1/8", index=1)
NUMBER = bytes(range(ID_LENGTH))


def tag(number: bytes, key: bytes = b"k" * 32) -> bytes:
    return blake3(number, key=key).digest(16)


def told(*, nameplate: str | None = None) -> Announcement:
    return announce("p2pq-x", number=NUMBER, tag=tag, protocol=(1, 3), nameplate=nameplate, port=7433, interfaces=[ETH])


def see(properties: dict[bytes, bytes | None], *addresses: str, port: int = 7433, interface: Interface = ETH) -> Sighting | None:
    return read("x", properties, addresses=addresses or ("192.168.1.9",), port=port, tag=tag, interfaces=[interface])


def test_what_one_device_tells_another_of_the_space_reads() -> None:
    announcement = told(nameplate="7")
    assert announcement.addresses == ("192.168.1.5", "fd00::5")
    seen = see(entries(announcement.text), *announcement.addresses)
    assert seen == Sighting("x", (("192.168.1.5", 7433), ("fd00::5", 7433)), True, (1, 3), "7")
    assert instance_id(entries(announcement.text)) == NUMBER


def test_a_device_of_another_space_is_none_of_ours() -> None:
    seen = read("x", entries(told().text), addresses=["192.168.1.9"], port=1, tag=lambda n: tag(n, b"j" * 32), interfaces=[ETH])
    assert seen is not None
    assert not seen.ours


def test_a_joiner_without_a_space_takes_nobody_for_its_own() -> None:
    seen = read("x", entries(told(nameplate="7").text), addresses=["192.168.1.9"], port=1, tag=None, interfaces=[ETH])
    assert seen is not None
    assert (seen.ours, seen.nameplate) == (False, "7")


@pytest.mark.parametrize("number", [b"", NUMBER[:-1], NUMBER + b"x"], ids=["none", "too short", "too long"])
def test_a_tag_over_an_id_of_another_length_counts_nothing(number: bytes) -> None:
    seen = see({b"v": b"1-1", b"id": number.hex().encode(), b"tag": tag(number).hex().encode()})
    assert seen is not None
    assert not seen.ours


def test_two_starts_of_one_device_have_nothing_in_common() -> None:
    first, second = (
        announce("n", number=os.urandom(ID_LENGTH), tag=tag, protocol=(1, 1), nameplate=None, port=1, interfaces=[]) for _ in "ab"
    )
    shared = entries(first.text).items() & entries(second.text).items()
    assert {key for key, _ in shared} == {b"v", b"n"}


@pytest.mark.parametrize("version", [None, b"", b"1", b"-", b"2-1", b"1-x", b"1-9999999999", b"\xff-\xff"])
def test_whoever_tells_no_protocol_is_no_device(version: bytes | None) -> None:
    assert see(entries(told().text) | {b"v": version}) is None


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_that_cant_be_dialled_leads_nowhere(port: int) -> None:
    assert see(entries(told().text), port=port) is None


def test_the_addresses_of_our_own_subnets_come_first() -> None:
    seen = see(entries(told().text), "10.0.0.1", "192.168.1.9", "fd00::9")
    assert seen is not None
    assert [host for host, _ in seen.addresses] == ["192.168.1.9", "fd00::9", "10.0.0.1"]


def test_addresses_that_lead_nowhere_are_left_out() -> None:
    assert see(entries(told().text), "0.0.0.0", "224.0.0.1", "127.0.0.1", "::1", "169.254.1.1", "fe80::1") is None


def test_on_one_host_the_loopback_leads_somewhere() -> None:
    seen = see(entries(told().text), "127.0.0.1", interface=LO)
    assert seen is not None
    assert seen.addresses == (("127.0.0.1", 7433),)


@given(
    st.dictionaries(st.sampled_from([b"v", b"id", b"tag", b"np"]), st.none() | st.binary(max_size=300)),
    st.lists(st.ip_addresses().map(str), max_size=40),
    st.integers(0, 65_535),
)
def test_whatever_a_packet_holds_is_a_bounded_sighting_or_none(
    properties: dict[bytes, bytes | None], addresses: list[str], port: int
) -> None:
    seen = see(properties, *addresses, port=port)
    if seen is not None:
        assert 0 < len(seen.addresses) <= 8
        assert not seen.ours
        assert seen.nameplate is None or len(seen.nameplate) <= 16


@given(st.binary(max_size=400))
def test_any_text_record_is_taken_apart(text: bytes) -> None:
    assert all(len(key) + len(value or b"") <= 255 for key, value in entries(text).items())


def test_a_host_with_hundreds_of_addresses_still_fits_a_packet() -> None:
    crowded = make("eth0", *[f"10.0.{n // 250}.{n % 250 + 1}/16" for n in range(600)])
    announcement = announce("x", number=NUMBER, tag=tag, protocol=(1, 1), nameplate="7", port=1, interfaces=[crowded])
    assert len(announcement.addresses) == 16


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [
        ([], ()),
        ([ETH, LO], ((2, "192.168.1.5"), (1, "127.0.0.1"))),
        ([make("eth0", "10.0.0.1/24", "10.0.1.1/24")], ((2, "10.0.0.1"),)),
        ([make("eth0", "fd00::5/64"), make("eth1", "10.0.0.1/24", index=3)], ((3, "10.0.0.1"),)),
        ([make("eth0", "fd00::5/64")], ((2, "fd00::5"),)),
    ],
    ids=["none", "one each", "the first of an interface", "IPv4 where there is any", "IPv6 where there is nothing else"],
)
def test_multicast_goes_out_from_one_address_of_an_interface(interfaces: list[Interface], expected: tuple[tuple[int, str], ...]) -> None:
    assert hosts(interfaces) == expected
