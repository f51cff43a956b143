"""Homes that can't be written, that are damaged, or that a newer version wrote: a clear word, and reading goes on where it can."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from p2pqueue.jobs.deferring import Deferrer
from p2pqueue.jobs.opening import KNOWN_VERSION
from p2pqueue.replica.file.migrations import VERSION
from tests.integration.cli.conftest import APP, CommandLine, argv, as_nobody, ids
from tests.unit.jobs.desk import new_job


@pytest.mark.root
def test_a_home_that_can_not_be_written_can_still_be_read(nobodys: CommandLine) -> None:
    assert as_nobody(nobodys, "init", "-q").code == 0
    job_id = as_nobody(nobodys, "enqueue", "later").id
    nobodys.home.chmod(0o500)
    assert ids(as_nobody(nobodys, "list", "--json")) == [job_id]
    assert as_nobody(nobodys, "show", job_id, "--json").json["status"] == "queued"
    for words in (["enqueue", "t"], ["cancel", job_id], ["run"], ["config", "set", "slots", "2"], ["prune"], ["doctor"]):
        refused = as_nobody(nobodys, *words)
        assert refused.code == 1, (words, refused)
        assert "can't be written" in refused.err + refused.out
        assert "internal error" not in refused.err


@pytest.mark.root
def test_another_users_home_is_refused_in_words(p2p: CommandLine) -> None:
    for words in (
        ["list"],
        ["status"],
        ["enqueue", "t"],
        ["cancel", "--all", "--yes"],
        ["init"],
        ["run"],
        ["doctor"],
        ["backup", "/tmp/b"],
    ):
        done = as_nobody(p2p, *words)
        assert done.code == 1, (words, done)
        assert "internal error" not in done.err


def test_a_damaged_database_is_told_with_the_mend(p2p: CommandLine) -> None:
    for side in ("replica.sqlite-wal", "replica.sqlite-shm"):
        (p2p.home / side).unlink(missing_ok=True)
    (p2p.home / "replica.sqlite").write_bytes(b"not a database, not at all" * 100)
    for words in (("list",), ("enqueue", "t"), ("show", "x"), ("run", str(APP)), ("doctor",)):
        refused = p2p(*words, check=1)
        assert "doctor" in refused.err or "restore" in refused.out


def test_a_database_whose_schema_is_no_text_any_more_is_told_as_damaged(p2p: CommandLine) -> None:
    p2p("enqueue", "later")
    for side in ("replica.sqlite-wal", "replica.sqlite-shm"):
        (p2p.home / side).unlink(missing_ok=True)
    database = p2p.home / "replica.sqlite"
    database.write_bytes(database.read_bytes().replace(b"STRICT", b"STR\xbaCT"))
    for words in (("list",), ("enqueue", "t"), ("run", str(APP)), ("doctor",)):
        refused = p2p(*words, check=1)
        assert "is damaged" in refused.err + refused.out
        assert "Traceback" not in refused.err


def test_what_was_enqueued_and_cant_be_read_any_more_is_told_by_the_doctor(p2p: CommandLine) -> None:
    job_id = p2p("enqueue", "later").id
    with closing(sqlite3.connect(p2p.home / "replica.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS deferred (id INTEGER PRIMARY KEY, change BLOB NOT NULL, problem TEXT)")
        connection.execute("INSERT INTO deferred (change) VALUES (x'c1')")
    assert ids(p2p("list", "--json")) == [job_id]
    told = p2p("doctor", check=1).out
    assert "1 job that a program enqueued can't be read by this version" in told


def test_what_an_earlier_version_could_not_read_is_a_job_after_an_upgrade(p2p: CommandLine) -> None:
    p2p("enqueue", "later")
    device = p2p("status", "--json").json["device"]
    change, waiting = Deferrer(device, lambda: 1_700_000_000_000).defer(new_job("later"))
    with closing(sqlite3.connect(p2p.home / "replica.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS deferred (id INTEGER PRIMARY KEY, change BLOB NOT NULL, problem TEXT)")
        connection.execute("INSERT INTO deferred (change, problem) VALUES (?, 'p2pqueue 0.0.9: a form that is not known here')", (change,))
    assert waiting.id in ids(p2p("list", "--json"))
    assert "1 job that a program enqueued" not in p2p("doctor", check=None).out


def test_damaged_or_missing_keys_never_become_new_ones(p2p: CommandLine, tmp_path: Path) -> None:
    job_id = p2p("enqueue", "later").id
    p2p("backup", str(tmp_path / "backup"))
    identity = p2p.home / "identity"
    kept = identity.read_bytes()
    for damaged in (kept[:-10], b"", b"\xff" * len(kept)):
        identity.write_bytes(damaged)
        for words in (("enqueue", "t"), ("status",), ("run", str(APP)), ("init",), ("backup", str(tmp_path / "other"))):
            refused = p2p(*words, check=1)
            assert "internal error" not in refused.err
        assert identity.read_bytes() == damaged
        assert "wrong" in p2p("doctor", check=1).out
    identity.unlink()
    for words in (("list",), ("enqueue", "t"), ("doctor",)):
        refused = p2p(*words, check=1)
        assert "put the file back" in refused.err + refused.out
        assert "p2pqueue init" not in refused.err + refused.out
    p2p("init", check=1)
    identity.write_bytes(kept)
    assert ids(p2p("list", "--json")) == [job_id]


def test_an_interrupted_init_can_be_finished(p2p: CommandLine) -> None:
    device = p2p("status", "--json").json["device"]
    for path in p2p.home.glob("replica.*"):
        path.unlink()
    assert "p2pqueue init" in p2p("list", check=1).err
    assert p2p("init", "--json").json["device"] == device
    assert p2p("list", "--json").json["jobs"] == []


def test_a_newer_database_is_refused_in_words(p2p: CommandLine) -> None:
    assert KNOWN_VERSION == VERSION
    with closing(sqlite3.connect(p2p.home / "replica.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")
    for words in (("list",), ("enqueue", "t"), ("run", str(APP)), ("status",)):
        assert "upgrade" in p2p(*words, check=1).err


def test_closed_streams_and_few_descriptors_are_borne(p2p: CommandLine) -> None:
    environment = {**os.environ, "P2PQUEUE_HOME": str(p2p.home)}

    def shell(script: str) -> int:
        command = ["bash", "-c", script, *argv(())]
        return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode

    assert shell('exec "$0" "$@" enqueue later >&- 2>&- <&-') == 0
    assert shell('exec "$0" "$@" list >&-') == 0
    assert [job["task"] for job in p2p("list", "--json").json["jobs"]] == ["later"]
    assert shell(f'ulimit -n 64; exec "$0" "$@" run {APP} --burst --slots 1 >&-') == 0
    assert "sound" in p2p("doctor").out


def test_the_doctor_tells_whether_a_node_runs(p2p: CommandLine) -> None:
    with p2p.node() as node:
        assert p2p("doctor", "--json").json["ok"]
        assert node.stop() == 0
    told = p2p("doctor", "--json").json
    assert told["ok"]
    assert [check["verdict"] for check in told["checks"] if check["check"] == "node"] == ["warning"]


@pytest.mark.parametrize(("reserve", "verdict"), [("1", "ok"), ("900GB", "warning")])
def test_the_doctor_calls_a_disk_short_where_less_is_free_than_the_setting_reserves(
    p2p: CommandLine, reserve: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 10_000_000_000_000  # bytes; at most a twentieth is reserved
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=total, free=400_000_000))
    p2p("config", "set", "reserve", reserve)
    told = p2p("doctor", "--json", check=None).json
    assert [check["verdict"] for check in told["checks"] if check["check"] == "disk"] == [verdict]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root")
def test_root_leaves_nothing_in_another_users_folder(p2p: CommandLine) -> None:
    """A `sudo p2pqueue init` made a home that its user could not open."""
    users = p2p.home.parent / "users"
    users.mkdir()
    shutil.chown(users, "nobody")
    for words in (("init",), ("config", "set", "slots", "2"), ("join", "7-orbit-velvet", "--peer", "127.0.0.1:1")):
        refused = CommandLine(users / "home" / "p2pqueue", p2p.environment)(*words, check=1)
        assert f"{users} belongs to nobody, and this is root" in refused.err
        assert "sudo -u nobody p2pqueue" in refused.err
        assert list(users.iterdir()) == []
    p2p("enqueue", "later")
    for path in (p2p.home, *p2p.home.rglob("*")):
        shutil.chown(path, "nobody")
    for words in (("enqueue", "later"), ("run", "--no-work", "--burst"), ("config", "set", "slots", "2"), ("cancel", "--all", "--yes")):
        assert f"{p2p.home} belongs to nobody, and this is root" in p2p(*words, check=1).err, words
    assert {path.owner() for path in p2p.home.rglob("*")} == {"nobody"}  # SQLite gives its files beside the database to its owner
