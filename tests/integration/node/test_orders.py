"""What one device orders of the jobs that run on another, where the rows that say so take long to come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from p2pqueue.home import Home
from p2pqueue.identity import keys
from p2pqueue.identity.keys import Identity
from tests.integration.node.stage import Stage, said, status, until, words

ALONE: dict[str, Any] = {"discovery": False, "interfaces": ("lo",), "listen": "127.0.0.1:0"}


class Pair:
    """A device that only asks, and one that works; between them rows can be held up while signals pass."""

    def __init__(self, asking: Stage, working: Stage) -> None:
        self.asking = asking
        self.working = working

    async def runs(self, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
        """A job that runs on the other device, as both see it; from now on no row comes there."""
        job = self.asking.enqueue("nap", seconds=60, note=self.working.note())
        await until(lambda: said(self.working.note()))
        await status(job, "running")
        links = self.working.node.network._links
        assert links is not None
        monkeypatch.setattr(links.replication, "received", lambda peer, message: None)
        there = self.working.queue.get(job.id)
        assert there.status == "running"
        return job, there


@pytest_asyncio.fixture
async def pair(home: Home, identity: Identity, tmp_path: Path) -> AsyncIterator[Pair]:
    other = Home(tmp_path / "other")
    keys.restore(other, keys.export_space(identity), "other")
    (tmp_path / "notes").mkdir()
    asking, working = Stage(home, tmp_path), Stage(other, tmp_path / "notes")
    async with asking.run(**ALONE, work=False) as one:
        async with working.run(**ALONE, peers=tuple(one.network.addresses)) as two:
            await until(lambda: one.network.peers() and two.network.peers())
            yield Pair(asking, working)
    for stage in (asking, working):
        await stage.close()


async def test_a_cancelled_job_ends_before_any_row_tells_of_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    job, there = await pair.runs(monkeypatch)
    job.cancel()
    await until(lambda: not pair.working.node.worker.runs)
    await status(there, "cancelled")
    await until(lambda: words(there) == ["cancelled"])


async def test_a_paused_job_stops_and_is_not_taken_again_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    job, there = await pair.runs(monkeypatch)
    job.pause()
    await until(lambda: not pair.working.node.worker.runs)
    await asyncio.sleep(0.3)
    assert not pair.working.node.worker.runs
    assert there.status == "queued", "a pause that may have been taken back isn't written down elsewhere"


async def test_a_deleted_job_stops(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = await pair.runs(monkeypatch)
    job.delete()
    await until(lambda: not pair.working.node.worker.runs)


async def test_what_was_ordered_of_an_earlier_life_of_a_job_stops_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    job, there = await pair.runs(monkeypatch)
    links = pair.asking.node.network._links
    assert links is not None
    for generation in (there.row.generation + 1, there.row.generation - 1):
        links._emit("control", jobs=[[job.id, "cancel", generation]])
    links._emit("control", jobs=["rubbish", [job.id, "explode", 0], [job.id, "cancel", -1], [7, "cancel", 0], [job.id, "cancel"]])
    await asyncio.sleep(0.5)
    assert list(pair.working.node.worker.runs) == [job.id]
    assert there.status == "running"
    links._emit("control", jobs=[[job.id, "cancel", there.row.generation]])
    await status(there, "cancelled")
