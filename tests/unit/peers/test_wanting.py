"""A result that nobody has is looked for again when there is somebody new to ask."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from p2pqueue import Queue
from p2pqueue.errors import PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.identity import keys
from p2pqueue.peers.shards.wanting import Wanting


async def test_a_result_that_could_not_be_had_is_tried_again_as_soon_as_a_device_is_linked() -> None:
    tries: asyncio.Queue[str] = asyncio.Queue()
    reachable = False

    async def fetch(capability: str) -> None:
        tries.put_nowait(capability)
        if not reachable:
            raise PayloadUnavailable("its maker is away")

    store: Any = Replica()
    shelf: Any = SimpleNamespace(holds=lambda _capability: False)
    wanting = Wanting(store, shelf, "me", linked=lambda _device: False, fetch=fetch, takers=lambda: False, always=False)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:  # the next try by itself would be after twenty seconds
        running = group.create_task(wanting.run())
        assert await tries.get() == "p2pq1-result"
        reachable = True
        wanting.hurry()
        assert await tries.get() == "p2pq1-result"
        running.cancel()


@pytest.mark.parametrize("always", [True, False])
async def test_what_was_shared_without_a_job_goes_to_the_origin_where_all_does(tmp_path: Path, always: bool) -> None:
    home = Home(tmp_path / "home")
    keys.create(home)
    (tmp_path / "note.txt").write_text("hello")
    with Queue("studio", home=home.path) as queue:
        shared = queue.share(tmp_path / "note.txt")

        class Reading:
            async def read(self, query: Callable[[sqlite3.Connection], Any]) -> Any:
                return queue.access.read(query)

        store: Any = Reading()
        wanting = Wanting(
            store, queue.access.shelf, "me", linked=lambda _device: False, fetch=lambda _capability: asyncio.sleep(0),
            takers=lambda: False, always=always,
        )  # fmt: skip
        assert await wanting.uploads() == ([shared.manifest] if always else [])


class Replica:
    """Rows in which one result is named, and that change once."""

    async def read(self, _query: Any) -> list[tuple[str]]:
        return [("p2pq1-result",)]

    @contextlib.asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[None]]:
        yield self._forever()

    async def _forever(self) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield None
