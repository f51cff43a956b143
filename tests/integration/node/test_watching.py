"""Who watches sees every step at once; the row gets progress every two seconds at most."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from p2pqueue import ArgumentError, File
from p2pqueue.replica.door.doorbell import DoorbellClient
from tests.integration.node.stage import Stage, said, status, until, words


class Listener:
    """Takes what a node tells of some jobs, over its local socket, as another process would."""

    def __init__(self, stage: Stage, *job_ids: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.times: list[float] = []
        self._client = DoorbellClient(stage.home.socket_path)
        self._thread = threading.Thread(target=self._listen, args=(list(job_ids) or None,), daemon=True)
        self._thread.start()

    def _listen(self, job_ids: list[str] | None) -> None:
        for event in self._client.stream("watch", jobs=job_ids):
            self.events.append(event)
            self.times.append(time.monotonic())

    def of(self, name: str) -> list[Any]:
        return [event.get(name) for event in self.events]

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive(), "the stream ends with its node"


async def test_a_watcher_sees_each_step_of_a_job(stage: Stage) -> None:
    note = stage.note()
    async with stage.run():
        job = stage.enqueue("climb", steps=5, pause=0.15, note=note, options={"delay": 0.5})
        listener = Listener(stage, job.id)
        await until(lambda: listener.events)
        await job.aresult(20)
        await until(lambda: "succeeded" in listener.of("status"))
    listener.join()
    shown = [state for state, before in zip(listener.of("status"), [None, *listener.of("status")], strict=False) if state != before]
    assert shown == ["queued", "running", "succeeded"]
    assert [phase for phase in listener.of("phase") if phase and phase.startswith("step")] == [f"step {n}" for n in range(1, 6)]
    assert (listener.of("progress")[-1], listener.of("phase")[-1]) == (1.0, "Done")
    running = [event for event in listener.events if event["status"] == "running"]
    assert {event["worker_label"] for event in running} == {"here"}


async def test_a_watcher_sees_what_others_do_to_a_job(stage: Stage) -> None:
    note = stage.note()
    async with stage.run():
        job = stage.enqueue("nap", seconds=30, note=note)
        listener = Listener(stage)  # of all jobs
        await until(lambda: said(note))
        job.pause()
        await until(lambda: listener.of("status")[-1:] == ["paused"])
        await until(lambda: words(job) == ["released"])
        job.resume()
        await until(lambda: listener.of("status")[-1] == "running")
        job.cancel()
        await until(lambda: listener.of("status")[-1] == "cancelled")
        job.retry()
        await until(lambda: listener.of("status")[-1] == "running")
        job.delete()
        await until(lambda: listener.of("status")[-1] is None)
    listener.join()


async def test_a_watcher_is_told_what_stands_in_the_way_of_a_job(stage: Stage) -> None:
    path = stage.folder / "large.bin"
    path.write_bytes(b"x")
    os.truncate(path, 65 << 20)
    async with stage.run():
        job = stage.enqueue("length", file=File(path), options={"delay": 0.5})
        path.unlink()
        listener = Listener(stage, job.id)
        await until(lambda: any(str(path) in (why or "") for why in listener.of("why")))
        assert listener.events[-1]["status"] == "queued"
        assert words(job) == []
    listener.join()


async def test_progress_reaches_watchers_at_once_and_the_row_seldom(stage: Stage) -> None:
    note = stage.note()
    async with stage.run(beat_every=10.0, stale_after=45.0):
        job = stage.enqueue("climb", steps=50, pause=0.06, note=note)
        connection = sqlite3.connect(stage.home.replica_file)
        seen: list[tuple[float, float]] = []
        listener = Listener(stage, job.id)
        while not job.done:
            row = connection.execute("SELECT heartbeat_at, progress FROM jobs WHERE id = ?", (job.id,)).fetchone()
            if row[0] is not None and (not seen or seen[-1][0] != row[0]):
                seen.append(row)
            await asyncio.sleep(0.02)
        connection.close()
        steps = [event for event in listener.events if event["status"] == "running" and event["progress"]]
        assert len(steps) > 25
        assert seen, "the row has got progress as well"
        assert all(late[0] - early[0] >= 1900 for early, late in pairwise(seen))
        assert len(seen) <= (job.attempts[0].duration or 0) / 2 + 1


async def test_a_watch_of_a_program_ends_with_its_job(stage: Stage) -> None:
    async with stage.run():
        job = stage.enqueue("nap", seconds=0.3)
        shown = [progress.status async for progress in job.watch()]
        assert shown[-1] == "succeeded"
        assert set(shown) <= {"queued", "running", "succeeded"}


async def test_the_lease_of_a_job_that_runs_is_renewed(stage: Stage) -> None:
    async with stage.run(beat_every=0.1) as node:
        job = stage.enqueue("nap", seconds=1.2)
        beats = set()
        while not job.done:
            beats.add(job.row.heartbeat_at)
            await asyncio.sleep(0.02)
        assert len(beats - {None}) >= 4
        await until(lambda: node.worker.idle)


async def test_a_handler_that_blocks_the_loop_of_its_child_holds_up_no_beat(stage: Stage) -> None:
    async with stage.run(beat_every=0.1):
        job = stage.enqueue("nap", seconds=1.0)
        other = stage.enqueue("inline_echo", value=1)
        assert await other.aresult(10) == 1
        await status(job, "running")
        first = await _next_beat(job.row.heartbeat_at, job)
        assert await _next_beat(first, job) > first


async def _next_beat(before: int | None, job: Any) -> int:
    await until(lambda: job.row.heartbeat_at not in (None, before))
    beat: int = job.row.heartbeat_at
    return beat


@pytest.mark.parametrize("asked", [5, True, "all", {"a": 1}, [5], ["\x00", None], [["a"]], b"\xff"])
async def test_a_watch_that_asks_for_something_odd_is_refused_in_words(
    stage: Stage, asked: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage.run():
        client = DoorbellClient(stage.home.socket_path)
        with pytest.raises(ArgumentError, match="list of job ids"):
            await asyncio.to_thread(lambda: next(client.stream("watch", jobs=asked)))
    assert "Traceback" not in caplog.text
