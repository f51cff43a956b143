from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from p2pqueue.workers.children.protocol import Succeeded
from tests.integration.children.stage import Stage, living

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_all_output_goes_to_the_log_of_the_attempt_in_its_order(stage: Stage) -> None:
    await stage.run("say_everywhere", "this")
    assert stage.log("this").splitlines() == [
        "from print",
        "from stderr",
        "from the descriptor",
        "from a program",
        "from the log 1",
        "from a program of the job",
    ]


async def test_a_log_is_private_and_only_there_where_something_was_said(stage: Stage) -> None:
    await stage.run("say", "this", words="hello")
    await stage.run("echo", "quiet")
    assert (stage.folder / "logs" / "this.log").stat().st_mode & 0o777 == 0o600
    assert not (stage.folder / "logs" / "quiet.log").exists()


async def test_output_of_one_attempt_never_shows_in_the_next(stage: Stage) -> None:
    for number in range(5):
        await stage.run("say", f"number-{number}", words=str(number), file="stderr")
    assert [stage.log(f"number-{number}") for number in range(5)] == [f"{number}\n" for number in range(5)]


async def test_text_that_can_not_be_encoded_is_no_reason_to_fail(stage: Stage) -> None:
    assert isinstance(await stage.run("say_surrogate", "this"), Succeeded)
    assert stage.log("this") == "\\udcff\n"


async def test_a_hundred_megabytes_of_output_leave_a_capped_log_and_a_slim_node(stage: Stage) -> None:
    before, begin = _memory(), time.monotonic()
    outcome = await stage.run("chatter", "this", megabytes=100)
    assert isinstance(outcome, Succeeded)
    assert time.monotonic() - begin < 20
    assert _memory() - before < 20 << 20
    log = stage.log("this")
    assert len(log) <= 10 << 20
    assert log.startswith("x" * 99)
    assert "bytes left out here" in log
    assert log.endswith("the end\n")


async def test_a_log_that_can_not_be_written_is_no_reason_to_fail(stage: Stage) -> None:
    (stage.folder / "logs").write_text("in the way")
    assert isinstance(await stage.run("say", words="hello"), Succeeded)


async def test_stdin_is_empty(stage: Stage) -> None:
    assert await stage.value("read_stdin") == ""


async def test_the_environment_carries_the_home_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PQUEUE_WORKER_KEY", "secret")
    monkeypatch.setenv("MY_OWN", "kept")
    stage = Stage(tmp_path)
    await stage.pool.start()
    found = await stage.value("environment")
    await stage.pool.close()
    assert {name for name in found if name.startswith("P2PQUEUE_")} == {"P2PQUEUE_HOME", "P2PQUEUE_CHILD"}
    assert found["P2PQUEUE_HOME"] == str(tmp_path)
    assert found["MY_OWN"] == "kept"
    assert found["PATH"] == os.environ["PATH"]
    assert found.get("PYTHONPATH") == os.environ.get("PYTHONPATH")


async def test_warmth_costs_little_memory(stage: Stage) -> None:
    await stage.value("echo", value=1)
    (pid, *_) = await stage.value("whoami")
    with open(f"/proc/{pid}/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident < 32_000_000, sys.version
    assert living(_listed(stage.folder, pid)) == [pid]


def _listed(folder: Path, pid: int) -> Path:
    note = folder / "pids"
    note.write_text(f"{pid}\n")
    return note


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
