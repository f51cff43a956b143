"""What time is it in a test?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from p2pqueue.errors import MisuseError
from p2pqueue.jobs.backoff import seconds
from p2pqueue.replica.replica import wall_clock

Due = Callable[[], int | None]


class Clock:
    """A clock that stands still until it is told to go on.

    :param start: the time that it shows first, with a time zone; default that of the system.
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise MisuseError("a clock starts at a time with a time zone, as in datetime(2030, 1, 1, tzinfo=timezone.utc)")
        self.ms = wall_clock() if start is None else round(start.timestamp() * 1000)  # since 1970, UTC
        self._followers: list[tuple[Due, Callable[[], object]]] = []  # when something comes due, and what is called then

    def __repr__(self) -> str:
        return f"<Clock {self.now.isoformat()}>"

    def __call__(self) -> int:
        """Milliseconds since 1970, UTC."""
        return self.ms

    @property
    def now(self) -> datetime:
        """The time that it shows."""
        return datetime.fromtimestamp(self.ms / 1000, UTC)

    def advance(self, duration: float | timedelta) -> None:
        """Goes on by so many seconds, or a `timedelta`; what comes due on the way runs in its order, at its time."""
        wanted = seconds(duration)
        if not wanted >= 0:
            raise MisuseError(f"a clock goes forward: advance takes 0 seconds or more, not {wanted:g}")
        target = self.ms + round(wanted * 1000)
        before = -1
        while (due := self._next_due()) is not None and before < due <= target:
            self.ms, before = max(self.ms, due), due
            self._tell()
        self.ms = max(self.ms, target)
        self._tell()

    def follow(self, due: Due, then: Callable[[], object]) -> None:
        """Stops on its way at the moments that `due` gives, and calls `then` there and at the end of each way."""
        self._followers.append((due, then))

    def leave(self, then: Callable[[], object]) -> None:
        """Ends what `follow` began."""
        self._followers = [each for each in self._followers if each[1] != then]

    def _next_due(self) -> int | None:
        return min((due for asked, _ in self._followers if (due := asked()) is not None), default=None)

    def _tell(self) -> None:
        for _, then in list(self._followers):
            then()
