"""Whatever a name is made of, what is written is one harmless component, and no two names become one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.payload.names import distinct_names, safe_name, wellformed_name

ANYWHERE = [
    ("clip.mov", "clip.mov", "an ordinary name is kept"),
    ("Grüße 日本 👩‍💻.txt", "Grüße 日本 👩‍💻.txt", "any script is kept"),
    ("-rf", "-rf", "a dash is kept: paths are never given to a shell"),
    ("100%", "100%", "a percent sign is kept"),
    ("%41", "%2541", "but not where it looks like an escape"),
    ("../../x", "..%2F..%2Fx", "a separator is none any more"),
    ("/etc/x", "%2Fetc%2Fx", "an absolute path is a name"),
    ("a/../../x", "a%2F..%2F..%2Fx", "nor does it climb from within"),
    ("..\\x", "..%5Cx", "Windows' separator likewise"),
    (".", "%2E", "the folder itself"),
    ("..", "%2E%2E", "the folder above"),
    ("", "unnamed", "no name at all"),
    ("a\0b", "a%00b", "NUL ends a path"),
    ("a\nb", "a%0Ab", "a line in a list stays one line"),
    ("\x1b[2Kx", "%1B[2Kx", "terminals obey escapes"),
    ("gpj.\u202eexe", "gpj.%E2%80%AEexe", "text that runs backwards hides an extension"),
    (" x", "%20x", "a space that nobody sees"),
    ("x ", "x%20", "likewise"),
    ("x.", "x%2E", "Windows drops it"),
    (b"\xff.bin", "%FF.bin", "a byte that is no UTF-8"),
]
ON_WINDOWS = [
    ("con.txt", "%63on.txt", "the console"),
    ("NUL", "%4EUL", "the empty device"),
    ("com1 .x", "%63om1 .x", "with a space before the dot too"),
    ("console.txt", "console.txt", "only the whole name is reserved"),
    ("a:b", "a%3Ab", "a stream of a file"),
    ('?*<>|"', "%3F%2A%3C%3E%7C%22", "wildcards and pipes"),
]


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize(("name", "written", "reason"), ANYWHERE)
def test_a_name_is_kept_or_mapped_by_the_rule(name: str | bytes, written: str, reason: str, windows: bool) -> None:
    assert safe_name(name, windows=windows) == written, reason


@pytest.mark.parametrize(("name", "written", "reason"), ON_WINDOWS)
def test_names_that_only_windows_minds_are_mapped_there_and_kept_elsewhere(name: str, written: str, reason: str) -> None:
    assert safe_name(name, windows=True) == written, reason
    assert safe_name(name, windows=False) == name


def test_a_long_name_keeps_its_beginning_and_its_extension() -> None:
    first, second = ("x" * 300 + end + ".txt" for end in "ab")
    assert len(safe_name(first)) == 255
    assert safe_name(first).startswith("xxxx")
    assert safe_name(first).endswith(".txt")
    assert safe_name(first) != safe_name(second)
    assert safe_name("x" * 251 + ".txt") == "x" * 251 + ".txt"


@given(st.text(max_size=400), st.booleans())
def test_what_is_written_is_one_printable_component(name: str, windows: bool) -> None:
    written = safe_name(name, windows=windows)
    assert 0 < len(written.encode()) <= 255
    assert written not in (".", "..")
    assert not set(written) & set("/\\\0\n\r\x1b")
    assert os.path.basename(written) == written
    assert not written.endswith((" ", "."))


@given(st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_two_names_are_never_written_as_one(first: str, second: str, windows: bool) -> None:
    same = first == second or {first, second} == {"", "unnamed"}
    assert (safe_name(first, windows=windows) == safe_name(second, windows=windows)) == same


@given(st.binary(max_size=60).filter(lambda name: b"\0" not in name and b"/" not in name))
def test_a_name_of_any_bytes_can_be_carried(name: bytes) -> None:
    carried = wellformed_name(os.fsdecode(name))
    assert carried.encode().decode() == carried


def test_composed_and_decomposed_letters_stay_two_names(tmp_path: Path) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert safe_name(composed) == composed
    assert safe_name(decomposed) == decomposed
    written = distinct_names([composed, decomposed])
    assert written[0] == composed
    assert written[1] != decomposed
    assert written[1].startswith("cafe")


def test_names_that_one_folder_can_not_tell_apart_get_a_mark() -> None:
    written = distinct_names(["a.txt", "A.txt", "a.txt", "b"], taken=["B"])
    assert written[0] == "a.txt"
    assert len({name.casefold() for name in written} | {"b"}) == 5
    assert all(name.endswith(".txt") for name in written[:3])
