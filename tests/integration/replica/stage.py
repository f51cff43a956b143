"""Starts and ends processes that write to a home, and looks at what they left."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from p2pqueue.home import Home

KEY_LENGTH = 36  # characters of a UUID
ROOT = Path(__file__).parents[3]


def start(home: Home, kind: str, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.integration.replica.hands", str(home.path), kind, str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def finish(process: subprocess.Popen[str]) -> list[str]:
    """The keys that a process acknowledged before it ended by itself; anything on stderr is a failure."""
    out, err = process.communicate(timeout=50)
    assert (process.returncode, err) == (0, "")
    return out.split()


def first(process: subprocess.Popen[str]) -> str:
    """Waits for the first key that a process acknowledges."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Kills a process, gives the keys that it had acknowledged; one that `first` read in part is left out."""
    process.kill()
    out, _ = process.communicate(timeout=20)
    return [line for line in out.split("\n")[:-1] if len(line) == KEY_LENGTH]


def check(path: Path, acknowledged: set[str]) -> None:
    """Nothing acknowledged is lost, and rows, numbers, heads and counters fit together."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = {key for (key,) in connection.execute("SELECT id FROM clips WHERE live = 1")}
        assert acknowledged <= rows
        author, seq, tag = connection.execute("SELECT author, seq, tag FROM heads JOIN incarnation USING (author)").fetchone()
        assert connection.execute("SELECT max(seq), count(*), count(DISTINCT seq) FROM changes WHERE author = ?", (author,)).fetchone() == (
            seq,
            seq,
            seq,
        )
        assert connection.execute("SELECT seq, tag FROM commits ORDER BY seq DESC LIMIT 1").fetchone() == (seq, tag)
        (highest,) = connection.execute("SELECT max(abs(hlc)) FROM changes").fetchone()
        assert (
            connection.execute("SELECT max(hlc) FROM (SELECT hlc FROM incarnation UNION SELECT hlc FROM commits)").fetchone()[0] >= highest
        )
        counted = connection.execute("SELECT sum(n) FROM counts WHERE tbl = 'clips'").fetchone()[0] or 0
        assert counted == len(rows)
