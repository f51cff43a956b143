"""How a node stops, when it ends by itself, and that there is one at most."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from p2pqueue.errors import ConfigError, HomeInUse
from p2pqueue.node import Node
from p2pqueue.replica.merging.merged import Done
from tests.integration.node.stage import APP, QUICK, Stage, said, status, until, words


async def test_a_stop_lets_handlers_finish_within_their_grace(stage: Stage) -> None:
    notes = [stage.note("one"), stage.note("two")]
    async with stage.run(slots=2, grace=20) as node:
        jobs = [stage.enqueue(task, seconds=0.6, note=note) for task, note in zip(("nap", "inline_nap"), notes, strict=True)]
        await until(lambda: all(map(said, notes)))
        waiting = stage.enqueue("inline_echo")
        await node.stop()
    for job in jobs:
        assert (job.status, words(job)) == ("succeeded", ["succeeded"])
    assert (waiting.status, words(waiting)) == ("queued", []), "nothing new is taken"


async def test_what_goes_on_beyond_the_grace_is_released(stage: Stage) -> None:
    notes = [stage.note("one"), stage.note("two")]
    async with stage.run(grace=0.3) as node:
        jobs = [stage.enqueue(task, seconds=30, note=note) for task, note in zip(("nap", "inline_nap"), notes, strict=True)]
        await until(lambda: all(map(said, notes)))
        began = time.monotonic()
        await node.stop()
        assert 0.3 <= time.monotonic() - began < 8
    for job in jobs:
        assert (job.status, job.row.attempt, words(job)) == ("queued", 0, ["released"])
    assert "ended" not in [*said(notes[0]), *said(notes[1])]


async def test_a_stop_that_is_hurried_waits_for_no_grace(stage: Stage) -> None:
    note = stage.note()
    async with stage.run(grace=60) as node:
        job = stage.enqueue("nap", seconds=30, note=note)
        await until(lambda: said(note))
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(node.stop())
            await asyncio.sleep(0.1)
            assert not stopping.done()
            node.hurry()
            took = await until(stopping.done)
        assert took < 8
    assert words(job) == ["released"]


async def test_a_stop_at_any_moment_leaves_no_job_behind_that_says_it_runs(stage: Stage) -> None:
    jobs = []
    for number in range(6):
        async with stage.run(slots=2, grace=0.0) as node:
            for _ in range(4):
                jobs.append(await stage.queue.aenqueue("inline_nap", {"seconds": 30}))
                jobs.append(await stage.queue.aenqueue("inline_echo", {"value": number}))
            await asyncio.sleep(0.004 * number)
            async with asyncio.timeout(10):
                await node.stop()
        counts = stage.queue.counts()
        assert counts["running"] == 0
        assert counts["queued"] + counts["succeeded"] == len(jobs)
    for job in jobs:
        assert set(words(job)) <= {"released", "succeeded"}
        assert job.row.attempt == (1 if job.status == "succeeded" else 0)


@pytest.mark.parametrize("task", ["nap", "inline_nap"])
async def test_a_stop_that_comes_while_a_job_is_claimed_lets_it_go(stage: Stage, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    note, claimed = stage.note(), asyncio.Event()
    async with stage.run(grace=0.2) as node:
        hand_in, join = node.store.hand_in, node.worker.join

        def late(then: Callable[[Done], object]) -> Callable[[Done], object]:
            def answer(done: Done) -> None:
                if done.result()[0]:  # a transaction that claimed something
                    claimed.set()
                    asyncio.get_running_loop().call_later(0.3, then, done)
                else:
                    then(done)

            return answer

        def join_late(*, loud: bool) -> Any:
            joined = join(loud=loud)
            return None if joined is None else (joined[0], late(joined[1]))

        monkeypatch.setattr(node.store, "hand_in", lambda fn, then: hand_in(fn, late(then)))
        monkeypatch.setattr(node.worker, "join", join_late)
        job = await stage.queue.aenqueue(task, {"seconds": 30, "note": note})
        await claimed.wait()
        async with asyncio.timeout(8):
            await node.stop()
    assert (job.status, job.row.attempt, said(note)) == ("queued", 0, [])


async def test_cancels_are_heeded_while_the_node_stops(stage: Stage) -> None:
    note = stage.note()
    async with stage.run(grace=30) as node:
        job = stage.enqueue("nap", seconds=30, note=note)
        await until(lambda: said(note))
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(node.stop())
            await asyncio.sleep(0.1)
            job.cancel()
            took = await until(stopping.done)
        assert took < 8
    assert (job.status, words(job)) == ("cancelled", ["cancelled"])


async def test_a_node_whose_stop_is_broken_off_closes_all_the_same(stage: Stage) -> None:
    note = stage.note()
    node = Node(stage.home, application=APP, overrides=QUICK | {"grace": 60})
    await node.start()
    job = stage.enqueue("nap", seconds=30, note=note)
    await until(lambda: said(note))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await node.stop()
    async with stage.run():
        assert await stage.result("echo", value=1) == 1
        await status(job, "running", "queued")
        job.cancel()
    assert words(job)[0] == "lost"


async def test_burst_ends_when_nothing_is_left_now_or_later(stage: Stage) -> None:
    jobs = [stage.enqueue("fail"), stage.enqueue("nap", seconds=0.1), stage.enqueue("inline_echo", options={"delay": 0.5})]
    unknown, paused = stage.enqueue("nobody-has-this"), stage.enqueue("echo")
    paused.pause()
    async with stage.run() as node:
        async with asyncio.timeout(20):
            await node.drained()
        assert [job.status for job in jobs] == ["failed", "succeeded", "succeeded"]
        assert (unknown.status, paused.status) == ("queued", "paused")


async def test_a_second_node_on_a_home_is_refused_and_changes_nothing(stage: Stage) -> None:
    note = stage.note()
    async with stage.run():
        job = stage.enqueue("nap", seconds=0.8, note=note)
        await until(lambda: said(note))
        for _ in range(2):
            with pytest.raises(HomeInUse, match=rf"pid {os.getpid()}\b.*stop it first"):
                await Node(stage.home, application=APP, overrides=QUICK).start()
        assert await job.aresult(20) == 0.8
        assert words(job) == ["succeeded"]
    async with stage.run():
        assert await stage.result("echo", value=1) == 1, "the home is free again"


async def test_a_start_that_fails_leaves_the_home_free(stage: Stage) -> None:
    with pytest.raises(ConfigError):
        await Node(stage.home, application=str(stage.folder / "missing.py"), overrides=QUICK).start()
    async with stage.run():
        assert await stage.result("echo", value=1) == 1
