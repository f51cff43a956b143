"""How does a loop of the network go on after a fault?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

AGAIN_AFTER = 1.0  # seconds until a loop that was ended by an error begins anew

_log = logging.getLogger(__name__)


async def supervised(loop: Callable[[], Awaitable[None]]) -> None:
    """Runs a loop for ever: a fault in it, or in what it calls back, is logged, and it begins anew."""
    while True:
        try:
            await loop()
        except Exception:  # noqa: BLE001  the node lives on, and so does its networking
            _log.exception("a loop of the network begins anew")
        await asyncio.sleep(AGAIN_AFTER)
