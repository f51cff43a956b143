"""Which addresses are offered to a peer, and which of its own are tried first."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Any

from p2pqueue.net.webrtc.candidates import own_addresses, worth_trying
from p2pqueue.net.webrtc.signal import CANDIDATES_LIMIT


@dataclass(frozen=True)
class Card:
    addresses: tuple[Any, ...]


def card(*addresses: str) -> Card:
    return Card(tuple(map(ip_interface, addresses)))


HOME = card("192.168.1.7/24", "fe80::7/64", "fd00::7/64")
OFFICE = card("10.0.0.7/8")
LOOP = card("127.0.0.1/8", "::1/128")


def test_ordinary_addresses_are_offered_ipv4_first_and_link_local_ipv6_never() -> None:
    assert own_addresses([HOME, OFFICE, LOOP], loopback=False) == ["192.168.1.7", "10.0.0.7", "fd00::7"]


def test_the_address_in_the_subnet_of_the_peer_comes_first() -> None:
    assert own_addresses([HOME, OFFICE], loopback=False, towards="10.2.3.4")[0] == "10.0.0.7"
    assert own_addresses([HOME, OFFICE], loopback=False, towards="fd00::99")[0] == "fd00::7"


def test_the_address_of_the_peer_may_be_of_any_kind() -> None:
    for towards in ("fe80::1%eth0", "not an address", "203.0.113.9"):
        assert own_addresses([HOME, OFFICE], loopback=False, towards=towards)[0] == "192.168.1.7"


def test_loopback_is_offered_when_asked_for_and_last() -> None:
    assert own_addresses([LOOP, HOME], loopback=True)[-2:] == ["127.0.0.1", "::1"]
    assert own_addresses([], loopback=True) == ["127.0.0.1"]
    assert own_addresses([LOOP], loopback=False) == []


def test_an_address_is_offered_once_and_never_too_many() -> None:
    many = card(*(f"10.0.{host}.1/24" for host in range(40)))
    assert len(own_addresses([many, many], loopback=False)) == CANDIDATES_LIMIT


def test_candidates_in_a_subnet_of_ours_are_tried_first_and_the_others_after_them() -> None:
    theirs = [("172.17.0.1", 1), ("10.9.9.9", 2), ("192.168.1.9", 3), ("10.9.9.9", 2)]
    assert worth_trying(theirs, [HOME, OFFICE], loopback=False) == [("10.9.9.9", 2), ("192.168.1.9", 3), ("172.17.0.1", 1)]


def test_what_can_not_lead_to_a_peer_is_not_tried() -> None:
    useless = [("224.0.0.1", 1), ("0.0.0.0", 1), ("::", 1), ("fe80::1", 1), ("127.0.0.1", 1), ("::1", 1), ("a1b2.local", 1)]
    assert worth_trying(useless, [HOME], loopback=False) == []
    assert worth_trying(useless, [HOME], loopback=True) == [("127.0.0.1", 1), ("::1", 1)]
