from __future__ import annotations

import time
from datetime import UTC, datetime

import click
import pytest

from p2pqueue.cli import quantities


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("90", 90.0),  # bare numbers are seconds
        ("0", 0.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("2D", 172800.0),  # letter case doesn't matter
        (" 10m ", 600.0),
        ("1w", 604800.0),
    ],
)
def test_a_duration_is_read(typed: str, seconds: float) -> None:
    assert quantities.duration(typed) == seconds


@pytest.mark.parametrize(
    "typed",
    ["", "-5", "-5m", "5 minutes", "1h-3m", "h", "1.2.3s", "nan", "inf", "1e3", "10m\n5", "1000y", "9999999w", "9" * 400, "\x1b[2J"],
)
def test_what_is_no_duration_is_refused_in_words(typed: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        quantities.duration(typed)
    assert len(caught.value.message) < 200
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    ("typed", "count"),
    [("1500000", 1_500_000), ("64MB", 64_000_000), ("64MiB", 64 << 20), ("1.5 GB", 1_500_000_000), ("0", 0), ("2kib", 2048)],
)
def test_a_size_is_read(typed: str, count: int) -> None:
    assert quantities.size(typed) == count


@pytest.mark.parametrize("typed", ["", "-1", "MB", "12 parsecs", "1e9", "9" * 30, "99999999TB", "nan", "1.5.5MB"])
def test_what_is_no_size_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        quantities.size(typed)


def test_a_time_with_a_zone_is_that_instant() -> None:
    wanted = datetime(2026, 12, 24, 17, 30, tzinfo=UTC).timestamp() * 1000
    assert quantities.moment("2026-12-24T17:30Z") == wanted
    assert quantities.moment("2026-12-24T18:30+01:00") == wanted


def test_a_time_without_a_zone_is_local() -> None:
    assert quantities.moment("2026-12-24 18:30") == int(datetime(2026, 12, 24, 18, 30).astimezone().timestamp() * 1000)


def test_a_time_of_day_is_the_next_to_come() -> None:
    for typed in ("00:00", "12:00", "23:59:59"):
        ahead = quantities.moment(typed) / 1000 - time.time()
        assert -1 < ahead <= 25 * 3600  # a day may have 25 hours


@pytest.mark.parametrize(
    "typed", ["", "tomorrow", "25:00", "2026-13-01", "1969-12-31", "2150-01-01", "0001-01-01", "9999-12-31T23:59", "12:61"]
)
def test_what_is_no_time_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        quantities.moment(typed)


def test_since_takes_a_duration_or_a_time() -> None:
    assert abs(quantities.since("2h") / 1000 - (time.time() - 7200)) < 5
    assert quantities.since("2026-11-29T00:00Z") == 1_795_910_400_000
    with pytest.raises(click.BadParameter, match="neither a duration"):
        quantities.since("yesterday")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_910_400_123, "2026-11-29T00:00:00.123Z"),
        (None, None),
        (1 << 62, None),  # a stamp from a broken clock shows as none, and breaks nothing
        (-(1 << 62), None),
    ],
)
def test_times_in_json_are_rfc_3339(milliseconds: int | None, text: str | None) -> None:
    assert quantities.rfc3339(milliseconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.42 s"),
        (12.3, "12 s"),
        (59.6, "1 m 0 s"),
        (200, "3 m 20 s"),
        (299.7, "5 m 0 s"),
        (3599.8, "1 h 0 m"),
        (7500, "2 h 5 m"),
        (400_000, "4 d 15 h"),
        (None, "–"),
        (float("inf"), "–"),
        (-3, "0.00 s"),
    ],
)
def test_spans_are_written_for_people(seconds: float | None, text: str) -> None:
    assert quantities.span(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (999_960, "1.0 MB"),
        (8_600_000_000, "8.6 GB"),
        (5 * 10**12, "5.0 TB"),
        (None, "–"),
    ],
)
def test_sizes_are_written_for_people(count: int | None, text: str) -> None:
    assert quantities.bytes_text(count) == text
