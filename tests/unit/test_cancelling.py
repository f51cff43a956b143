"""Tasks that are cancelled while what they wait for fails."""

from __future__ import annotations

import asyncio

import pytest

from p2pqueue.cancelling import cancellable


class Work:
    """A group of two, one of which fails as soon as the other is told to end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = False

    async def do(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.wait())
        finally:
            self.ended = True

    async def wait(self) -> None:
        self.begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            raise OSError("the disk fails at the same moment")


async def for_ever(work: Work, *, safely: bool) -> None:
    """Begins anew after each failure, as loops of a node do."""
    while True:
        try:
            await (cancellable(work.do()) if safely else work.do())
        except* OSError:
            await asyncio.sleep(0)


async def test_a_cancellation_is_not_lost_in_a_failure() -> None:
    work = Work()
    loop = asyncio.create_task(for_ever(work, safely=True))
    await work.begun.wait()
    loop.cancel()
    await asyncio.wait((loop,), timeout=5)
    assert loop.cancelled()
    assert work.ended, "what was under way has ended before"


async def test_what_work_gives_and_raises_passes() -> None:
    async def gives() -> int:
        return 7

    async def raises() -> None:
        raise KeyError("so it is")

    assert await cancellable(gives()) == 7
    with pytest.raises(KeyError, match="so it is"):
        await cancellable(raises())


async def test_work_that_cancels_itself_is_a_cancellation() -> None:
    async def stops() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await cancellable(stops())
