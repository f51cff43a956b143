"""Jobs that handlers enqueue."""

from __future__ import annotations

import hashlib

from p2pqueue import wire
from p2pqueue.jobs import rows
from tests.integration.node.stage import Stage


async def test_a_handler_enqueues_follow_ups_with_options_and_with_files_of_its_own_folder(stage: Stage) -> None:
    async with stage.run():
        parent = stage.enqueue("chain", names=["one", "two"], priority=0)
        one, two, last, urgent = [stage.queue.get(job_id) for job_id in await parent.aresult(20)]
        for job, name in ((one, "one"), (two, "two")):
            assert await job.aresult(20) == [[name, 3, hashlib.sha256(name.encode()).hexdigest()]]
        assert await last.aresult(20) == "from a handler"
        assert (last.row.title, last.row.priority, last.row.unique_key, last.row.queue) == ("last", 3, "the last", "node-tests")
        assert last.row.run_at is not None
        assert last.attempts[0].started_at.timestamp() * 1000 >= last.row.run_at
        assert await urgent.aresult(20) == "urgent"
        assert (urgent.row.priority, urgent.row.title) == (0, "urgent by itself"), "what is asked for goes before what the task says"
        for job in (one, two, last, urgent):
            _, options = stage.read(rows.spec_of, job.id)
            assert wire.unpack(options) == {"parent": parent.id}


async def test_follow_ups_keep_to_what_their_task_says(stage: Stage) -> None:
    async with stage.run():
        ids = await stage.result("chain", names=[], priority=None)
        assert len(ids) == 1
        ids = await stage.result("chain", names=[], priority=9)
        urgent = stage.queue.get(ids[-1])
        assert (await urgent.aresult(20), urgent.row.priority) == ("urgent", 9)


async def test_an_attempt_that_is_repeated_finds_the_follow_up_of_its_unique_key(stage: Stage) -> None:
    async with stage.run():
        job = stage.enqueue("chain", names=["one"])
        first = await job.aresult(20)
        job.retry()
        second = await job.aresult(20)
        assert first[0] != second[0]
        assert first[1] == second[1]
        last = stage.queue.get(first[1])
        assert await last.aresult(20) == "from a handler"
