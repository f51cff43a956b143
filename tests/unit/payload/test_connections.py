"""Several connections to one shelf: none takes away the locks of another."""

from __future__ import annotations

import subprocess
import sys

from p2pqueue.home import Home
from p2pqueue.payload.shelf import Shelf

KEY = bytes(32)
READ = """
import sys
from pathlib import Path
from p2pqueue.home import Home
from p2pqueue.payload.shelf import Shelf
shelf = Shelf(Home(Path(sys.argv[1])), bytes(32))
print(shelf.describe(sys.argv[2]).name)
shelf.close()
"""


def name_seen_elsewhere(home: Home, capability: str) -> str:
    command = [sys.executable, "-c", READ, str(home.path), capability]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout.strip()


def test_what_is_written_after_a_second_shelf_was_opened_here_is_seen_elsewhere(home: Home) -> None:
    """Closing any descriptor of a file drops the locks of its whole process: the next to leave deleted the log in use."""
    first = Shelf(home, KEY)
    early = first.ingest_bytes(b"early", "early.txt")
    second = Shelf(home, KEY)
    assert second.describe(early.capability).name == "early.txt"
    assert name_seen_elsewhere(home, early.capability) == "early.txt"
    late = first.ingest_bytes(b"late", "late.txt")
    assert name_seen_elsewhere(home, late.capability) == "late.txt"
    assert second.describe(late.capability).name == "late.txt"
    first.close()
    second.close()
