"""How does a loop of the node go on after the disk or the home failed it for a while?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from p2pqueue.cancelling import cancellable
from p2pqueue.errors import P2PQueueError

AGAIN_AFTER = 1.0  # seconds until a loop that was ended by an error begins anew

_log = logging.getLogger(__name__)


async def supervised(loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a loop for ever: a full disk or a home that can't be read for a while is told, and it begins anew.

    So it is too where the error ended one of the tasks that the loop is made of.
    """
    while True:
        try:
            await cancellable(loop())
            return
        except* P2PQueueError as group:
            for error in _each(group):
                _log.error("%s", error)
        await asyncio.sleep(AGAIN_AFTER)


def _each(group: BaseExceptionGroup[P2PQueueError]) -> Iterator[P2PQueueError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _each(error)
        else:
            yield error
