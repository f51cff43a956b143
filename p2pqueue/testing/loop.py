"""Where do the coroutines of a worker run, while handlers run in the thread of the test?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="p2pqueue-testing", daemon=True)
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begins a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there to its end."""
        return self.begin(coroutine).result()

    def call(self, fn: Callable[[], object]) -> None:
        """Calls a function there, and waits for its end; for what is no business of another thread."""

        async def called() -> None:
            fn()

        if threading.current_thread() is self._thread:
            fn()
        else:
            self.run(called())

    def close(self) -> None:
        """Ends the loop."""
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _end(self) -> None:
        own = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not own]  # where the test was broken off
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        await self.loop.shutdown_default_executor()
