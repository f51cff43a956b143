from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from p2pqueue.workers.running.log import AttemptLog, tail


def numbered(count: int) -> list[bytes]:
    return [b"line %06d\n" % number for number in range(count)]


def test_a_log_below_its_limit_is_kept_whole(tmp_path: Path) -> None:
    log = AttemptLog(tmp_path / "job" / "1.log", limit=100_000)
    for line in numbered(1000):
        log.write(line)
    log.close()
    assert (tmp_path / "job" / "1.log").read_bytes() == b"".join(numbered(1000))


@pytest.mark.parametrize("piece", [1, 7, 1000, 100_000], ids=lambda piece: f"{piece} lines at once")
def test_a_log_beyond_its_limit_keeps_beginning_and_end_and_says_how_much_is_missing(tmp_path: Path, piece: int) -> None:
    lines = numbered(20_000)
    log = AttemptLog(tmp_path / "1.log", limit=50_000)
    for start in range(0, len(lines), piece):
        log.write(b"".join(lines[start : start + piece]))
    log.close()
    data = (tmp_path / "1.log").read_bytes()
    assert len(data) <= 50_000
    assert data.startswith(lines[0] + lines[1])
    assert data.endswith(lines[-2] + lines[-1])
    (notice,) = re.findall(rb"\n\[\xe2\x80\xa6 +([\d,]+) bytes left out here[^\n]*\n", data)
    kept = len(re.sub(rb"\n\[\xe2\x80\xa6[^\n]*\n", b"", data))
    assert int(notice.replace(b",", b"")) + kept == sum(map(len, lines))


def test_a_log_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = AttemptLog(tmp_path / "job" / "1.log")
        log.write(b"x")
        log.close()
    finally:
        os.umask(before)
    assert (tmp_path / "job" / "1.log").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "job").stat().st_mode & 0o777 == 0o700


def test_a_silent_attempt_has_no_file(tmp_path: Path) -> None:
    log = AttemptLog(tmp_path / "1.log")
    log.write(b"")
    log.close()
    assert log.tail() is None
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_can_not_be_written_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "way").write_text("")
    log = AttemptLog(tmp_path / "way" / "1.log")
    log.write(b"x")
    log.write(b"y")
    log.close()


def test_a_full_disk_is_let_go() -> None:
    log = AttemptLog("/dev/full")
    log.write(b"x")
    log.close()


def test_the_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    (tmp_path / "1.log").write_bytes(b"".join(numbered(1000)))
    found = tail(tmp_path / "1.log", 100)
    assert found is not None
    assert found.startswith("line ")
    assert found.endswith("line 000999\n")
    assert len(found) <= 100


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"short", "short"),
        (b"", ""),
        (b"x" * 5000, "x" * 4096),
        (b"\xff\xfe", "��"),
    ],
)
def test_the_tail_of_an_odd_log(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "1.log").write_bytes(data)
    assert tail(tmp_path / "1.log") == expected


def test_there_is_no_tail_of_no_log(tmp_path: Path) -> None:
    assert tail(tmp_path / "none.log") is None
