from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from p2pqueue import wire
from p2pqueue.cli.app import COMMANDS, cli
from p2pqueue.home import Home
from p2pqueue.identity.keys import load
from p2pqueue.jobs import ledger
from p2pqueue.jobs.opening import open_replica
from tests.integration.cli.conftest import CommandLine, ids

JOB_KEYS = {
    "id",
    "status",
    "progress",
    "phase",
    "worker_label",
    "result",
    "result_id",
    "error",
    "queue",
    "task",
    "title",
    "created_at",
    "updated_at",
}


def test_init_makes_a_space_and_a_second_one_is_refused(empty: CommandLine) -> None:
    made = empty("init", "--space", "studio", "--label", "box", "--json").json
    assert (made["space_name"], made["label"], made["home"]) == ("studio", "box", str(empty.home))
    assert len(made["device"]) == len(made["space"]) == 32
    again = empty("init", check=1)
    assert "has a space already" in again.err
    assert again.out == ""


def test_a_home_and_its_files_are_private_under_any_umask(empty: CommandLine) -> None:
    before = os.umask(0)
    try:
        empty("init")
        empty("enqueue", "later")
    finally:
        os.umask(before)
    for path in [empty.home, *empty.home.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    "words", [("list",), ("show", "x"), ("enqueue", "t"), ("cancel", "x"), ("status",), ("run",), ("prune",), ("backup", "b")]
)
def test_without_a_space_every_command_names_init(empty: CommandLine, words: tuple[str, ...]) -> None:
    refused = empty(*words, check=1)
    assert "p2pqueue init" in refused.err
    assert not empty.home.exists()


def test_lists_have_a_schema_and_jobs_have_the_columns_of_the_table(p2p: CommandLine) -> None:
    assert p2p("list", "--json").json == {"schema": 1, "jobs": []}
    job_id = p2p("enqueue", "later", "n=1", "--title", "one", "--priority", "7").id
    listed = p2p("list", "--json").json
    assert listed["schema"] == 1
    [job] = listed["jobs"]
    assert job.keys() >= JOB_KEYS
    assert (job["id"], job["status"], job["progress"], job["title"], job["priority"]) == (job_id, "queued", 0.0, "one", 7)
    assert job["created_at"].endswith("Z")
    shown = p2p("show", job_id, "--json").json
    assert shown.keys() >= JOB_KEYS | {"attempts", "why", "args", "timeline"}
    assert (shown["args"], shown["attempts"]) == ({"n": 1}, [])
    assert "no node runs here" in shown["why"]
    enqueued = p2p("enqueue", "later", "--json").json
    assert enqueued.keys() >= JOB_KEYS


def test_jobs_are_found_by_a_unique_prefix_in_any_letter_case(p2p: CommandLine) -> None:
    first, second = p2p("enqueue", "later").id, p2p("enqueue", "later").id
    common = os.path.commonprefix([first, second])  # noqa: RUF071  character by character is meant
    unique = second[: len(common) + 1]
    assert p2p("show", unique.upper(), "--json").json["id"] == second
    assert "several jobs begin" in p2p("show", common, check=2).err
    assert "no job has the id" in p2p("show", "ffffffff", check=3).err
    assert p2p("show", "", check=3).out == ""
    assert p2p("show", "%", check=3).out == ""


def test_lists_are_filtered(p2p: CommandLine) -> None:
    one = p2p("enqueue", "red", "--queue", "a").id
    two = p2p("enqueue", "blue", "--queue", "b").id
    p2p("cancel", two)
    assert ids(p2p("list", "--json", "--task", "red")) == [one]
    assert ids(p2p("list", "--json", "--queue", "b")) == [two]
    assert ids(p2p("list", "--json", "--status", "canceled")) == [two]
    assert ids(p2p("list", "--json", "--since", "1h")) == [one, two]  # live ones first
    assert ids(p2p("list", "--json", "--since", "2099-01-01")) == []
    assert ids(p2p("list", "--json", "--limit", "1")) == [one]
    assert ids(p2p("list", "--json", "--device", "box")) == []
    assert "`p2pqueue devices` lists them" in p2p("list", "--device", "nobody", check=3).err
    assert "STATUS" in p2p("list").out
    p2p("list", "--status", "done", check=2)
    p2p("list", "--limit", "0", check=2)
    p2p("list", "--since", "yesterday", check=2)


def test_a_reader_that_goes_away_is_no_error(p2p: CommandLine) -> None:
    p2p("enqueue", "later")
    process = p2p.start("list")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_full_disk_behind_stdout_is_told(p2p: CommandLine) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        process = p2p.start("list", "--json", stdout=full)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "no space is left" in err
    assert "Traceback" not in err


def test_global_options_are_taken_before_and_after_the_command(p2p: CommandLine, tmp_path: Path) -> None:
    for words in (("--json", "list"), ("list", "--json")):
        assert p2p(*words).json["schema"] == 1
    other = str(tmp_path / "other")
    for words in (("--home", other, "init", "-q"), ("list", "--home", other), ("--home", other, "list")):
        p2p(*words)
    assert p2p("list", P2PQUEUE_JSON="1").json["schema"] == 1
    assert p2p("list", "--json", "-q").err == ""
    assert "p2pqueue" in p2p("--version", real=True).out


def test_a_home_may_be_odd(tmp_path: Path) -> None:
    odd = CommandLine(tmp_path / "Bücher? 100% #1 \n x")
    odd("init")
    odd("enqueue", "later")
    assert len(ids(odd("list", "--json"))) == 1
    assert "later" in odd("list").out


def test_every_command_has_a_line_and_examples_in_its_help(empty: CommandLine) -> None:
    with cli.make_context("p2pqueue", ["list"], resilient_parsing=True) as context:
        for name in COMMANDS:
            command = cli.get_command(context, name)
            assert command is not None
            assert command.help
            for each in getattr(command, "commands", {name: command}).values():  # a group shows the examples of its commands
                assert name == "demo" or getattr(each, "examples", ""), (name, each.name)
    told = empty("--help").out
    assert all(name in told for name in COMMANDS)
    assert "Examples" in empty("enqueue", "--help").out


ODD_CALLS = [
    (["enqueue", ""], 2),
    (["enqueue", "\udcff"], 2),  # a byte that is no UTF-8
    (["enqueue", "t", "x=\udcff"], 2),
    (["enqueue", "t", "x=" + "a" * 70_000], 2),
    (["enqueue", "t", "x=" + "9" * 40], 2),
    (["enqueue", "t", "=x"], 2),
    (["enqueue", "t", "x"], 2),
    (["enqueue", "t", "-"], 2),
    (["enqueue", "t", "--title", "a\x1b[2J"], 2),
    (["enqueue", "t", "--title", "a" * 3000], 2),
    (["enqueue", "t", "--priority", "99999999999"], 2),
    (["enqueue", "t", "--delay", "-5"], 2),
    (["enqueue", "t", "--delay", "1h", "--at", "18:30"], 2),
    (["enqueue", "t", "--timeout", "0"], 2),
    (["enqueue", "t", "--unique-key", ""], 2),
    (["enqueue", "t", "--queue", ""], 2),
    (["enqueue", "t", "--max-attempts", "0"], 2),
    (["enqueue", "t", "--wait-timeout", "5"], 2),
    (["list", "--limit", "99999999999999999999"], 2),
    (["list", "--queue", "\udcff"], 2),
    (["list", "--home", ""], 2),
    (["show", "--", "-x"], 3),
    (["show", "x" * 10_000], 3),
    (["config", "get", ""], 2),
    (["config", "set", "slots", "\udcff"], 2),
]


@pytest.mark.parametrize(
    ("words", "code"), ODD_CALLS, ids=[" ".join(words)[:40].encode("ascii", "replace").decode() for words, _ in ODD_CALLS]
)
def test_odd_calls_are_refused_in_words(odd_home: CommandLine, words: list[str], code: int) -> None:
    refused = odd_home(*words, check=code)
    assert refused.out == ""
    assert refused.err.strip()
    assert "internal error" not in refused.err
    assert len(refused.err) < 2000


@pytest.fixture(scope="module")
def odd_home(tmp_path_factory: pytest.TempPathFactory, surroundings: dict[str, str]) -> CommandLine:
    """One home for all calls that change nothing."""
    command = CommandLine(tmp_path_factory.mktemp("odd") / "home", dict(surroundings))
    command("init", "-q")
    return command


def test_a_misspelt_command_is_answered_with_the_nearest(empty: CommandLine) -> None:
    assert "Did you mean list" in empty("lst", check=2).err
    empty("run", "--lisden", "0.0.0.0:1", check=2)
    empty("list", "--nonsense", check=2)


def test_names_can_not_steer_the_terminal(p2p: CommandLine) -> None:
    evil = "evil\x1b]0;owned\x07\u202e"
    p2p("enqueue", evil, check=2)
    home = Home(p2p.home)
    replica = open_replica(home, load(home))  # as a peer may have named it
    replica.write(lambda writer: ledger.enqueue(writer, ledger.NewJob(evil, wire.pack({evil: evil}), title=evil, queue=evil)))
    replica.close()
    for words in (("list",), ("show", ids(p2p("list", "--json"))[0]), ("list", "--json")):
        told = p2p(*words)
        assert "\x1b" not in told.out + told.err
        assert "\u202e" not in told.out + told.err


def test_shells_complete_commands_ids_tasks_and_statuses(p2p: CommandLine, tmp_path: Path) -> None:
    job_id = p2p("enqueue", "later").id

    def complete(*words: str, home: Path = p2p.home) -> list[str]:
        asked = {"_P2PQUEUE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["p2pqueue", *words]), "COMP_CWORD": str(len(words))}
        return [line.removeprefix("plain,") for line in p2p(real=True, P2PQUEUE_HOME=str(home), **asked).out.splitlines() if line]

    assert complete("enq") == ["enqueue"]
    assert complete("show", job_id[:4]) == [job_id]
    assert complete("list", "--status", "r") == ["running"]
    assert complete("show", "0", home=tmp_path / "nowhere") == []
    for shell in ("bash", "zsh", "fish"):
        assert "_P2PQUEUE_COMPLETE" in p2p("completion", shell).out
    p2p("completion", "tcsh", check=2)
    assert p2p("completion", check=2).err.splitlines()[-1].endswith("Choose from: bash, zsh, fish")


def test_a_backup_becomes_a_new_device_of_the_space(p2p: CommandLine, tmp_path: Path) -> None:
    job_id = p2p("enqueue", "later").id
    path = tmp_path / "space.backup"
    assert p2p("backup", str(path), "--json").json["size"] == path.stat().st_size
    assert path.stat().st_mode & 0o077 == 0
    assert "--force" in p2p("backup", str(path), check=1).err
    p2p("backup", str(path), "--force")
    p2p("backup", str(tmp_path), check=2)
    again = CommandLine(tmp_path / "again", p2p.environment)
    restored = again("restore", str(path), "--label", "second", "--json").json
    before = p2p("status", "--json").json
    assert (restored["space"], restored["label"]) == (before["space"], "second")
    assert restored["device"] != before["device"]
    assert ids(again("list", "--json")) == [job_id]
    assert b"backup_of_keys" not in (again.home / "replica.sqlite").read_bytes()
    later = again("enqueue", "later").id
    assert set(ids(again("list", "--json"))) == {job_id, later}
    assert again("doctor", "--json").json["ok"]
    again("restore", str(path), check=1)
    third = CommandLine(tmp_path / "third", p2p.environment)
    third("restore", str(tmp_path / "missing"), check=3)
    (tmp_path / "junk").write_bytes(b"junk" * 1000)
    assert "no backup" in third("restore", str(tmp_path / "junk"), check=1).err
    assert not third.home.exists()


def test_pruning_keeps_what_is_young(p2p: CommandLine) -> None:
    p2p("cancel", p2p("enqueue", "later").id)
    assert p2p("prune", "--json").json["dropped"] == 0
    assert len(ids(p2p("list", "--json"))) == 1
    p2p("prune", "--older-than", "1h", check=2)


HEAVY = {
    "asyncio",
    "aiohttp",
    "aiortc",
    "aiosqlite",
    "av",
    "blake3",
    "click",
    "cryptography",
    "dataclasses",
    "inspect",
    "logging",
    "nacl",
    "platformdirs",
    "psutil",
    "rich",
    "zeroconf",
}


def test_a_cold_list_imports_nothing_heavy(p2p: CommandLine) -> None:
    p2p("enqueue", "later")
    program = "import sys; from p2pqueue.cli.main import call; call(['list', '--json']); print(' '.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, env={**os.environ, "P2PQUEUE_HOME": str(p2p.home)}
    )
    assert json.loads(done.stdout)["jobs"]
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert not loaded & HEAVY
