"""What do `status`, `share`, `limit`, `files` and a fetch that waits tell of files?"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_pairing import invited
from tests.integration.cli.test_pairing_by_node import wait_until
from tests.integration.cli.test_sharing import MIB, Two, folder, two, verified
from tests.integration.cli.test_twin import NET

__all__ = ["folder", "two"]


def test_share_tells_how_many_files_a_folder_has(p2p: CommandLine, folder: Path) -> None:
    told = p2p("share", str(folder))
    assert "42 files) is kept sealed" in told.err
    assert p2p("share", str(folder), "--json").json["files"][0]["count"] == 42
    assert p2p("share", str(folder / "run.sh"), "--json").json["files"][0]["count"] == 1


def test_a_rate_may_have_one_letter_and_what_it_cannot_have_is_told(p2p: CommandLine) -> None:
    assert p2p("limit", "500k", "--json").json["limits"]["rate"] == 500_000
    assert p2p("limit", "1.5m", "--json").json["limits"]["rate"] == 1_500_000
    assert "500k, 2MB" in p2p("limit", "fast", check=2).err


def test_status_tells_of_metered_interfaces_only_where_some_are_named(p2p: CommandLine) -> None:
    p2p("config", "set", "metered", "wwan0")
    p2p("limit", "--metered")
    assert "interfaces are used" in p2p("status").out
    p2p("config", "unset", "metered")
    assert "interfaces are used" not in p2p("status").out


def test_status_tells_of_an_origin_that_works(p2p: CommandLine, tmp_path: Path) -> None:
    process = p2p.start("origin", "--store", str(tmp_path / "store"), "--listen", "127.0.0.1:0", "--json")
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with CommandLine(p2p.home, {**p2p.environment, "P2PQUEUE_ORIGIN": url}).node(*NET, "--no-work", app=None):
            wait_until(lambda: "mail looked at" in p2p("status").out)
            shown = p2p("status").out
    finally:
        process.terminate()
        process.communicate()
    host = url.partition("@")[2].partition("/")[0]
    assert host in next(line for line in shown.splitlines() if line.startswith("Origin"))


def test_a_fetch_waits_while_its_giver_is_paused_and_goes_on(two: Two, tmp_path: Path) -> None:
    box, laptop = two
    source = tmp_path / "large.bin"
    source.write_bytes(os.urandom(12 * MIB))
    manifest = box("share", str(source)).out.strip()
    box("limit", "2MB", "--pause", "all")
    getting = laptop.start("get", manifest, "-o", str(tmp_path / "out.bin"), stdout=subprocess.DEVNULL)
    wait_until(lambda: "transfers are paused on box" in laptop("files").out)  # its manifest can't be had
    time.sleep(7)  # longer than a fetch waits for what nobody has
    box("limit", "--resume", "all")
    wait_until(lambda: verified(laptop) > MIB)
    box("limit", "--pause", "laptop")
    wait_until(lambda: "transfers are paused on box" in laptop("files").out)
    (told,) = laptop("files", "--json").json["transfers"]
    assert (told["rate"], told["eta"], told["failed"]) == (0.0, None, False)
    time.sleep(7)
    box("limit", "none", "--resume", "all")
    assert "Traceback" not in getting.communicate(timeout=60)[1]
    assert getting.returncode == 0
    assert (tmp_path / "out.bin").read_bytes() == source.read_bytes()


def test_what_is_asked_for_in_the_first_moment_of_a_node_is_waited_for(p2p: CommandLine, tmp_path: Path) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    source = tmp_path / "note.txt"
    source.write_text("hello")
    manifest = p2p("share", str(source)).out.strip()
    node = other.start("run", *NET, "--no-work", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        began, outcome = time.monotonic(), other("get", manifest, check=None)
        while outcome.code == 4:  # no node runs yet
            began, outcome = time.monotonic(), other("get", manifest, check=None)
        assert time.monotonic() - began >= 6, outcome
        assert "no device is linked, and no origin is set; start the node of a device that has it" in outcome.err
    finally:
        node.terminate()
        node.communicate()
