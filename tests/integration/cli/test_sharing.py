"""Files and folders without a job: shared on one device, got on another, listed, kept, checked and let go."""

from __future__ import annotations

import filecmp
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.conftest import CommandLine, as_nobody
from tests.integration.cli.test_pairing import invited
from tests.integration.cli.test_pairing_by_node import online, wait_until
from tests.integration.cli.test_twin import NET

MIB = 1024**2

Two = tuple[CommandLine, CommandLine]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of small files, a larger one, a program and an empty folder."""
    base = tmp_path / "drawings"
    for number in range(40):
        path = base / f"set {number % 3}" / f"{number}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(500 + number * 50))
    (base / "large.bin").write_bytes(os.urandom(2 * MIB + 3))
    (base / "run.sh").write_text("#!/bin/sh\n")
    (base / "run.sh").chmod(0o755)
    (base / "empty").mkdir()
    return base


@pytest.fixture
def two(p2p: CommandLine) -> Iterator[tuple[CommandLine, CommandLine]]:
    """Two linked devices whose nodes run; the second has a folder of its own to work in."""
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    with other.node(*NET, "--no-work", app=None) as node, p2p.node(*NET, "--no-work", "--peer", node.ready["addresses"][0], app=None):
        wait_until(lambda: online(other) == {"box": True, "laptop": True})
        yield p2p, other


def assert_same(one: Path, other: Path) -> None:
    """Fails where two folders differ in a name, a content, or in what can be executed."""
    compared = filecmp.dircmp(one, other, ignore=[])
    assert (compared.left_only, compared.right_only, compared.funny_files) == ([], [], [])
    assert filecmp.cmpfiles(one, other, compared.common_files, shallow=False)[1:] == ([], [])
    for name in compared.common_files:
        assert os.access(one / name, os.X_OK) == os.access(other / name, os.X_OK)
    for name in compared.common_dirs:
        assert_same(one / name, other / name)


def test_a_folder_is_shared_and_got_on_one_device_without_a_node(p2p: CommandLine, folder: Path, tmp_path: Path) -> None:
    told = p2p("share", str(folder), "--json").json
    assert (told["name"], told["kind"], told["left_out"]) == ("drawings", "folder", [])
    got = p2p("get", told["manifest"], "-o", str(tmp_path / "out"), "--json").json
    assert got["saved"] == [str(tmp_path / "out")]
    assert_same(folder, tmp_path / "out")
    assert p2p("share", str(folder)).out.strip() == told["manifest"]


def test_files_and_folders_come_from_a_linked_device_and_are_served_on(two: Two, folder: Path, tmp_path: Path) -> None:
    box, laptop = two
    manifest = box("share", str(folder), "--copy").out.strip()
    got = laptop("get", manifest, "-o", f"{tmp_path / 'there'}{os.sep}", "--json").json
    assert got["saved"] == [str(tmp_path / "there" / "drawings")]
    assert sum(size for _, _, size in got["received"]) > 2 * MIB
    assert_same(folder, tmp_path / "there" / "drawings")
    (held,) = (each for each in laptop("files", "--json").json["files"] if each["manifest"] == manifest)
    assert (held["where"], held["in_home"], held["fetched"], held["state"]) == (got["saved"][0], False, True, "here")
    assert not list((laptop.home / "outputs").iterdir()), "it was moved, not copied"
    box("files", "evict", "drawings", "--force")
    assert box("get", manifest, "-o", str(tmp_path / "back"), "--json").json["received"], "it comes from where it was got to"
    assert_same(folder, tmp_path / "back")


def test_several_paths_are_shared_as_one(two: Two, folder: Path, tmp_path: Path) -> None:
    box, laptop = two
    note, same = tmp_path / "note.txt", tmp_path / "again" / "note.txt"
    same.parent.mkdir()
    note.write_text("one")
    same.write_text("two")
    manifest = box("share", str(folder), str(note), str(same)).out.strip()
    laptop("get", manifest, "-o", str(tmp_path / "all"))
    assert sorted(os.listdir(tmp_path / "all")) == ["drawings", "note.txt", "note.txt (2)"]
    assert_same(folder, tmp_path / "all" / "drawings")
    assert (tmp_path / "all" / "note.txt (2)").read_text() == "two"


def test_an_empty_file_and_one_of_just_a_chunk_arrive(two: Two, tmp_path: Path) -> None:
    box, laptop = two
    for size in (0, MIB):
        source = tmp_path / f"{size}.bin"
        source.write_bytes(os.urandom(size))
        laptop("get", box("share", str(source)).out.strip(), "-o", str(tmp_path / f"{size}.out"))
        assert (tmp_path / f"{size}.out").read_bytes() == source.read_bytes()


def test_one_file_goes_to_stdout_and_a_folder_does_not(p2p: CommandLine, folder: Path) -> None:
    assert p2p("get", p2p("share", str(folder / "run.sh")).out.strip(), "-o", "-").out == "#!/bin/sh\n"
    assert "can't go to stdout" in p2p("get", p2p("share", str(folder)).out.strip(), "-o", "-", check=2).err


def test_a_name_that_somebody_else_chose_replaces_nothing(p2p: CommandLine, folder: Path, tmp_path: Path) -> None:
    manifest = p2p("share", str(folder / "run.sh")).out.strip()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "run.sh").write_text("mine")
    assert "is there already" in p2p("get", manifest, "-o", str(tmp_path / "here"), check=1).err
    assert (tmp_path / "here" / "run.sh").read_text() == "mine"
    p2p("get", manifest, "-o", str(tmp_path / "here" / "run.sh"), "--force")
    assert (tmp_path / "here" / "run.sh").read_text() == "#!/bin/sh\n"


def test_what_cannot_be_had_says_why(p2p: CommandLine, folder: Path, tmp_path: Path) -> None:
    other = CommandLine(tmp_path / "another")
    other("init", "-q")
    manifest = other("share", str(folder)).out.strip()
    assert "no node runs here" in p2p("get", manifest, check=4).err
    assert "no manifest" in p2p("get", "hello", check=1).err
    assert "mistyped" in p2p("get", manifest[:-3] + "aaa", check=1).err
    assert str(tmp_path / "nothing") in p2p("share", str(tmp_path / "nothing"), check=3).err


def test_an_unreadable_file_is_named_and_nothing_is_shared(nobodys: CommandLine) -> None:
    nobodys.home.parent.joinpath("drawings").mkdir(mode=0o755)
    secret = nobodys.home.parent / "drawings" / "secret.txt"
    secret.write_text("hidden")
    secret.chmod(0o600)
    as_nobody(nobodys, "init", "-q")
    for path in (secret, secret.parent):
        outcome = as_nobody(nobodys, "share", str(path))
        assert (outcome.code, outcome.out) == (1, ""), outcome
        assert "secret.txt can't be read" in outcome.err
    assert as_nobody(nobodys, "files", "--json").json["files"] == []


def test_links_that_lead_nowhere_are_left_out_and_told(p2p: CommandLine, folder: Path) -> None:
    os.symlink("gone", folder / "dangling")
    told = p2p("share", str(folder), "--json")
    assert told.json["left_out"] == [f"{folder / 'dangling'} is a link that leads nowhere"]
    assert "left out" in told.err


def test_files_lists_who_keeps_what(p2p: CommandLine, folder: Path, tmp_path: Path) -> None:
    manifest = p2p("share", str(folder)).out.strip()
    job = p2p("enqueue", "copy", "-f", f"source={folder / 'run.sh'}").id
    by_name = {each["name"]: each for each in p2p("files", "--json").json["files"]}
    assert (by_name["drawings"]["shared"], by_name["drawings"]["jobs"], by_name["drawings"]["kind"]) == (True, [], "folder")
    assert (by_name["run.sh"]["shared"], by_name["run.sh"]["jobs"]) == (False, [job])
    table = p2p("files").out
    assert "drawings/" in table
    assert job[:13] in table
    assert manifest[:18] in table


def test_a_pinned_file_outlives_its_job_and_an_evict(p2p: CommandLine, folder: Path) -> None:
    job = p2p("enqueue", "copy", "-f", f"source={folder / 'large.bin'}").id
    p2p("files", "pin", "large.bin")
    p2p("cancel", job)
    p2p("delete", job, "--yes")
    p2p("prune")
    assert "it is pinned" in p2p("files", "evict", "large.bin", check=1).err
    (held,) = p2p("files", "--json").json["files"]
    assert (held["pinned"], held["state"], held["jobs"]) == (True, "here", [])
    p2p("files", "unpin", "large.bin")
    assert "no other copy is known" in p2p("files", "evict", "large.bin", check=1).err
    assert p2p("files", "evict", "large.bin", "--force", "--json").json["freed"] > 2 * MIB
    assert p2p("files", "--json").json["files"] == []
    assert "has the manifest or name" in p2p("files", "pin", "large.bin", check=3).err


def test_what_came_from_elsewhere_may_go_to_make_room(two: Two, tmp_path: Path) -> None:
    box, laptop = two
    manifests = []
    for number in range(3):
        source = tmp_path / f"{number}.bin"
        source.write_bytes(os.urandom(MIB))
        manifests.append(box("share", str(source)).out.strip())
        laptop("get", manifests[-1], "-o", "-" if number else str(tmp_path / "got.bin"))
    laptop("files", "pin", "2.bin")
    told = laptop("files", "evict", "--to", "1100000", "--json").json
    assert told["evicted"] == [manifests[1]]
    assert told["freed"] >= MIB
    assert (tmp_path / "got.bin").stat().st_size == MIB
    assert box("files", "evict", "--to", "0", check=1).err.count("stays") == 3


def test_a_transfer_that_stands_still_is_listed_with_its_reason(two: Two, tmp_path: Path) -> None:
    box, laptop = two
    source = tmp_path / "large.bin"
    source.write_bytes(os.urandom(5 * MIB))
    manifest = box("share", str(source), "--copy").out.strip()
    for shard in (box.home / "shards").iterdir():
        shard.unlink()
    watching = laptop.start("files", "--watch", "--json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline()) == {"schema": 1, "transfers": []}
    getting = laptop.start("get", manifest, "-o", str(tmp_path / "out"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    looks = (json.loads(line)["transfers"] for line in watching.stdout)
    assert next(look for look in looks if look and look[0]["size"])[0]["name"] == "large.bin"
    assert getting.wait(30) == 1
    (told,) = laptop("files", "--json").json["transfers"]
    assert (told["root"], told["eta"]) == (manifest, None)
    assert (told["failed"], told["rate"], {each["label"] for each in told["sources"]}) == (True, 0.0, {"box"})
    assert "no device that is linked has all of large.bin" in told["why"]
    shown = laptop("files").out
    assert "failed: no device" in shown
    assert "stands still" not in shown
    watching.terminate()
    watching.communicate()


@pytest.mark.timeout(150)
def test_a_folder_goes_on_after_its_node_was_killed(p2p: CommandLine, tmp_path: Path) -> None:
    laptop = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        laptop("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    folder = tmp_path / "photos"
    for number in range(150):
        path = folder / f"{number % 9}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    manifest = p2p("share", str(folder)).out.strip()
    laptop("config", "set", "rate", "5MB")
    with p2p.node(*NET, "--no-work", app=None) as node:
        peer = ("--peer", node.ready["addresses"][0])
        with laptop.node(*NET, "--no-work", *peer, app=None) as killed:
            wait_until(lambda: online(laptop) == {"box": True, "laptop": True})
            getting = laptop.start("get", manifest, "-o", str(tmp_path / "out"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: verified(laptop) > 6_000_000)
            before = verified(laptop)
            killed.stop(signal.SIGKILL)
            assert getting.wait(30) == 1
        assert not (tmp_path / "out").exists()
        with laptop.node(*NET, "--no-work", *peer, app=None):
            wait_until(lambda: online(laptop) == {"box": True, "laptop": True})
            got = laptop("get", manifest, "-o", str(tmp_path / "out"), "--json").json
    assert sum(size for _, _, size in got["received"]) < 15_000_000 - before + 3 * MIB
    assert_same(folder, tmp_path / "out")


def verified(device: CommandLine) -> int:
    """How many bytes are here of what is being fetched."""
    return sum(each["verified"] for each in device("files", "--json").json["transfers"])


def test_what_a_job_waits_for_is_seen_while_its_input_is_fetched(p2p: CommandLine, tmp_path: Path) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    source = tmp_path / "input.bin"
    source.write_bytes(os.urandom(30 * MIB))
    other("config", "set", "rate", "10MB")
    with other.node(*NET) as node, p2p.node(*NET, "--no-work", "--peer", node.ready["addresses"][0], app=None):
        wait_until(lambda: online(other) == {"box": True, "laptop": True})
        job = p2p("enqueue", "copy", "-f", f"source={source}").id
        steps = [json.loads(line) for line in other("watch", job, "--json").out.splitlines()]
    assert steps[-1]["status"] == "succeeded"
    assert any("fetching its input" in (step["phase"] or "") for step in steps)


def test_several_that_were_shared_as_one_go_as_one(p2p: CommandLine, folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("hello")
    manifest = p2p("share", str(folder), str(note)).out.strip()
    assert "together with others" in p2p("files", "evict", "note.txt", check=1).err
    assert "no other copy is known" in p2p("files", "evict", manifest, check=1).err
    assert p2p("files", "evict", manifest, "--force", "--json").json["freed"] > 2 * MIB
    assert p2p("files", "--json").json["files"] == []


def test_verify_finds_a_rotten_copy_drops_it_and_gets_a_sound_one(two: Two, folder: Path, tmp_path: Path) -> None:
    box, laptop = two
    manifest = box("share", str(folder)).out.strip()
    laptop("get", manifest, "-o", str(tmp_path / "out"))
    assert "0 damaged" in box("files", "verify").out
    shard = max((box.home / "shards").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(shard.read_bytes())
    data[1000] ^= 1
    shard.write_bytes(data)
    folder.rename(tmp_path / "put away")
    told = box("files", "verify", "--json", check=1).json
    assert [(each["name"], each["mended"]) for each in told["damaged"]] == [("drawings", False)]
    assert not shard.exists()
    assert "; mended" in box("files", "verify", "drawings", "--refetch").out
    assert "0 damaged" in box("files", "verify").out
    box("get", manifest, "-o", str(tmp_path / "again"))
    assert_same(tmp_path / "put away", tmp_path / "again")


def test_verify_finds_a_file_that_rotted_though_it_looks_as_it_was(two: Two, folder: Path, tmp_path: Path) -> None:
    box, laptop = two
    manifest = box("share", str(folder)).out.strip()
    laptop("get", manifest, "-o", str(tmp_path / "out"))
    rotten = tmp_path / "out" / "large.bin"
    told = rotten.stat()
    with rotten.open("r+b") as file:
        file.seek(MIB + 77)
        file.write(b"rot")
    os.utime(rotten, ns=(told.st_atime_ns, told.st_mtime_ns))
    told = laptop("files", "verify", "--refetch").out
    assert f"; a sound copy is in the home, {tmp_path / 'out'} was left as it was" in told
    assert "0 damaged" in laptop("files", "verify").out
    assert rotten.exists(), "what is the user's own is left alone"
    laptop("get", manifest, "-o", str(tmp_path / "again"))
    assert_same(folder, tmp_path / "again")


def test_verify_tells_of_an_original_that_changed(p2p: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "large.bin"
    with source.open("wb") as file:
        file.truncate(65 * MIB)
    p2p("share", str(source))
    assert "0 damaged" in p2p("files", "verify").out
    with source.open("r+b") as file:
        file.write(b"changed")
    assert "changed since" in p2p("files", "verify", check=1).out
    assert source.exists()
