"""How does work in a thread come to its end, though whoever waits for it is cancelled?

A thread can't be cancelled. What it does to files must not go on beside what comes next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs in a thread. A cancellation waits for the end of it, and is raised then."""
    return await _await(work, None, *args, **kwargs)


async def to_end_or_undo(undo: Callable[[T], object], work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The same; what was made is undone, in a thread too, where nobody waits for it any more."""
    return await _await(work, undo, *args, **kwargs)


async def _await(work: Callable[P, T], undo: Callable[[T], object] | None, /, *args: P.args, **kwargs: P.kwargs) -> T:
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _end(running)
        if undo is not None and running.exception() is None:
            await _end(loop.run_in_executor(None, undo, running.result()))
        raise


async def _end(running: asyncio.Future[T]) -> None:
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue  # once is enough
