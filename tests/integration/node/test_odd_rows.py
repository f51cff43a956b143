"""Jobs that another device of the space wrote, with whatever it liked in their columns."""

from __future__ import annotations

from typing import Any

import pytest

from p2pqueue import Job
from p2pqueue.jobs.tables import SPEC
from p2pqueue.replica.writer import Writer
from tests.integration.node.stage import Stage, status

PLAIN: dict[str, Any] = {"queue": "node-tests", "task": "inline_echo", "args": b"\x80", "created_at": 1, "options": b"\x80"}
ODD: list[dict[str, Any]] = [
    dict.fromkeys(PLAIN) | {"queue": "node-tests"},
    *({"needs": odd} for odd in ("", "{", "[", "5", "null", "[1]", '{"a": 1}', "[" * 5000)),
    *({"retry_on": odd, "args": b"\x81\xa4nope\x01", "max_attempts": 1} for odd in ("", "7", "[1]", "{}")),
    *({"backoff": odd, "args": b"\x81\xa4nope\x01", "max_attempts": 1} for odd in ("", "7", "[1]", '"x"', '{"first": "x"}')),
    *({"after": odd} for odd in ("", "{", "5")),
    *({"options": odd} for odd in (None, b"", b"\xc1", b"\x05", b"\x81\x01\x02")),
    *({"args": odd} for odd in (None, b"", b"\xc1", b"\x05", b"\xdd\xff\xff\xff\xff")),
    *({"created_at": odd} for odd in (None, -(2**63), 2**63 - 1)),
    *({"run_at": odd} for odd in (-(2**63), 2**63 - 1)),
    *({"max_attempts": odd} for odd in (0, -1, 2**63 - 1)),
    *({"timeout": odd} for odd in (0.0, -1.0, 1e308)),
]


def write(stage: Stage, changes: dict[str, Any]) -> str:
    values = PLAIN | changes

    def make(writer: Writer) -> str:
        made = writer.new_id()
        writer.put("jobs", made, SPEC.name, tuple(values.get(column.name) for column in SPEC.columns))
        return made

    return stage.queue.access.write(make)


async def test_whatever_a_device_writes_into_jobs_the_others_go_on_and_show_them(stage: Stage) -> None:
    odd = [write(stage, each) for each in ODD]
    async with stage.run() as node:
        assert await stage.result("inline_echo", value=1, options={"priority": -9}) == 1, "those before it keep nothing up"
        shown = {job.id: job for job in stage.queue.jobs(limit=None)}
        assert [ODD[at] for at, made in enumerate(odd) if made not in shown] == []
        for job in shown.values():
            assert job.created_at.year >= 1
            stage.why(job)
        assert not node.worker.runs


@pytest.mark.parametrize("column", ["retry_on", "backoff"])
async def test_a_job_whose_retries_say_nothing_sensible_is_retried_as_by_default(stage: Stage, column: str) -> None:
    made = write(stage, {"task": "inline_raise", "args": b"\x81\xa4kind\xa5value", column: "7", "max_attempts": 1})
    async with stage.run():
        job: Job[Any] = stage.queue.get(made)
        await status(job, "failed")
        assert job.error == "ValueError: no"
