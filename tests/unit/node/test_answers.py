"""What becomes of a fetch whose asker goes away."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from p2pqueue.node.answers import Answers
from p2pqueue.node.node import Node


async def test_a_fetch_ends_quietly_when_its_asker_goes_away() -> None:
    ended = asyncio.Event()

    async def fetch(capability: str, on_progress: Any) -> None:
        on_progress(1, 2)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    answers = Answers(cast(Node, SimpleNamespace(network=SimpleNamespace(fetch=fetch, transfer=lambda capability: None))))
    events = cast(Any, answers.fetch({"capability": "p2pq1-"}))
    async with asyncio.timeout(5):
        assert await anext(events) == {"done": 1, "size": 2}
        await events.aclose()
    assert ended.is_set()
