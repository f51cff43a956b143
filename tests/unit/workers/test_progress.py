from __future__ import annotations

import pytest

from p2pqueue.errors import ConfigError
from p2pqueue.workers.children.progress import ProgressPattern

FFMPEG = r"Duration: (?P<total>[\d:.]+)|time=(?P<done>[\d:.]+)"


@pytest.mark.parametrize(
    ("pattern", "lines", "expected", "reason"),
    [
        (r"(\d+)%", ["10%", "nothing", "55 %", "100%"], [0.1, 1.0], "the first group is a percentage"),
        (r"(?P<percent>[\d.]+) ?%", ["12.5 %"], [0.125], "a percentage by its name"),
        (r"(?P<fraction>[\d.]+)", ["0.25", "1"], [0.25, 1.0], "a fraction"),
        (r"(?P<done>\d+)/(?P<total>\d+)", ["3/12", "12/12"], [0.25, 1.0], "so many of so many"),
        (FFMPEG, ["  Duration: 00:01:40.00, start", "time=00:00:25.00 x", "time=00:01:40.10 x"], [0.25, 1.0], "times, the total before"),
        (FFMPEG, ["time=00:00:25.00"], [], "nothing is known before the total"),
        (FFMPEG, ["Duration: 00:00:00.00", "time=00:00:25.00"], [], "nothing is a part of nothing"),
        (r"(?P<percent>[\w.-]+)%", ["nan%", "inf%", "-5%", "500%", "x%"], [0.0, 1.0], "odd numbers are cut to what can be"),
        (r"(?P<percent>\d+,\d+)", ["12,5"], [0.125], "a comma in place of a point"),
    ],
)
def test_progress_is_read_from_lines(pattern: str, lines: list[str], expected: list[float], reason: str) -> None:
    reader = ProgressPattern(pattern)
    steps = [step for line in lines if (step := reader.read(line)) is not None]
    assert [fraction for fraction, _ in steps] == pytest.approx(expected), reason


def test_a_phase_is_read_beside_the_progress_and_alone() -> None:
    reader = ProgressPattern(r"\[(?P<phase>\w+)\](?: (?P<percent>\d+)%)?")
    assert reader.read("[download] 50%") == (0.5, "download")
    assert reader.read("[merge]") == (0.5, "merge")


@pytest.mark.parametrize("pattern", ["(", "no group", "(?P<unknown>x)"])
def test_a_pattern_that_says_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        ProgressPattern(pattern)
