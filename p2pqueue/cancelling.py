"""How does a task end that was told to, where what it waits for fails at that very moment?

A `TaskGroup` of Python 3.11 and 3.12 tells the failure alone then, and that somebody cancelled its owner is lost: a loop
that begins anew after failures would go on for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def cancellable(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives or raises; a cancellation of the caller comes first, whatever `work` raises when it ends of it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # nobody wants to know any more
        raise
    return task.result()
