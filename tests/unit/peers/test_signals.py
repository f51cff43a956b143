"""Signals reach everybody once, by the shortest ways, and what is too much or none of ours is let go."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import combinations, count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue import wire
from p2pqueue.errors import ArgumentError, MalformedMessage
from p2pqueue.peers.signal import SIGNAL_LIMIT, Signal, unpack
from p2pqueue.peers.signals import BURST, GONE_AFTER, HELLO_EVERY, RATE, SEEN_AT_MOST, SEEN_FOR, Signals


@dataclass(eq=False)
class Peer:
    device_id: str
    role: str = "member"

    async def send(self, topic: Any, message: bytes) -> None:
        raise AssertionError("signals never wait")

    def send_soon(self, topic: Any, message: bytes) -> bool:
        raise AssertionError("signals are sent the way that was passed in")


class Air:
    """Devices by letters, the links between them, and the time."""

    def __init__(self, links: str, *, roles: dict[str, str] | None = None) -> None:
        self.now = 0.0
        self.on_the_way: deque[tuple[str, str, bytes]] = deque()
        self.passed: list[tuple[str, str, Signal]] = []
        self.numbers = count(1)
        self.hosts: dict[str, Host] = {}
        for pair in links.split():
            for name in pair:
                if name not in self.hosts:
                    self.hosts[name] = Host(self, name, (roles or {}).get(name, "member"))
        for one, two in links.split():
            self.link(one, two)
        self.run()
        self.passed.clear()
        for host in self.hosts.values():
            host.heard.clear()

    def link(self, one: str, two: str) -> None:
        for host, other in ((self.hosts[one], self.hosts[two]), (self.hosts[two], self.hosts[one])):
            peer = host.peers[other.name] = Peer(other.device_id, other.role)
            host.signals.up(peer)

    def run(self) -> None:
        while self.on_the_way:
            sender, receiver, data = self.on_the_way.popleft()
            host = self.hosts[receiver]
            self.passed.append((sender, receiver, unpack(data)))
            host.signals.received(host.peers[sender], data)


@dataclass(eq=False)
class Host:
    air: Air
    name: str
    role: str
    peers: dict[str, Peer] = field(default_factory=dict)
    heard: list[Signal] = field(default_factory=list)
    room: bool = True

    def __post_init__(self) -> None:
        self.device_id = device(self.name)
        self.signals = Signals(
            device_id=self.device_id,
            now=lambda: self.air.now,
            random=lambda size: next(self.air.numbers).to_bytes(size, "big"),
            send=self._send,
            on_signal=lambda signal, peer: self.heard.append(signal),
            hello=lambda: {"label": self.name},
            relays=self.role == "member",
            may_relay=lambda role: role == "member",
        )

    def _send(self, peer: Any, data: bytes) -> bool:
        if self.room:
            receiver = next(name for name, host in self.air.hosts.items() if host.device_id == peer.device_id)
            self.air.on_the_way.append((self.name, receiver, data))
        return self.room


def device(name: str) -> str:
    return name.encode().hex().rjust(32, "0")


def mesh(names: str) -> str:
    return " ".join(one + two for one, two in combinations(names, 2))


def test_a_signal_reaches_every_device_of_a_chain_once() -> None:
    air = Air("ab bc cd")
    air.hosts["a"].signals.emit("done", job="j")
    air.run()
    assert [[signal.fields for signal in air.hosts[name].heard] for name in "abcd"] == [[], [{"job": "j"}], [{"job": "j"}], [{"job": "j"}]]
    assert {signal.source for name in "bcd" for signal in air.hosts[name].heard} == {device("a")}


def test_where_everybody_is_linked_to_everybody_nobody_passes_anything_on() -> None:
    air = Air(mesh("abcde"))
    air.hosts["a"].signals.emit("done", job="j", status="succeeded")
    air.run()
    assert [(sender, receiver) for sender, receiver, _ in air.passed] == [("a", name) for name in "bcde"]


def test_in_a_ring_nobody_hears_twice_nor_hears_itself() -> None:
    air = Air("ab bc cd de ea")
    air.hosts["a"].signals.emit("done", job="q")
    air.run()
    assert [len(air.hosts[name].heard) for name in "abcde"] == [0, 1, 1, 1, 1]


def test_a_peer_that_has_not_said_its_links_is_told_what_others_say() -> None:
    air = Air("ab")
    air.hosts["c"] = Host(air, "c", "member")
    air.hosts["a"].peers["c"] = Peer(device("c"))
    air.hosts["a"].signals.up(air.hosts["a"].peers["c"])
    air.on_the_way.clear()  # its hello never comes
    air.hosts["b"].signals.emit("done", job="j")
    _, _, data = air.on_the_way.popleft()
    air.hosts["a"].signals.received(air.hosts["a"].peers["b"], data)
    assert [(sender, receiver) for sender, receiver, _ in air.on_the_way] == [("a", "c")]


def test_links_that_were_not_said_again_for_long_are_forgotten() -> None:
    air = Air(mesh("abc"))
    air.now += GONE_AFTER
    air.hosts["a"].signals.emit("done", job="j")
    air.run()
    assert ("b", "c") in [(sender, receiver) for sender, receiver, _ in air.passed]
    assert [len(air.hosts[name].heard) for name in "abc"] == [0, 1, 1]


def test_hello_is_said_when_a_link_comes_up_and_every_ten_seconds() -> None:
    air = Air("ab")
    signals = air.hosts["a"].signals
    assert signals.due == HELLO_EVERY
    signals.tick()
    assert not air.on_the_way
    air.now = HELLO_EVERY
    signals.tick()
    air.run()
    assert [signal.fields for signal in air.hosts["b"].heard] == [{"label": "a", "links": [device("b")]}]
    assert signals.due == 2 * HELLO_EVERY


def test_a_hello_is_heard_from_its_device_itself_though_another_passed_it_on_before() -> None:
    """Whoever was told of a stranger lets it go, and would wait ten seconds for the next."""
    air = Air("ab ac bc")
    (host, receiver), hello = (air.hosts["a"], air.hosts["c"]), Signal("hello", device("a"), bytes(8), {"label": "a"}).pack()
    for by, times in (("b", 1), ("a", 2), ("b", 2)):
        receiver.signals.received(receiver.peers[by], hello)
        assert [signal.source for signal in receiver.heard] == [host.device_id] * times
    air.run()
    assert len(air.passed) <= 1  # it goes on once


def test_after_a_link_is_gone_hello_is_due_at_once() -> None:
    air = Air(mesh("abc"))
    host = air.hosts["a"]
    host.signals.down(host.peers["b"])
    host.signals.tick()
    air.run()
    assert [signal.fields["links"] for signal in air.hosts["c"].heard] == [[device("c")]]


def test_what_is_too_much_of_one_peer_is_dropped_and_counted_until_it_calms_down() -> None:
    air = Air("ab")
    for _ in range(int(BURST) + 50):
        air.hosts["a"].signals.emit("done", job="j")
    air.run()
    heard = len(air.hosts["b"].heard)
    assert BURST - 5 <= heard <= BURST
    assert air.hosts["b"].signals.status()[device("a")]["too many"] == BURST + 50 - heard
    air.now += 1.0
    for _ in range(int(RATE) + 50):
        air.hosts["a"].signals.emit("done", job="j")
    air.run()
    assert len(air.hosts["b"].heard) - heard == RATE


def test_the_memory_of_what_was_heard_is_bounded_by_number_and_by_age() -> None:
    air = Air("ab")
    b = air.hosts["b"].signals
    for _ in range(SEEN_AT_MOST + 100):
        air.now += 1 / RATE
        air.hosts["a"].signals.emit("done", job="j")
        air.run()
    assert len(b._seen) <= SEEN_AT_MOST + 1
    air.now += SEEN_FOR + 1
    air.hosts["a"].signals.emit("done", job="j")
    air.run()
    assert len(b._seen) == 1


def test_a_signal_without_room_is_dropped_and_counted() -> None:
    air = Air("ab")
    air.hosts["a"].room = False
    air.hosts["a"].signals.emit("done", job="j")
    assert air.hosts["a"].signals.status()[device("b")]["no room"] == 1


def test_a_role_that_may_not_relay_neither_passes_on_nor_is_believed_about_others() -> None:
    air = Air("ab bc", roles={"b": "worker"})
    air.hosts["a"].signals.emit("done", job="j")
    air.run()
    assert (len(air.hosts["b"].heard), len(air.hosts["c"].heard)) == (1, 0)
    forged = Signal("done", device("a"), b"\x01" * 8, {"job": "j", "status": "cancelled"})
    air.hosts["c"].signals.received(air.hosts["c"].peers["b"], forged.pack())
    assert air.hosts["c"].heard == []
    assert air.hosts["c"].signals.status()[device("b")]["not its to pass on"] == 1


def test_a_signal_of_a_later_version_is_passed_on_and_not_delivered() -> None:
    air = Air("ab bc")
    air.hosts["a"].signals.emit("of the future", anything={"x": [1]})
    air.run()
    assert [(sender, receiver) for sender, receiver, _ in air.passed] == [("a", "b"), ("b", "c")]
    assert air.hosts["c"].heard == []


def test_an_ended_link_is_heard_no_more() -> None:
    air = Air("ab")
    a, b = air.hosts["a"], air.hosts["b"]
    a.signals.emit("done", job="j")
    b.signals.down(b.peers["a"])
    air.run()
    assert b.heard == []


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "progress", "fraction": 2.0},
        {"kind": "progress", "fraction": float("nan")},
        {"kind": "progress", "claim": "1"},
        {"kind": "done", "job": "j" * 300},
        {"kind": "hello", "links": ["me"]},
        {"kind": "done", "job": 7},
        {"kind": ""},
        {"kind": "k" * 33},
        {"kind": None},
        {"src": b"short"},
        {"id": b"short"},
        {"src": None},
        {"kind": "x", 5: 6},
        {"kind": "x", "deep": [[[[[[1]]]]]]},
    ],
    ids=repr,
)
def test_what_lies_beyond_the_limits_is_no_signal(fields: dict[Any, Any]) -> None:
    said = {"kind": "done", "src": bytes(16), "id": bytes(8)} | fields
    with pytest.raises(MalformedMessage):
        unpack(wire.pack(said))


def test_a_signal_that_is_too_large_is_neither_sent_nor_read() -> None:
    with pytest.raises(ArgumentError, match="bytes"):
        Signal("x", device("a"), bytes(8), {"more": "x" * SIGNAL_LIMIT}).pack()
    with pytest.raises(MalformedMessage):
        unpack(wire.pack({"kind": "x", "src": bytes(16), "id": bytes(8), "more": "x" * SIGNAL_LIMIT}))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_signal_or_malformed(data: bytes) -> None:
    try:
        assert isinstance(unpack(data), Signal)
    except MalformedMessage:
        pass


@given(
    st.dictionaries(
        st.sampled_from(["kind", "src", "id", "job", "links", "fraction"]),
        st.none() | st.booleans() | st.integers(-10, 10) | st.binary(max_size=16) | st.text(max_size=8) | st.lists(st.text(max_size=3)),
    )
)
def test_any_map_is_a_signal_or_malformed(said: dict[str, Any]) -> None:
    try:
        assert isinstance(unpack(wire.pack(said)), Signal)
    except MalformedMessage:
        pass
