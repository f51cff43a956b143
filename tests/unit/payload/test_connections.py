"""Several connections to one shelf: none takes away the locks of another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(os.name == "nt", reason="Windows lets nobody take away a database that is open")
@pytest.mark.parametrize("taken", ["shelf.sqlite", "shelf.sqlite*", "s*"])
def test_a_shelf_whose_files_were_taken_away_goes_on_with_those_that_others_make(home: Home, taken: str) -> None:
    node, program = Shelf(home, KEY), Shelf(home, KEY)
    lost = node.ingest_bytes(b"lost" * 20_000, "lost.txt")
    for path in list(home.path.glob(taken)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = program.ingest_bytes(b"found" * 20_000, "found.txt")
    assert node.holds(found.capability)
    assert b"".join(node.open(found.capability)) == b"found" * 20_000
    assert not node.holds(lost.capability)
    node.close()
    assert b"".join(program.open(found.capability)) == b"found" * 20_000
    program.close()
