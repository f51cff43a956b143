from __future__ import annotations

import os
from pathlib import Path

import pytest

from p2pqueue.workers.children.protocol import Crashed, Succeeded
from tests.integration.children.stage import Stage, living

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("task", ["leave_background", "leave_daemon", "fork_tree"])
async def test_what_a_handler_leaves_running_is_killed_before_its_slot_is_free_and_the_child_stays_warm(stage: Stage, task: str) -> None:
    (before, *_) = await stage.value("whoami")
    extra = {"depth": 3, "wait": 0.5} if task == "fork_tree" else {}
    outcome = await stage.run(task, note=str(stage.note), **extra)
    assert isinstance(outcome, Succeeded)
    assert stage.note.read_text() != ""
    assert [pid for pid in living(stage.note) if pid != before] == []
    (after, *_) = await stage.value("whoami")
    assert after == before


async def test_a_daemon_of_a_handler_that_crashed_dies_too(stage: Stage) -> None:
    outcome = await stage.run("leave_daemon_and_crash", note=str(stage.note))
    assert isinstance(outcome, Crashed)
    assert living(stage.note) == []


async def test_a_fork_that_returns_from_the_handler_does_not_answer_in_its_place(stage: Stage) -> None:
    for _ in range(5):
        (pid, *_) = await stage.value("whoami")
        assert await stage.value("fork_and_return") == pid


async def test_only_the_handler_itself_can_talk_to_its_node(stage: Stage) -> None:
    assert "forked" in await stage.value("talk_from_a_fork", note=str(stage.note))
    assert stage.progress == []


async def test_a_child_in_which_stdout_was_closed_is_replaced(stage: Stage) -> None:
    (before, *_) = await stage.value("whoami")
    assert isinstance(await stage.run("close_stdout"), Succeeded)
    (after, *_) = await stage.value("whoami")
    assert after != before


async def test_a_changed_folder_does_not_reach_the_next_job(stage: Stage) -> None:
    assert await stage.value("change_folder") == os.getcwd()
    assert await stage.value("change_folder") == os.getcwd()


async def test_a_job_may_stay_in_its_folder_which_goes_with_it(stage: Stage) -> None:
    (before, *_) = await stage.value("whoami")
    await stage.value("stay_in_workdir")
    (after, *_) = await stage.value("whoami")
    assert after == before


async def test_the_folder_of_an_attempt_is_private(stage: Stage) -> None:
    folder = Path(await stage.value("use_workdir"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == [folder / "left.bin"]


async def test_a_limit_of_memory_ends_the_attempt_alone(stage: Stage) -> None:
    outcome = await stage.run("hog", options={"memory_limit": 200 << 20})
    assert "MemoryError" in getattr(outcome, "error", "")
    assert isinstance(await stage.run("hog", megabytes=300), Succeeded)


async def test_programs_count_against_the_limit_of_memory(stage: Stage) -> None:
    outcome = await stage.run("hog_by_programs", options={"memory_limit": 150 << 20})
    assert isinstance(outcome, Crashed)
    assert "bytes of memory, and its limit is 157,286,400" in outcome.reason
