"""A private file is whole or not there, and nobody else's from its first moment."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from p2pqueue.errors import DamagedHome, DiskFull
from p2pqueue.private import write_private

ROOT = Path(__file__).parents[3]


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, b"one")
    write_private(path, b"other")
    assert path.read_bytes() == b"other"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_is_there_stays_where_that_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, b"one", replace=False)
    with pytest.raises(FileExistsError):
        write_private(path, b"other", replace=False)
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "file"
    write_private(path, b"one", replace=False)
    with pytest.raises(FileExistsError):
        write_private(path, b"other", replace=False)
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_content_and_no_rubbish(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_private(path, b"one")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    if call == "write":
        monkeypatch.setattr("builtins.open", full)
    else:
        monkeypatch.setattr(os, call, full)
    with pytest.raises(DiskFull, match="No space"):
        write_private(path, b"other")
    monkeypatch.undo()
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_is_missing_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(DamagedHome, match="No such file"):
        write_private(tmp_path / "gone" / "file", b"x")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377], ids=oct)
def test_nothing_in_a_home_is_ever_open_to_others(umask: int, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    program = f"""
import os, sys
from p2pqueue.config import set_setting
from p2pqueue.home import Home
from p2pqueue.identity.keys import create
os.umask({umask})
home = Home.find(sys.argv[1])
create(home)
set_setting(home, "slots", "2")
home.socket_path
"""
    trace, home = tmp_path / "trace", tmp_path / "home"
    watched = "trace=openat,open,creat,mkdir,mkdirat,chmod,fchmod,fchmodat"
    command = [strace, "-f", "-o", str(trace), "-e", watched, sys.executable, "-c", program, str(home)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=55)
    made = [line for line in trace.read_text().splitlines() if str(home) in line and "= -1" not in line]
    modes = [
        int(found[1], 8) for line in made if (found := re.search(r"(?:O_CREAT[^,]*|mkdir(?:at)?\([^)]*|chmod\([^)]*), (0\d+)\)", line))
    ]
    assert len(modes) >= 5, made
    assert not [line for line, bits in zip(made, modes, strict=False) if bits & 0o077], made
    for path in [home, *home.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
