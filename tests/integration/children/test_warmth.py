from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from p2pqueue.workers.children.protocol import Succeeded
from tests.integration.children.stage import Stage, lives, until


async def test_one_child_more_than_is_busy_is_kept_ready(tmp_path: Path) -> None:
    stage = Stage(tmp_path, size=3)
    await stage.pool.start()
    assert len(stage.pool._children) == 1
    await stage.value("echo", value=1)
    assert len(stage.pool._children) == 2
    await asyncio.gather(*(stage.run("sleep", seconds=0.1) for _ in range(3)))
    assert len(stage.pool._children) == 3
    await stage.pool.close()


async def test_children_that_run_nothing_for_long_are_let_go_but_for_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, size=3, idle_patience=0.3)
    await stage.pool.start()
    await asyncio.gather(*(stage.run("sleep", seconds=0.1) for _ in range(3)))
    pids = [child.pid for child in stage.pool._children]
    await until(lambda: len(stage.pool._children) == 1)
    assert [pid for pid in pids if lives(pid)] == [child.pid for child in stage.pool._children]
    assert await stage.value("echo", value=1) == 1
    await stage.pool.close()


async def test_a_pool_that_was_closed_runs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, size=2)
    await stage.pool.start()
    assert isinstance(await stage.run("echo"), Succeeded)
    pids = [child.pid for child in stage.pool._children]
    await stage.pool.close()
    assert not any(lives(pid) for pid in pids)
    assert str(await stage.run("echo")) == "Stopped(why='shutdown')"
    await stage.pool.close()


@pytest.mark.timeout(120)
async def test_a_hundred_jobs_from_many_sides_all_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, size=2)
    await stage.pool.start()
    outcomes = await asyncio.gather(*(stage.run("echo", value=number) for number in range(100)))
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
    await stage.pool.close()
