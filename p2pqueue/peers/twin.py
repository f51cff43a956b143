"""Does another running device use the key of this one, and is it there still?

As long as both run they meet again and again, since each dials the other wherever it was met.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

GONE_AFTER: Final = 10.0  # seconds without a meeting, five times what lies between two dials of a twin, until it counts as gone
_LOOK_EVERY: Final = 0.5
_MEND: Final = "stop one of the two and run `p2pqueue identity renew` there; until then this node takes no jobs, and none can be enqueued"

_log = logging.getLogger(__name__)


class Twin:
    """The other device of the same key, if there is one.

    :param is_usable: says whether a device that runs could be met now: offline or without a cable nobody is.
    :param on_change: gets the trouble in words when the twin is first met, and None when it is gone.
    """

    def __init__(self, *, is_usable: Callable[[], bool], on_change: Callable[[str | None], object]) -> None:
        self._is_usable = is_usable
        self._on_change = on_change
        self._met = 0.0
        self.trouble: str | None = None

    def met(self, words: str) -> None:
        """It was met, once more perhaps."""
        self._met = time.monotonic()
        if self.trouble is None:
            self.trouble = f"{words}; {_MEND}"
            _log.error("%s", self.trouble)
            self._on_change(self.trouble)

    async def run(self) -> None:
        """Notices that it is gone, until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if self.trouble is None:
                continue
            if not self._is_usable():
                self._met = time.monotonic()
            elif time.monotonic() - self._met > GONE_AFTER:
                self.trouble = None
                _log.warning("the other device with the key of this one is gone or has another key now: jobs are taken again")
                self._on_change(None)
