"""Where does `get` write, what does it never replace, and what does it say before it fetches anything?"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_pairing_by_node import wait_until
from tests.integration.cli.test_sharing import MIB, Two, folder, two, verified

__all__ = ["folder", "two"]


@pytest.fixture
def shared(p2p: CommandLine, tmp_path: Path) -> str:
    """The manifest of a file that was shared here."""
    source = tmp_path / "clip.bin"
    source.write_bytes(os.urandom(100_000))
    return p2p("share", str(source)).out.strip()


def test_a_file_that_is_there_is_replaced_only_by_force(p2p: CommandLine, shared: str, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    refused = p2p("get", shared, "-o", str(thesis), check=1)
    assert f"{thesis} is there already; name another place with -o, take it away, or add --force" in refused.err
    assert thesis.read_text() == "years of work"
    p2p("get", shared, "-o", str(thesis), "--force")
    assert thesis.read_bytes() == (tmp_path / "clip.bin").read_bytes()


def test_what_is_there_already_with_that_content_is_said_so(p2p: CommandLine, shared: str, folder: Path, tmp_path: Path) -> None:
    drawings = p2p("share", str(folder)).out.strip()
    for manifest, place in ((shared, tmp_path / "out.bin"), (drawings, tmp_path / "out")):
        p2p("get", manifest, "-o", str(place))
        before = place.stat().st_mtime_ns
        again = p2p("get", manifest, "-o", str(place) if place.is_file() else f"{tmp_path / 'out'}", check=None)
        assert (again.code, again.out.strip()) == (0, str(place)), again
        assert "has exactly that content" in again.err
        assert place.stat().st_mtime_ns == before
    same_size = bytearray((tmp_path / "out.bin").read_bytes())
    same_size[5] ^= 1
    (tmp_path / "out.bin").write_bytes(same_size)
    assert "is there already" in p2p("get", shared, "-o", str(tmp_path / "out.bin"), check=1).err
    (tmp_path / "out").rename(tmp_path / "drawings 2")
    (folder / "run.sh").write_text("#!/bin/no\n")
    assert "is there already" in p2p("get", drawings, "-o", str(tmp_path), "--force", check=1).err, "folders are never mixed"


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_fetched(two: Two, tmp_path: Path) -> None:
    box, laptop = two
    source = tmp_path / "large.bin"
    source.write_bytes(os.urandom(4 * MIB))
    laptop("limit", "1MB")
    manifest = box("share", str(source)).out.strip()
    (tmp_path / "file").write_text("a file, below which nothing can be")
    refused = laptop("get", manifest, "-o", str(tmp_path / "file" / "below"), check=None)
    assert refused.code == 1, refused
    assert "can't be written" in refused.err
    (tmp_path / "taken.bin").write_bytes(b"mine")
    assert "is there already" in laptop("get", manifest, "-o", str(tmp_path / "taken.bin"), check=1).err
    assert laptop("files", "--json").json["files"] == [], "nothing was fetched for it"


def test_what_was_interrupted_is_listed_counted_and_can_be_removed(two: Two, tmp_path: Path) -> None:
    box, laptop = two
    source = tmp_path / "large.bin"
    source.write_bytes(os.urandom(12 * MIB))
    laptop("limit", "2MB")
    manifest = box("share", str(source)).out.strip()
    getting = laptop.start("get", manifest, "-o", str(tmp_path / "out.bin"))
    wait_until(lambda: verified(laptop) > MIB)
    assert "it is being fetched" in laptop("files", "evict", "large.bin", check=1).err
    getting.send_signal(signal.SIGINT)
    assert "interrupted; run it again and it goes on" in getting.communicate(timeout=30)[1]
    assert getting.returncode == 130
    wait_until(lambda: not laptop("files", "--json").json["transfers"])
    told = laptop("files", "--json").json
    (half,) = told["interrupted"]
    assert (half["manifest"], half["name"], half["size"], half["kind"]) == (manifest, "large.bin", 12 * MIB, "file")
    assert MIB < half["verified"] < 12 * MIB
    assert told["usage"]["interrupted"] >= half["verified"]
    shown = laptop("files")
    assert "of 12.6 MB  interrupted; get it again" in shown.out
    assert "half fetched" in shown.err
    assert laptop("files", "evict", "large.bin", "--json").json["freed"] > MIB
    assert laptop("files", "--json").json["interrupted"] == []
