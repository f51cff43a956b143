from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from tests.integration.cli.conftest import CommandLine, as_nobody

ODD_NAMES = [
    "😀.bin".encode(),
    unicodedata.normalize("NFC", "Café.txt").encode(),
    unicodedata.normalize("NFD", "Café.txt").encode(),
    b"two\nlines",
    b"-rf",
    b"x" * 255,
    b"trailing space ",
    b"trailing dot.",
    b"con.txt",
    b"a:b",
    b"name=value=x",
    b"\xff.bin",  # no UTF-8
    b"\x1b[2Jclear",
]
LOCALE_MATTERS = {ODD_NAMES[0], ODD_NAMES[2], b"\xff.bin"}  # so these are typed to a program of their own


def test_odd_names_go_in_and_come_out_in_a_plain_locale(p2p: CommandLine, tmp_path: Path) -> None:
    p2p.environment["LC_ALL"] = "C"
    folder, saved = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    jobs: dict[str, bytes] = {}
    with p2p.node():
        for name in ODD_NAMES:
            path = os.path.join(os.fsencode(folder), name)
            with open(path, "wb") as file:
                file.write(name)
            jobs[p2p("enqueue", "copy", "-f", f"source={os.fsdecode(path)}", real=name in LOCALE_MATTERS).id] = name
        p2p("watch", *jobs)
    for job_id, name in jobs.items():
        target = saved / job_id
        p2p("result", job_id, "-o", f"{target}{os.sep}")
        [written] = os.listdir(os.fsencode(target))
        assert Path(os.fsdecode(os.path.join(os.fsencode(target), written))).read_bytes() == name
        for words in (("show", job_id), ("show", job_id, "--json")):
            told = p2p(*words)
            assert "\x1b" not in told.out
            assert "\ntwo" not in told.out
    kept = {os.fsencode(each) for target in saved.iterdir() for each in os.listdir(target)}
    assert len(kept) == len(ODD_NAMES)
    assert unicodedata.normalize("NFC", "Café.txt").encode() in kept
    assert unicodedata.normalize("NFD", "Café.txt").encode() in kept
    shown = p2p("list", real=True).out
    assert len(shown.splitlines()) == len(ODD_NAMES) + 1
    assert "\x1b" not in shown


@pytest.mark.root
def test_a_file_that_can_not_be_read_makes_no_job(nobodys: CommandLine) -> None:
    folder = nobodys.home.parent.parent
    secret = folder / "secret.txt"
    secret.write_text("not for nobody")
    secret.chmod(0o600)
    assert as_nobody(nobodys, "init", "-q").code == 0
    refused = as_nobody(nobodys, "enqueue", "copy", "-f", f"source={secret}")
    assert refused.code == 1
    assert str(secret) in refused.err
    assert refused.out == ""
    mixed = as_nobody(nobodys, "enqueue", "copy", "-f", f"source={folder}", "-f", f"other={secret}")
    assert mixed.code != 0
    assert as_nobody(nobodys, "exec", "-i", str(secret), "--", "cat", "{1}").code == 1
    assert as_nobody(nobodys, "list", "--json").json["jobs"] == []


def test_a_file_that_is_not_there_makes_no_job_and_exits_3(p2p: CommandLine, tmp_path: Path) -> None:
    missing = tmp_path / "missing.mp4"
    refused = p2p("enqueue", "copy", "-f", f"source={missing}", check=3)
    assert str(missing) in refused.err
    p2p("enqueue", "copy", "-f", "source=", check=2)
    p2p("enqueue", "copy", "-f", "source", check=2)
    p2p("enqueue", "copy", "-f", "source=p2pq1-nonsense", check=None)
    assert p2p("list", "--json").json["jobs"] == []


def test_a_file_for_a_parameter_that_is_text_a_number_or_a_switch_is_refused(p2p: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("hello")
    app = tmp_path / "plain.py"
    app.write_text("""
from p2pqueue import Queue

queue = Queue("plain")

@queue.task
def plain(text: str, count: int, part: float, on: bool) -> None: ...
""")
    with p2p.node(app=app):
        for parameter, kind in (("text", "str"), ("count", "int"), ("part", "float"), ("on", "bool")):
            told = p2p("enqueue", "plain", "-f", f"{parameter}={source}", check=2).err
            assert f"{parameter} is of the type {kind}, and takes no file" in told
    assert p2p("list", "--json").json["jobs"] == []
