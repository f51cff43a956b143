"""A full or read-only disk, met for real, is told in words and leaves nothing half made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CREATE = """
import sys
from p2pqueue.errors import P2PQueueError
from p2pqueue.home import Home
from p2pqueue.identity.keys import create, load
home = Home.find(sys.argv[1])
try:
    create(home)
    print("made", load(home).space_id)
except P2PQueueError as error:
    print(type(error).__name__, error)
    print(sorted(path.name for path in home.path.rglob("*") if path.is_file()) if home.path.exists() else [])
"""


def on_a_disk(options: str, program: str, folder: Path, *, fill: int = 0) -> str:
    """Runs a program whose argument is a home on a small disk of its own, which nobody else sees."""
    if os.getuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare to mount a small disk")
    fill_up = f"head -c {fill} /dev/zero > {folder}/filler; " if fill else ""
    script = f'mount -t tmpfs -o {options} none "$1" && {{ {fill_up} exec "$2" -c "$3" "$1/home"; }}'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), sys.executable, program]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout


@pytest.mark.root
def test_a_read_only_disk_is_told_in_words(tmp_path: Path) -> None:
    assert on_a_disk("ro", CREATE, tmp_path).startswith("ReadOnlyHome ")


@pytest.mark.root
@pytest.mark.parametrize("inodes", [2, 3, 4, 5, 6])
def test_a_disk_that_is_full_at_any_step_is_told_in_words_and_holds_no_part_of_a_key(inodes: int, tmp_path: Path) -> None:
    told = on_a_disk(f"size=1m,nr_inodes={inodes}", CREATE, tmp_path)
    assert told.startswith("DiskFull ")
    assert told.endswith("[]\n")


@pytest.mark.root
def test_a_disk_without_a_free_byte_is_told_in_words_and_holds_no_part_of_a_key(tmp_path: Path) -> None:
    told = on_a_disk("size=64k", CREATE, tmp_path, fill=64 * 1024)
    assert told.startswith("DiskFull ")
    assert told.endswith("[]\n")


@pytest.mark.root
def test_a_small_disk_is_enough_for_the_keys(tmp_path: Path) -> None:
    assert on_a_disk("size=1m", CREATE, tmp_path).startswith("made ")
