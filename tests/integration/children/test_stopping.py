from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from p2pqueue.workers.children.protocol import Outcome, Stopped, Succeeded, TimedOut, Why
from p2pqueue.workers.running.pool import Pool
from tests.integration.children.stage import Stage, lives, living, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def stopped(stage: Stage, task: str, why: Why = "cancelled", **args: object) -> tuple[Outcome, float]:
    """The outcome of a handler that is stopped once it has written its note, and the seconds that stopping took."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(stage.run(task, "this", note=str(stage.note), **args))
        await stage.wait_for_note()
        begin = time.monotonic()
        stage.pool.stop("this", why)
        outcome = await running
    return outcome, time.monotonic() - begin


@pytest.mark.parametrize("why", ["cancelled", "held", "shutdown", "lost"])
async def test_a_stopped_handler_ends_with_the_reason_of_its_node(stage: Stage, why: Why) -> None:
    outcome, seconds = await stopped(stage, "tidy_up", why)
    assert outcome == Stopped(why)
    assert seconds < 1.5


async def test_a_stopped_handler_meets_the_exception_may_keep_a_checkpoint_and_tidies_up(stage: Stage) -> None:
    outcome, _ = await stopped(stage, "tidy_up")
    assert outcome == Stopped("cancelled")
    assert stage.note.read_text() == "cancelled True"
    assert stage.checkpoints == ["half"]


async def test_a_stopped_async_handler_tidies_up(stage: Stage) -> None:
    outcome, seconds = await stopped(stage, "sleep_async")
    assert outcome == Stopped("cancelled")
    assert stage.note.read_text() == "tidied up"
    assert seconds < 1.5


async def test_a_handler_that_swallows_the_exception_is_stopped_all_the_same(stage: Stage) -> None:
    outcome, _ = await stopped(stage, "swallow")
    assert outcome == Stopped("cancelled")


async def test_a_program_of_the_handler_ends_with_it(stage: Stage) -> None:
    outcome, seconds = await stopped(stage, "run_program")
    assert outcome == Stopped("cancelled")
    assert seconds < 1.5
    assert not lives(int(stage.note.read_text()))


async def test_who_ignores_term_is_killed_after_two_seconds_with_its_programs(stage: Stage) -> None:
    outcome, seconds = await stopped(stage, "ignore_term")
    assert outcome == Stopped("cancelled")
    assert 1.9 < seconds < 2.5
    assert not lives(int(stage.note.read_text()))


async def test_who_never_leaves_a_call_into_c_is_killed(stage: Stage) -> None:
    outcome, seconds = await stopped(stage, "hold_the_interpreter")
    assert outcome == Stopped("cancelled")
    assert seconds < 2.5


async def test_who_is_frozen_is_killed(stage: Stage) -> None:
    outcome, seconds = await stopped(stage, "stop_oneself")
    assert outcome == Stopped("cancelled")
    assert seconds < 2.5
    assert not lives(int(stage.note.read_text()))


async def test_a_daemon_that_left_group_and_session_dies_too(stage: Stage) -> None:
    outcome, seconds = await stopped(stage, "leave_daemon", wait=30.0)
    assert outcome == Stopped("cancelled")
    assert seconds < 2.5
    assert living(stage.note) == []


async def test_a_tree_of_forks_in_sessions_of_their_own_dies_too(stage: Stage) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(stage.run("fork_tree", "this", note=str(stage.note), depth=4))
        await until(lambda: stage.note.exists() and stage.note.read_text().count("\n") == 16)
        begin = time.monotonic()
        stage.pool.stop("this", "cancelled")
        assert await running == Stopped("cancelled")
    assert time.monotonic() - begin < 2.5
    assert living(stage.note) == []


async def test_a_handler_runs_out_of_time(stage: Stage) -> None:
    begin = time.monotonic()
    outcome = await stage.run("sleep", options={"deadline": 0.2})
    assert isinstance(outcome, TimedOut)
    assert outcome.reason == "it took longer than its timeout of 0.2 s"
    assert outcome.log_tail == "sleeping\n"
    assert time.monotonic() - begin < 4


async def test_a_handler_without_progress_is_stopped_and_one_with_progress_is_not(stage: Stage) -> None:
    outcome = await stage.run("sleep", options={"stall_timeout": 0.2})
    assert isinstance(outcome, TimedOut)
    assert outcome.reason == "it made no progress for 0.2 s"
    assert isinstance(await stage.run("step_slowly", steps=12, pause=0.05, options={"stall_timeout": 0.4}), Succeeded)


async def test_a_stop_before_the_start_keeps_the_handler_from_running(stage: Stage) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(stage.run("sleep_async", "this", note=str(stage.note)))
        await asyncio.sleep(0)
        stage.pool.stop("this", "cancelled")
        assert await running == Stopped("cancelled")


async def test_a_stop_of_what_does_not_run_is_no_error(stage: Stage) -> None:
    stage.pool.stop("nothing", "cancelled")


@pytest.mark.timeout(120)
async def test_a_stop_at_any_moment_gives_one_of_two_outcomes_and_leaves_nothing(stage: Stage) -> None:
    chance = random.Random(7)
    loop = asyncio.get_running_loop()
    for number in range(25):
        key = f"round-{number}"
        loop.call_later(chance.uniform(0, 0.02), stage.pool.stop, key, "cancelled")
        outcome = await stage.run("brief", key, seconds=chance.uniform(0, 0.01))
        assert outcome == Stopped("cancelled") or isinstance(outcome, Succeeded)
    assert await stage.value("echo", value=1) == 1


async def test_closing_gives_handlers_their_grace_and_stops_the_rest(tmp_path: Path) -> None:
    stage = Stage(tmp_path, size=2)
    await stage.pool.start()
    async with asyncio.TaskGroup() as group:
        short = group.create_task(stage.run("sleep", seconds=0.3))
        long = group.create_task(stage.run("tidy_up", note=str(stage.note)))
        await stage.wait_for_note()
        pids = [child.pid for child in stage.pool._children]
        await stage.pool.close(grace=1.0)
        assert isinstance(await short, Succeeded)
        assert await long == Stopped("shutdown")
    assert not any(lives(pid) for pid in pids)


async def test_a_task_that_waits_for_an_attempt_may_be_cancelled(stage: Stage) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await stage.run("leave_daemon", note=str(stage.note), wait=30.0)
    if stage.note.exists():
        assert living(stage.note) == []
    assert await stage.value("echo", value=1) == 1


async def test_a_child_that_is_told_to_end_while_idle_is_replaced(pool: Pool, stage: Stage) -> None:
    await stage.value("echo", value=1)
    for child in list(pool._children):
        if child.alive:
            child._process.send_signal(signal.SIGTERM)
    for _ in range(2000):  # until it is noticed: a job that comes before has its child end under it
        if not any(child.alive for child in pool._children):
            break
        await asyncio.sleep(0.01)
    assert await stage.value("echo", value=2) == 2
