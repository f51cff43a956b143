"""What a device tells of how to meet it is told again when it changes, not too often, and read with limits."""

from __future__ import annotations

import random

import pytest

from p2pqueue import wire
from p2pqueue.net.addresses import CANDIDATES_LIMIT
from p2pqueue.peers.mail.format import ABOUT_LIMIT
from p2pqueue.peers.mail.telling import CHANGE_EVERY, REFRESH_EVERY, Telling, read_told

HERE, THERE = ("10.0.0.1", 7433), ("fd00::1", 7433)
START = bytes(16)


def test_what_is_told_is_read_again() -> None:
    told = read_told(Telling(START).now([HERE, THERE], True, now=0.0, wall=5))
    assert told is not None
    assert (told.endpoints, told.direct, told.start, told.at) == ((HERE, THERE), True, START, 5)


def test_the_same_is_told_in_the_same_bytes_until_it_is_time_to_refresh_it() -> None:
    telling = Telling(START)
    first = telling.now([HERE], True, now=0.0, wall=5)
    assert telling.now([HERE], True, now=REFRESH_EVERY - 1, wall=6) == first
    assert telling.now([HERE], True, now=REFRESH_EVERY, wall=7) != first


def test_another_address_is_told_at_once_after_a_while_and_else_later() -> None:
    telling = Telling(START)
    first = telling.now([HERE], True, now=0.0, wall=5)
    assert telling.now([THERE], True, now=CHANGE_EVERY - 1, wall=6) == first
    changed = read_told(telling.now([THERE], True, now=CHANGE_EVERY, wall=7))
    assert changed is not None
    assert changed.endpoints == (THERE,)


def test_a_device_that_had_no_address_yet_tells_its_first_one_at_once() -> None:
    telling = Telling(START)
    telling.now([], True, now=0.0, wall=5)
    told = read_told(telling.now([HERE], True, now=1.0, wall=6))
    assert told is not None
    assert told.endpoints == (HERE,)


def test_more_addresses_than_anybody_dials_are_not_told() -> None:
    many = [(f"10.0.0.{number}", 7433) for number in range(1, 40)]
    packed = Telling(START).now(many, True, now=0.0, wall=5)
    told = read_told(packed)
    assert told is not None
    assert len(told.endpoints) == CANDIDATES_LIMIT
    assert len(packed) < ABOUT_LIMIT / 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        random.Random(40).randbytes(40),
        wire.pack({"v": 2, "t": 1, "s": START, "e": [], "d": True}),  # a later form
        wire.pack({"v": 1, "t": 1, "s": b"short", "e": [], "d": True}),
        wire.pack({"v": 1, "t": 1, "s": START, "e": [[b"\x7f\0\0\1", 0]], "d": True}),
        wire.pack({"v": 1, "t": 1, "s": START, "e": [[b"\x7f\0\0", 80]], "d": True}),
        wire.pack({"v": 1, "t": 1, "s": START, "e": [["host.example", 80]], "d": True}),
        wire.pack({"v": 1, "t": 1, "s": START, "e": [7], "d": True}),
        wire.pack({"v": 1, "t": 1, "s": START, "e": [[b"\x7f\0\0\1", 80]] * 9, "d": True}),
        wire.pack({"v": 1, "t": "now", "s": START, "e": [], "d": True}),
        wire.pack([1, 2]),
        wire.pack({"v": 1, "x": bytes(ABOUT_LIMIT)}),
    ],
)
def test_what_tells_nothing_that_can_be_used_is_passed_over(data: bytes) -> None:
    assert read_told(data) is None
