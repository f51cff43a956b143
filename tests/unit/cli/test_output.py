from __future__ import annotations

import json

import pytest

from p2pqueue.cli import output


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("clip.mp4", "clip.mp4"),
        ("Straße 😀 e\u0301", "Straße 😀 e\u0301"),  # letters of every script stay
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),  # renames a window
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b2J", "\\x9b2J"),  # the one-byte form of an escape sequence
        ("gpj\u202eexe", "gpj\\u202eexe"),  # turns the direction of text
        ("\udcff.bin", "\\xff.bin"),  # a byte that is no UTF-8
        ("\ud800", "\\ud800"),
    ],
)
def test_what_could_steer_a_terminal_is_shown(data: str, shown: str) -> None:
    assert output.plain(data) == shown
    output.plain(data).encode()


def test_lines_keep_their_ends_where_they_may() -> None:
    assert output.plain("a\n\tb\x1b[1m", lines=True) == "a\n\tb\\x1b[1m"


def test_json_is_ascii_whatever_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    output.document({"name": "😀\x1b\u202e\udcff"})
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert "\x1b" not in printed
    assert json.loads(printed) == {"name": "😀\x1b\u202e\udcff"}


def test_columns_stand_below_one_another_whatever_the_script() -> None:
    lines = output.table(("A", "B"), [("東京", "x"), ("abcd", "y"), ("e\u0301", "z")])
    assert [line.rstrip() for line in lines[1:]] == ["東京  x", "abcd  y", "e\u0301     z"]


def test_a_cut_text_ends_in_an_ellipsis_and_fits() -> None:
    assert output.cut("abcdef", 4) == "abc…"
    assert output.width(output.cut("東京都庁", 5)) <= 5
    assert output.cut("abc", 0) == "abc"  # no terminal, nothing to fit into


@pytest.mark.parametrize(("fraction", "shown"), [(0, "  0 %"), (0.5, " 50 %"), (1, "100 %"), (7, "100 %"), (-1, "  0 %")])
def test_a_bar_stays_within_its_bounds(fraction: float, shown: str) -> None:
    assert output.bar(fraction).endswith(shown)
    assert len(output.bar(fraction)) == len(output.bar(0.3))
