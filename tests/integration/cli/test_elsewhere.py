"""What is told of files whose contents are not on this device."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cli.conftest import APP, CommandLine


def test_a_restored_home_says_that_a_backup_carries_no_files_and_where_they_lie(p2p: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("hello")
    one, two = (p2p("enqueue", task, "-f", f"source={source}").id for task in ("copy", "split"))
    p2p("run", str(APP), "--burst", "-q")
    hints = p2p("result", two).err
    assert hints.count("save them with") == 1
    assert "-o FOLDER/" in hints
    p2p("backup", str(tmp_path / "copy"))
    again = CommandLine(tmp_path / "again", dict(p2p.environment))
    told = again("restore", str(tmp_path / "copy"), "--label", "attic").err
    assert "a backup carries no files" in told
    assert "author" not in told
    for job_id in (one, two):
        assert "it lies on box, which made it" in again("result", job_id, "-o", str(tmp_path / "out"), check=1).err


def test_a_backup_into_no_folder_names_the_folder(p2p: CommandLine, tmp_path: Path) -> None:
    assert f"there is no folder {tmp_path / 'none'}\n" in p2p("backup", str(tmp_path / "none" / "copy"), check=3).err
