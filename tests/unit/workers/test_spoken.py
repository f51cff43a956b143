from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.workers.children.spoken import ENDS, Garbled, Refused, Said, read

KEYS = st.sampled_from(["progress", "phase", "checkpoint", "log", "retry", "reason", *ENDS, "level", ""])
VALUES = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=5)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"{" + data))
def test_bytes_that_are_nothing_are_the_log_or_refused_in_words(line: bytes) -> None:
    try:
        assert read(line) is None or line.lstrip().startswith(b"{")
    except (Refused, Garbled) as error:
        assert str(error)


@given(st.dictionaries(KEYS, VALUES, max_size=3))
def test_what_is_taken_is_what_was_said_with_values_of_their_kinds(words: dict[str, Any]) -> None:
    try:
        said = read(json.dumps(words).encode())
    except Refused:
        return
    if said is None:
        assert not set(words) & {"progress", "phase", "checkpoint", "log", *ENDS}
        return
    assert said.words == words
    assert [said.end] == ([key for key in ENDS if key in words] or [None])
    assert isinstance(words.get("progress", 0), (int, float))
    assert isinstance(words.get("error", ""), str)
    assert isinstance(words.get("retry", True), bool)
    assert words.get("retry_in", 0) >= 0


@pytest.mark.parametrize("line", [b"", b"plain", b"[1]", b"3", b"{}", b'{"level": "error"}', b"\xff", b" [{"])
def test_what_is_not_for_the_node_is_left_to_the_log(line: bytes) -> None:
    assert read(line) is None


def test_space_around_a_line_and_keys_that_are_not_known_do_no_harm() -> None:
    assert read(b' {"result": 1, "more": 2} \r') == Said({"result": 1, "more": 2}, "result")
