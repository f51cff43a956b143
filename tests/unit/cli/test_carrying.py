"""A transfer in one line, however wide the terminal is."""

from __future__ import annotations

from typing import Any

import pytest

from p2pqueue.cli import output
from p2pqueue.cli.carrying import document_of, line_of
from p2pqueue.payload.fetching.transfers import SourceShare, Transfer

SOURCES = (SourceShare("5" * 64, "http", 5_000_000, 2.1e6, "used", "box"),)
MOVING = Transfer("p2pq1-a", "a-rather-long-name-of-a-film.mov", 31_500_000, 9_400_000, 2.1e6, 12.0, SOURCES, None)
STILL = Transfer("p2pq1-a", "film.mov", 31_500_000, 9_400_000, 0.0, None, SOURCES, "transfers are paused on box")


def told(transfer: Transfer) -> dict[str, Any]:
    """The transfer as the command line has it from the node."""
    return document_of(transfer.plain())


@pytest.mark.parametrize("columns", [79, 100, 140, 0])
def test_name_rate_end_and_source_are_told_in_every_width(columns: int) -> None:
    text = line_of(told(MOVING), columns)
    assert not columns or output.width(text) <= columns
    assert text.startswith("a-rather-long")
    for words in ("30 %", "9.4 MB of 31.5 MB", "2.1 MB/s", "12 s left", "from box by http"):
        assert words in text


@pytest.mark.parametrize("columns", [72, 120, 0])
def test_of_one_that_stands_still_the_reason_is_told_and_no_rate(columns: int) -> None:
    text = line_of(told(STILL), columns)
    assert "film.mov" in text
    assert "stands still: transfers are paused on box" in text
    assert "/s" not in text
    assert "left" not in text


def test_one_without_its_manifest_says_so() -> None:
    transfer = Transfer("p2pq1-a", "", 0, 0, 0.0, None, SOURCES, None)
    assert line_of(told(transfer), 79) == "files  waiting for its manifest"


def test_one_that_ended_in_an_error_is_told_as_failed() -> None:
    transfer = Transfer("p2pq1-a", "film.mov", 31_500_000, 9_400_000, 0.0, None, SOURCES, "nobody has it", failed=True)
    assert line_of(told(transfer)).endswith("9.4 MB of 31.5 MB  failed: nobody has it")
    assert told(transfer)["sources"][0]["label"] == "box"
