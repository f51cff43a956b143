from __future__ import annotations

import asyncio
import os
import time

import pytest

from p2pqueue import wire
from p2pqueue.workers.children.protocol import Crashed, Succeeded
from tests.integration.children.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_progress_is_thinned_out_and_its_last_step_always_comes(stage: Stage) -> None:
    await stage.value("spread", steps=2000)
    assert stage.progress[-1] == (1.0, "step 2000")
    assert len(stage.progress) < 200
    assert [fraction for fraction, _ in stage.progress] == sorted(fraction for fraction, _ in stage.progress)


async def test_a_step_that_had_to_wait_comes_while_the_handler_works_on(stage: Stage) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(stage.run("one_step_then_work", seconds=1.0))
        begin = time.monotonic()
        while (0.5, "second") not in stage.progress:
            assert time.monotonic() - begin < 5
            await asyncio.sleep(0.01)
        assert not running.done()
    assert stage.progress[-1] == (0.5, "second")


async def test_a_checkpoint_is_kept_before_the_handler_goes_on_and_resumed_from(stage: Stage) -> None:
    assert await stage.value("keep", state={"frame": 7}) == [None, {"frame": 7}]
    assert stage.checkpoints == [{"frame": 7}]
    outcome = await stage.run("keep", state=2, options={"resume_from": wire.pack({"frame": 7})})
    assert isinstance(outcome, Succeeded)
    assert wire.unpack(outcome.result) == [{"frame": 7}, 2]


async def test_threads_of_a_handler_may_talk_too(stage: Stage) -> None:
    assert await stage.value("talk_from_threads") == 4
    assert len(stage.checkpoints) == 4
    assert stage.progress


async def test_a_follow_up_is_asked_of_the_node(stage: Stage) -> None:
    assert await stage.value("follow", value="x") == "the-id-of-the-follow-up"
    ((kind, fields),) = stage.requests
    assert kind == "enqueue"
    assert fields["task"] == "echo"
    assert fields["queue"] == "children"
    assert wire.unpack(fields["args"]) == {"value": "x"}
    assert fields["options"] == {"priority": 3}


async def test_a_refusal_of_the_node_reaches_the_handler_in_words(stage: Stage) -> None:
    assert await stage.value("ask_in_vain") == "P2PQueueError: this device enqueues nothing"


async def test_a_flood_of_progress_neither_bloats_nor_holds_up_the_node(stage: Stage) -> None:
    before = _memory()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(stage.run("flood", seconds=0.5))
        longest = 0.0
        while not running.done():
            begin = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - begin)
    assert isinstance(running.result(), Succeeded)
    assert stage.progress
    assert longest < 0.5
    assert _memory() - before < 20 << 20


async def test_a_slow_node_keeps_a_flood_waiting_without_collecting_it(stage: Stage) -> None:
    before = _memory()
    outcome = await stage.pool.run(
        stage.assignment("flood", None, None, {"seconds": 0.3}),
        on_progress=lambda *_: time.sleep(0.02), on_checkpoint=stage._checkpoint, on_request=stage._request,
    )  # fmt: skip
    assert isinstance(outcome, Succeeded)
    assert _memory() - before < 20 << 20


async def test_bytes_that_are_no_message_end_the_child(stage: Stage) -> None:
    assert isinstance(await stage.run("send_garbage"), Crashed)


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
