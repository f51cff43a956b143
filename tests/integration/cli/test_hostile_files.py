"""Files of a device that means harm, as who gets them on the command line meets them: claims, names and paths of its own choice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.home import Home
from p2pqueue.payload.format import LARGEST_FILE, PART_SIZE, REFERENCE_SIZE
from p2pqueue.payload.manifest import FileManifest, PartedManifest, encode
from p2pqueue.payload.shelf import Shelf
from p2pqueue.wire import pack, unpack
from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_sharing import Two
from tests.integration.cli.test_sharing import two as two
from tests.unit.payload.test_hostile_folders import HASH, MIB, WORDS, Forger, file

STEERING = "\x1b", "\x07", "\u202e", "\r"


@pytest.fixture
def forger(p2p: CommandLine) -> Iterator[Forger]:
    """It puts what it makes on the shelf of the first device, whose node serves it to the other."""
    shelf = Shelf(Home(p2p.home), bytes(32), quota=100 * MIB, reserve=0)
    yield Forger(shelf)
    shelf.close()


def below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.is_dir()}


def test_a_path_that_leads_elsewhere_is_refused_in_plain_words(two: Two, forger: Forger, tmp_path: Path) -> None:
    """S11: up, from the root, through a link, with an escape before it."""
    laptop = two[1]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    link = ["way", 3, str(tmp_path / "elsewhere")]
    pages = [forger.page(file(path)) for path in ("../evil", f"{tmp_path}/evil", "a/../../evil", "\x1b[2K/../evil", "a\0b")]
    for page in (*pages, forger.page(link, file("way/evil"))):
        told = laptop("get", forger.tree(page, size=len(WORDS), count=1), "-o", f"{tmp_path / 'out'}{os.sep}", check=None)
        assert (told.code, told.out) == (1, "")
        assert "folder" in told.err
        assert "no device" not in told.err
        assert not any(each in told.err for each in STEERING)
    (tmp_path / "out" / "folder").symlink_to(tmp_path / "elsewhere")
    laptop("get", forger.tree(forger.page(file("evil"))), "-o", f"{tmp_path / 'out'}{os.sep}", check=None)
    assert not [path for path in tmp_path.rglob("*evil*") if not path.is_relative_to(laptop.home)]


def test_an_odd_name_stays_in_the_folder_and_steers_no_terminal(two: Two, forger: Forger, tmp_path: Path) -> None:
    """S11"""
    laptop = two[1]
    for number, name in enumerate(("..\\evil", "\x1b[2Kgone", "gpj.\u202eexe", "bell\x07", "two\nlines", "over\rwritten")):
        folder = forger.tree(forger.page(file(name)), name=name)
        single = forger.capability(encode(FileManifest(name, "", len(WORDS), HASH, forger.sealer.algorithm, forger.seal(WORDS)))).text
        out = tmp_path / f"out{number}"
        out.mkdir()
        said = [laptop("get", folder, "-o", f"{out}{os.sep}"), laptop("get", single, "-o", f"{out}{os.sep}", check=None)]
        assert all(path.read_bytes() == WORDS for path in below(out)), below(out)
        assert below(out)
        for told in (*said, laptop("files")):
            assert not any(each in told.out + told.err for each in STEERING)
    assert not (tmp_path / "evil").exists()


def test_a_claim_that_can_not_be_true_is_refused_in_words_and_the_next_file_comes(two: Two, forger: Forger, tmp_path: Path) -> None:
    """S13: of 10^15 bytes, of more, and of 16 TiB whose references are one and the same shard again and again."""
    box, laptop = two
    honest = FileManifest("huge", "", len(WORDS), HASH, forger.sealer.algorithm, forger.seal(WORDS))
    head = FileManifest("huge", "", LARGEST_FILE, HASH, forger.sealer.algorithm, b"")
    parts = PartedManifest(head, forger.seal(bytes(PART_SIZE)) * -(-head.chunk_count * REFERENCE_SIZE // PART_SIZE))
    claims = [pack({**unpack(encode(honest)), "size": size}) for size in (10**15, 2**64 - 1)]
    for data, words in ((claims[0], "size"), (claims[1], "size"), (encode(parts), "No space left")):
        told = laptop("get", forger.capability(data).text, "-o", str(tmp_path / "out"), check=None)
        assert (told.code not in (0, 70), told.out) == (True, "")
        assert words in told.err
        assert not (tmp_path / "out").exists()
    laptop("get", box("share", __file__).out.strip(), "-o", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == Path(__file__).read_bytes()


def test_a_file_of_any_size_is_the_input_and_the_output_of_a_job(p2p: CommandLine, tmp_path: Path) -> None:
    """P01, P03: empty ones hold up none of those that follow."""
    jobs = {}
    with p2p.node():
        for size in (0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB):
            path = tmp_path / f"{size}.bin"
            path.write_bytes(os.urandom(size))
            jobs[p2p("enqueue", "copy", "-f", f"source={path}").id] = path
        p2p("watch", *jobs)
        for job, path in jobs.items():
            p2p("result", job, "-o", str(tmp_path / "out.bin"))
            assert (tmp_path / "out.bin").read_bytes() == path.read_bytes()
            (tmp_path / "out.bin").unlink()
