"""How do people write durations, sizes and times, and how are they written back to them?

Parsing raises `click.BadParameter` with what was typed and what is understood; click is imported where that is done,
since a list is printed without it. Pure but for `moment`, which asks for the local time zone.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from click import BadParameter

LONGEST = 100 * 365 * 86400.0  # seconds: a hundred years, beyond which a typed duration is a slip
LARGEST = 1 << 60  # bytes
LATEST_MS = 4_102_444_800_000  # 2100-01-01, where the clock of the replica ends too


def duration(text: str) -> float:
    """Seconds, from `90`, `1.5h`, `1h30m`, `500ms`, `2d`, `1w`."""
    from p2pqueue.settings import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError:
        raise _refused(f"{_shown(text)} is no duration; write 90, 90s, 10m, 1h30m, 2d or 1w.") from None
    if seconds > LONGEST:
        raise _refused(f"{_shown(text)} is longer than a hundred years.")
    return seconds


def size(text: str) -> int:
    """Bytes, from `1500000`, `64MB` (millions) or `64MiB` (powers of 1024)."""
    from p2pqueue.settings import parse_size

    try:
        count = parse_size(text)
    except (ValueError, OverflowError):
        raise _refused(f"{_shown(text)} is no size; write 1500000, 64MB, 64MiB or 2GB.") from None
    if not 0 <= count <= LARGEST:
        raise _refused(f"{_shown(text)} is larger than any file.")
    return count


def moment(text: str) -> int:
    """Milliseconds UTC, from a date and time (local unless it names a zone), or from `HH:MM`, the next to come."""
    typed = text.strip()
    now = datetime.now().astimezone()
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", typed):
            parts = [int(part) for part in typed.split(":")]
            when = now.replace(hour=parts[0], minute=parts[1], second=parts[2] if len(parts) > 2 else 0, microsecond=0)
            when = when if when > now else when + timedelta(days=1)
        else:
            when = datetime.fromisoformat(typed)
        milliseconds = int(when.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise _refused(f"{_shown(text)} is no time; write 2026-12-24T18:30, 2026-12-24T17:30Z or 18:30.") from None
    if not 0 <= milliseconds <= LATEST_MS:
        raise _refused(f"{_shown(text)} lies outside 1970 to 2100.")
    return milliseconds


def since(text: str) -> int:
    """Milliseconds UTC, from a duration before now (`2h`, `2h ago`) or a time."""
    from click import BadParameter

    try:
        seconds = duration(re.sub(r"\s+ago\s*$", "", text, flags=re.IGNORECASE))
    except BadParameter:
        try:
            return moment(text)
        except BadParameter:
            raise _refused(f"{_shown(text)} is neither a duration before now (2h, 3d) nor a time (2026-12-24T18:30).") from None
    return max(0, int((datetime.now(UTC).timestamp() - seconds) * 1000))


def priority(text: str) -> int:
    """A whole number of 32 bits."""
    try:
        number = int(text)
    except ValueError:
        raise _refused(f"{_shown(text)} is no whole number; 0 is usual, 10 runs before it, -10 after it.") from None
    if not -(1 << 31) <= number < 1 << 31:
        raise _refused(f"{_shown(text)} is too far from 0.")
    return number


def localised(text: str) -> str:
    """Words for people, with the first time in them, RFC 3339 in UTC, told as it is here."""

    def local(found: re.Match[str]) -> str:
        return local_time(int(datetime.fromisoformat(found[0]).timestamp() * 1000))

    return re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", local, text, count=1)


def rfc3339(milliseconds: int | None) -> str | None:
    """A time in JSON: RFC 3339, UTC, with milliseconds."""
    if milliseconds is None:
        return None
    try:
        whole = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def local_time(milliseconds: int | None) -> str:
    """A time for people: local, to the second."""
    if milliseconds is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "?"


def span(seconds: float | None) -> str:
    """A length of time for people: `0.42 s`, `12 s`, `3 m 20 s`, `2 h 5 m`, `4 d`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def counted(number: int, noun: str) -> str:
    """How many of something: `1 job`, `2 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bytes_text(count: int | None) -> str:
    """A size for people, in units of 1000: `512 B`, `1.5 MB`, `8.6 GB`."""
    if count is None:
        return "–"
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def _refused(words: str) -> BadParameter:
    from click import BadParameter

    return BadParameter(words)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
