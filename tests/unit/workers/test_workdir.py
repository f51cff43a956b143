from __future__ import annotations

import os
from pathlib import Path

import pytest

from p2pqueue.workers.running.workdir import folder_of, make, remove, sweep


def test_a_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = make(tmp_path / "work" / "one")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert make(folder) == folder


def test_a_folder_is_removed_with_all_in_it_and_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    folder = make(tmp_path / "work" / "one")
    (folder / "link").symlink_to(outside)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "file").write_text("x")
    (folder / "deep" / "er").chmod(0o500)
    (folder / "deep").chmod(0)
    assert remove(folder)
    assert not folder.exists()
    assert (outside / "precious").exists()


def test_a_folder_that_is_not_there_is_removed_already(tmp_path: Path) -> None:
    assert remove(tmp_path / "none")
    assert sweep(tmp_path / "none") == 0


def test_a_sweep_removes_whatever_earlier_attempts_left(tmp_path: Path) -> None:
    make(tmp_path / "one")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("/")
    assert sweep(tmp_path) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["0192-ab/65536/3", "../../etc", "/etc/passwd", "", "..", "a\x00b", "x" * 1000, "ä/ö"])
def test_no_key_leads_out_of_the_root(tmp_path: Path, key: str) -> None:
    folder = folder_of(tmp_path, key)
    assert folder.parent == tmp_path
    assert folder.name not in ("", ".", "..")
    make(folder)


def test_different_attempts_have_different_folders(tmp_path: Path) -> None:
    assert len({folder_of(tmp_path, key) for key in ("job/1/1", "job/1/2", "job/2/1", "other/1/1")}) == 4
