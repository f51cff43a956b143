from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import pytest

from p2pqueue.cli import values


def nothing(limit: int) -> str:
    raise AssertionError("stdin must not be read")


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("720", "int", 720),
        ("-1", "int", -1),
        ("720", "str", "720"),  # text stays text, whatever it looks like
        ("null", "str", "null"),
        ("null", "int | None", None),
        ("5", "Optional[int]", 5),
        ("5", "'int'", 5),  # postponed annotations keep their quotes
        ("1e3", "float", 1000.0),
        ("yes", "bool", True),
        ("0", "bool", False),
        ("[1, 2]", "list[int]", [1, 2]),
        ('{"a": 1}', "dict[str, int]", {"a": 1}),
        ("abc", "int | str", "abc"),
        ("7", "str | int", 7),  # numbers before text
        ("2026-12-24T17:30Z", "datetime", datetime(2026, 12, 24, 17, 30, tzinfo=UTC)),
        ("2026-12-24T17:30Z", "datetime.datetime", datetime(2026, 12, 24, 17, 30, tzinfo=UTC)),
        ("abc", "bytes", b"abc"),
        ("[1]", "Sequence[int]", [1]),  # an annotation that is not known here: JSON, else text
        ("plain", "Color", "plain"),
        ("720", "", 720),
        ("a b", "", "a b"),
        ('"720"', "", "720"),
        ("", "", ""),
        ("NaN", "", "NaN"),
        ("Infinity", "", "Infinity"),
        ("a=b", "str", "a=b"),
    ],
)
def test_a_value_is_read_by_its_annotation(text: str, annotation: str, expected: Any) -> None:
    found = values.value(text, annotation)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "annotation", "words"),
    [
        ("tall", "int", "a whole number"),
        ("1.5", "int", "a whole number"),
        ("9" * 50, "int", "a whole number"),
        ("maybe", "bool", "true or false"),
        ("{}", "list[int]", "a JSON array"),
        ("x", "int | None", "null or a whole number"),
        ("soon", "datetime", "a time"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_would(text: str, annotation: str, words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        values.value(text, annotation, name="height")


@pytest.mark.parametrize("text", ["9" * 41, "-" + "9" * 5000, "[1, " + "9" * 5000 + "]"])
@pytest.mark.parametrize("annotation", ["", "Color"])
def test_a_number_too_long_to_be_read_is_refused_and_not_taken_for_text(text: str, annotation: str) -> None:
    with pytest.raises(click.UsageError, match="height has a whole number of .* digits"):
        values.value(text, annotation, name="height")
    assert values.value(f'"{"9" * 5000}"', annotation) == "9" * 5000


def test_deeply_nested_json_is_text_and_breaks_nothing() -> None:
    text = "[" * 100_000
    assert values.value(text) == text


def test_pairs_become_arguments() -> None:
    parameters = [{"name": "height", "annotation": "int"}, {"name": "name", "annotation": "str"}]
    assert values.arguments(["height=720", "name=12", "extra=[1]"], parameters, nothing) == {"height": 720, "name": "12", "extra": [1]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["height"], "no key=value"),
        (["=3"], "no key=value"),
        (["a=1", "a=2"], "given twice"),
        (["video=clip.mp4"], "-f video=PATH"),
    ],
)
def test_pairs_that_can_not_be_meant_are_refused(given: list[str], words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        values.arguments(given, [{"name": "video", "annotation": "File", "is_file": True}], nothing)


def test_a_dash_reads_an_object_from_stdin() -> None:
    assert values.arguments(["-", "b=2"], [], lambda limit: '{"a": [1, null]}') == {"a": [1, None], "b": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("[1]", "no JSON object"),
        ("{", "no JSON"),
        ('{"b": 1}', "given twice"),
        ("[" * 100_000, "no JSON"),
        (" " * (2 << 20), "64 KiB"),
    ],
)
def test_what_is_no_object_on_stdin_is_refused(text: str, words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        values.arguments(["b=2", "-"], [], lambda limit: text)


PARAMETERS = [
    {"name": "text", "annotation": "str", "required": True},
    {"name": "times", "annotation": "int", "required": False, "default": 1},
]


def test_names_that_fit_the_task_pass() -> None:
    values.check_names("echo", ["text"], PARAMETERS)
    values.check_names("echo", ["text", "times"], PARAMETERS)


@pytest.mark.parametrize(
    ("given", "words"), [(["text", "tims"], "Did you mean 'times'"), ([], "misses text"), (["text", "zzz"], "it takes text, times")]
)
def test_names_that_do_not_fit_the_task_are_refused(given: list[str], words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        values.check_names("echo", given, PARAMETERS)
