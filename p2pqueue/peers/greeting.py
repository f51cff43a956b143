"""When does a device say `hello`?"""

from __future__ import annotations

import asyncio

from p2pqueue.peers.signals import Signals

LOOK_EVERY = 10.0  # seconds at most between two looks at what is due


async def greet(signals: Signals, hurried: asyncio.Event) -> None:
    """Says `hello` whenever it is due, and as soon as it may be when `hurried` is set, until it is cancelled.

    `Signals` must be made with the time of this loop.
    """
    loop = asyncio.get_running_loop()
    while True:
        signals.tick()
        try:
            async with asyncio.timeout(min(max(signals.due - loop.time(), 0.01), LOOK_EVERY)):
                await hurried.wait()
        except TimeoutError:
            continue
        hurried.clear()
        signals.hurry()
