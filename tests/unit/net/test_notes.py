"""What the two ends of a link tell one another about it."""

from __future__ import annotations

import math
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.net.notes import LABEL_LIMIT, TICKET_SIZE, About, Bye, Note, Ping, Pong, Signalling, Twin, read_note

ABOUT = About("kitchen", 7433, os.urandom(TICKET_SIZE), frozenset({"webrtc", "http"}))
TWIN = Twin(bytes(16), os.urandom(16), os.urandom(64))


@pytest.mark.parametrize(
    "note",
    [
        Ping(7),
        Pong(7, 1.5),
        Bye("its node stops"),
        ABOUT,
        replace(ABOUT, twin=TWIN),
        replace(ABOUT, twin=replace(TWIN, proof=b"")),
        Signalling(b"body", bytes(64)),
        TWIN,
    ],
    ids=lambda note: type(note).__name__,
)
def test_every_note_comes_back(note: Note) -> None:
    assert read_note(note.pack()) == note


def test_kinds_and_keys_of_a_later_version_are_ignored() -> None:
    assert read_note(wire.pack({"kind": "later", "x": 1})) is None
    assert read_note(wire.pack({"kind": "ping", "n": 1, "more": [1]})) == Ping(1)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "ping"},
        {"kind": "ping", "n": "1"},
        {"kind": "pong", "n": 1, "wall": "noon"},
        {"kind": "pong", "n": 1, "wall": math.nan},
        {"kind": "pong", "n": 1, "wall": math.inf},
        {"kind": "about", "label": "a", "port": 70_000, "ticket": bytes(TICKET_SIZE), "lanes": []},
        {"kind": "about", "label": "a", "port": 1, "ticket": b"short", "lanes": []},
        {"kind": "about", "label": "a", "port": 1, "ticket": bytes(TICKET_SIZE), "lanes": ["x"] * 17},
        {"kind": "about", "label": "a", "port": 1, "ticket": bytes(TICKET_SIZE), "lanes": [], "twin": 7},
        {"kind": "rtc", "body": b"b", "signature": b"short"},
        {"kind": "twin", "instance": bytes(16), "other": bytes(16), "proof": b"short"},
        {"kind": "twin", "instance": bytes(15), "other": bytes(16), "proof": bytes(64)},
        {"kind": 7},
        {},
        [],
    ],
    ids=str,
)
def test_what_cant_be_read_is_refused(fields: object) -> None:
    with pytest.raises(MalformedMessage):
        read_note(wire.pack(fields))


def test_a_peers_words_are_shown_on_one_line_without_tricks() -> None:
    read = read_note(About("a\x1b[31m\nb" + "x" * 200, 0, bytes(TICKET_SIZE), frozenset()).pack())
    assert isinstance(read, About)
    assert read.label.isprintable()
    assert len(read.label) <= LABEL_LIMIT


@given(st.binary(max_size=200))
def test_any_bytes_are_a_note_or_refused(message: bytes) -> None:
    try:
        read_note(message)
    except MalformedMessage:
        pass


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=70),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


KINDS = st.sampled_from(["ping", "pong", "bye", "about", "rtc", "x"])
KEYS = st.sampled_from(["n", "wall", "reason", "label", "port", "ticket", "lanes", "body", "signature"])


@given(KINDS, st.dictionaries(KEYS, VALUES))
def test_any_fields_are_a_note_or_refused(kind: str, fields: dict[str, object]) -> None:
    try:
        read_note(wire.pack({"kind": kind, **fields}))
    except MalformedMessage:
        pass
