"""What has a worker to do with the workers of other devices? It leaves them what they do better, and tells them when it is full.

Without any other device in sight nothing here costs anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from p2pqueue.workers.claimed import ClaimedJob, Ending
from p2pqueue.workers.claiming.contest import Contest, Survey
from p2pqueue.workers.claiming.foretold import Told
from p2pqueue.workers.claiming.presence import Presence, Roster
from p2pqueue.workers.claiming.ranking import STEP

TELL_AGAIN = 0.2  # seconds between two presences that tell of slots
SHORT_LOOK = 200  # jobs left to others up to which a look at all of them costs next to nothing
SLOW = 8.0  # times as long as a turn takes others are given at least: a busy machine hears late of what they took
AVERAGED = 8  # turns
TOLD_AT_ONCE = 100.0  # signals of what begins: they are allowed so many at once, and as many a second
TOLD_IN_ONE = 200  # jobs
REST = 3.0  # times as long as a longer look took nothing is looked at again


class Company:
    """The other workers, as one worker meets them.

    `me` is what this worker tells of itself; `on_free` is called when its last slot filled, or the first came free;
    `on_begun` with what begins now, and the ids of jobs that are given back and had not begun.
    """

    def __init__(
        self, roster: Roster | None, me: Callable[[], Presence], on_free: Callable[[], object],
        on_begun: Callable[[Sequence[Told], Sequence[str]], object],
    ) -> None:  # fmt: skip
        self._roster = roster
        self._on_begun = on_begun
        self._may_tell, self._counted_at = TOLD_AT_ONCE, 0.0
        self._me = me
        self._on_free = on_free
        self._contest = Contest()
        self._looked_at = 0.0
        self._looking = False
        self._took = 0.0  # seconds from the beginning of a turn to its end, lately
        self._rests_until = 0.0
        self._has_free = True  # as told last
        self._told_at = 0.0
        self._telling: asyncio.TimerHandle | None = None

    def survey(self) -> Survey | None:
        """A look at the jobs that can be claimed, if there is anybody to leave them to."""
        if self._roster is None:
            return None
        now, me = time.monotonic(), self._me()
        others = [each for each in self._roster.live(now) if each.device_id != me.device_id and each.slots > 0]
        self._looking = bool(others)
        if not others:
            if self._contest.waiting:
                self._contest.clear()
            return None
        self._looked_at = now
        self._contest.lose_sight(self._roster.foretold.heard_lately())
        return self._contest.begin(me, others, now, self._roster.turned, step=max(STEP, SLOW * self._took))

    def looked(self, claimed: int) -> None:
        """The look is over. One that took long and came to nothing isn't repeated at once."""
        if self._looking:
            self._took += (time.monotonic() - self._looked_at - self._took) / AVERAGED
        if self._looking and not claimed and self._contest.waiting > SHORT_LOOK:
            now = time.monotonic()
            self._rests_until = now + REST * (now - self._looked_at)

    def rest(self) -> float:
        """Seconds for which nothing is claimed yet: until a first peer has told of itself, or after a long look."""
        if self._roster is None:
            return 0.0
        now = time.monotonic()
        self._roster.look(now, time.time())
        until = self._roster.waits_until(now)
        return max(self._rests_until, 0.0 if until is None else until) - now

    def waits(self) -> list[float]:
        """Seconds until the first of the jobs that were left to others may be taken."""
        now = time.monotonic()
        foretold = None if self._roster is None else self._roster.foretold.until(now)
        return [until - now for until in (self._contest.until, foretold) if until is not None]

    def begins(self, claimed: Sequence[ClaimedJob], author: bytes, endings: Sequence[Ending]) -> None:
        """Tells others what begins now, before it does: should this node die of it, they count the attempt."""
        if self._roster is None or not self._roster.others:
            return
        back = [ending.job.job_id for ending in endings if ending.unstarted]
        if not claimed and not back:
            return
        now = time.monotonic()
        self._may_tell = min(TOLD_AT_ONCE, self._may_tell + (now - self._counted_at) * TOLD_AT_ONCE)
        self._counted_at = now
        if self._may_tell < 1:
            return  # so many end at once that what they tell comes too late
        self._may_tell -= 1
        told = [Told(job.job_id, job.holder.generation, job.holder.claim, job.attempt, author) for job in claimed]
        self._on_begun(told[:TOLD_IN_ONE], back[:TOLD_IN_ONE])

    def taken(self) -> Mapping[str, tuple[int, int]]:
        """The jobs that others have begun, as they told, with generation and number of the claim."""
        return {} if self._roster is None else self._roster.foretold.taken(time.monotonic())

    def written(self, job_ids: Collection[str]) -> None:
        """Rows of these jobs have come from others."""
        if self._roster is not None:
            self._roster.foretold.written(job_ids)

    def reasons(self) -> dict[str, tuple[str, float]]:
        """Why jobs wait that were left to others, and until when (monotonic)."""
        return self._contest.reasons

    def reason(self, job_id: str) -> str | None:
        """Why a job waits, if it was left to another worker and may still be."""
        found = self._contest.reasons.get(job_id)
        return found[0] if found is not None and found[1] > time.monotonic() else None

    def holds_off(self) -> str | None:
        """Why nothing is claimed yet, after a start or a sleep, in words."""
        return None if self._roster is None else self._roster.holds_off(self._me().label, time.monotonic())

    def fills(self) -> None:
        """Tells others at once when the last slot has filled or the first has come free, but not at each of many turns."""
        if self._roster is None or (self._me().free > 0) == self._has_free or self._telling is not None:
            return
        wait = self._told_at + TELL_AGAIN - time.monotonic()
        if wait > 0:
            self._telling = asyncio.get_running_loop().call_later(wait, self._tell)
        else:
            self._tell()

    def _tell(self) -> None:
        self._telling = None
        has_free = self._me().free > 0
        if has_free != self._has_free:
            self._has_free, self._told_at = has_free, time.monotonic()
            self._on_free()

    def close(self) -> None:
        """Tells nothing more."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
