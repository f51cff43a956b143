"""The first frame of a link, whose form never changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import LinkRefused, MalformedMessage
from p2pqueue.net.hello import HELLO_LIMIT, MAGIC, Hello, agree, read_hello


def test_the_form_is_frozen() -> None:
    assert Hello(1, 2, "0.1").pack() == b"p2pqueue\0" + b"\x00\x01" + b"\x00\x02" + b"\x03" + b"0.1"


def test_what_a_later_version_appends_is_ignored() -> None:
    assert read_hello(Hello(1, 3, "9.0").pack() + b"something new") == Hello(1, 3, "9.0")


@pytest.mark.parametrize(
    ("mine", "theirs", "version"),
    [((1, 1), (1, 1), 1), ((1, 3), (2, 5), 3), ((4, 6), (1, 4), 4)],
    ids=["equal", "overlapping", "touching"],
)
def test_the_highest_version_that_both_speak_is_taken(mine: tuple[int, int], theirs: tuple[int, int], version: int) -> None:
    assert agree(Hello(*mine, "a"), Hello(*theirs, "b")) == version
    assert agree(Hello(*theirs, "b"), Hello(*mine, "a")) == version


def test_a_device_that_is_newer_or_older_is_named_in_words() -> None:
    old, new = Hello(1, 2, "0.1.0"), Hello(3, 3, "9.4")
    with pytest.raises(LinkRefused, match=r"that device speaks protocol 3 \(p2pqueue 9.4\), this one 1–2 .*: upgrade this device"):
        agree(old, new)
    with pytest.raises(LinkRefused, match="upgrade that device"):
        agree(new, old)


@pytest.mark.parametrize(
    "frame",
    [b"", MAGIC, b"GET / HTTP/1.1\r\nHost: x\r\n", MAGIC + b"\x00\x02\x00\x01\x00", MAGIC + b"\x00\x01\x00\x01\xff", MAGIC * 100],
    ids=["empty", "cut", "http", "lowest above highest", "no text", "long"],
)
def test_what_is_no_hello_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_hello(frame)


@given(st.integers(0, 65535), st.integers(0, 65535), st.text(max_size=16))
def test_every_hello_comes_back(one: int, two: int, product: str) -> None:
    read = read_hello(Hello(min(one, two), max(one, two), product).pack())
    assert (read.lowest, read.highest) == (min(one, two), max(one, two))
    assert read.product.isprintable()


@given(st.binary(max_size=HELLO_LIMIT + 10) | st.binary(max_size=60).map(lambda tail: MAGIC + tail))
def test_any_bytes_are_a_hello_or_refused(frame: bytes) -> None:
    try:
        assert read_hello(frame).product.isprintable()
    except MalformedMessage:
        pass
