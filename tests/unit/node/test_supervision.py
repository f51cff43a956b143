"""A loop that the disk failed is told of and begins anew; any other error is nobody's to hide."""

from __future__ import annotations

import asyncio

import pytest

from p2pqueue.errors import DiskFull
from p2pqueue.node import supervision
from p2pqueue.node.supervision import supervised


async def fails_in_a_task(error: Exception) -> None:
    async def task() -> None:
        raise error

    async with asyncio.TaskGroup() as outer:

        async def inner() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(task())

        outer.create_task(inner())


async def fails(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("how", [fails, fails_in_a_task])
async def test_a_full_disk_ends_no_loop_for_good(how: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(supervision, "AGAIN_AFTER", 0.0)
    begun = 0

    async def loop() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            await how(DiskFull("no space left"))  # type: ignore[operator]

    await supervised(loop)
    assert (begun, caplog.messages) == (3, ["no space left", "no space left"])


async def test_a_mistake_is_not_taken_for_the_disks() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await supervised(lambda: fails_in_a_task(RuntimeError("a mistake")))
    assert raised.group_contains(RuntimeError, match="a mistake")
