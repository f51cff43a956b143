"""What do we do when digests differ although everything was counted? Pure.

Every few minutes each side tells its digests. Where both count and hold the same numbers, and digests differ,
something went wrong; it is reported, and the buckets that differ are exchanged page by page and merged as a repair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from p2pqueue.replica.syncing.digest import differing, held_hash
from p2pqueue.replica.syncing.effects import BucketPage, DigestRead, Effect, Merge, ReadBucket, ReadDigest, ReadGreater, Report, Send
from p2pqueue.replica.syncing.messages import Bucket, Digest, Mend, More
from p2pqueue.replica.write import Head, Write

DIGEST_EVERY = 240.0  # seconds between digests, give or take a quarter
TWIN_AFTER = 1.0  # seconds from the sight of a forked author to the next digest: rounds may end before


class Mending:
    """Compares, and exchanges what differs, one bucket after the other."""

    def __init__(self, number: Callable[[], int], jitter: Callable[[], float], now: float, *, every: float = DIGEST_EVERY) -> None:
        self._number = number
        self._jitter = jitter
        self._every = every
        self._at = self._next(now)
        self._telling = 0  # number of the read whose digests are told
        self._theirs: dict[int, Digest] = {}  # by the number of the read to compare with
        self._merging: dict[int, Mend] = {}
        self._todo: deque[Bucket] = deque()
        self._twin: Mapping[bytes, Head] = {}

    @property
    def due(self) -> float:
        """When `advance` must be called at the latest."""
        return self._at

    def advance(self, now: float) -> list[Effect]:
        """Takes our digests when it is time."""
        if now < self._at:
            return []
        self._at = self._next(now)
        self._telling = self._number()
        return [ReadDigest(self._telling)]

    def compare(self, ours: Mapping[bytes, Head], theirs: Mapping[bytes, Head], now: float) -> list[Effect]:
        """Looks for authors that are known by two tags: their writes may differ though their numbers don't."""
        twins = {author: head for author, head in theirs.items() if ours.get(author, head) != head and ours[author].seq == head.seq}
        if not twins or twins == self._twin:
            return []
        self._twin = twins
        self._at = min(self._at, now + TWIN_AFTER)
        return [Report("twin", " ".join(author.hex() for author in twins))]

    def received(self, message: Digest | Mend | More) -> list[Effect]:
        """Takes a message of the peer's."""
        number = self._number()
        if isinstance(message, Digest):
            self._theirs = {number: message}
            return [ReadDigest(number)]
        if isinstance(message, More):
            return [ReadBucket(number, message.bucket, message.after)]
        self._merging[number] = message
        return [Merge(number, message.writes, repair=True)]

    def digest_read(self, request: ReadDigest, read: DigestRead) -> list[Effect]:
        """Our digests have been taken: to be told, or to compare with the peer's."""
        theirs = self._theirs.pop(request.number, None)
        if theirs is None:
            return [Send(Digest(read.heads, held_hash(read.held), read.buckets))]
        if _numbers(read.heads) != _numbers(theirs.heads) or held_hash(read.held) != theirs.held:
            return []
        common = read.buckets.keys() & theirs.buckets.keys()  # an older version doesn't know every table
        self._todo = deque(
            Bucket(table, number) for table in sorted(common) for number in differing(read.buckets[table], theirs.buckets[table])
        )
        if not self._todo:
            return []
        return [Report("digest", f"{len(self._todo)} buckets differ"), *self._next_bucket()]

    def bucket_read(self, request: ReadBucket, page: BucketPage) -> list[Effect]:
        """A page of a bucket of ours goes out."""
        return [Send(Mend(request.bucket, page.writes, resume=page.resume))]

    def merged(self, request: Merge) -> list[Effect]:
        """A page of the peer's is in: answer what stands above it here, and go on."""
        message = self._merging.pop(request.number, None)
        if message is None or message.answer:
            return []
        effects: list[Effect] = [ReadGreater(self._number(), message.bucket, message.writes)]
        if message.resume is not None:
            return [*effects, Send(More(message.bucket, message.resume))]
        if self._todo and self._todo[0] == message.bucket:
            self._todo.popleft()
            effects += self._next_bucket()
        return effects

    def greater_read(self, request: ReadGreater, writes: tuple[Write, ...]) -> list[Effect]:
        """What stands here above the peer's page goes back to it."""
        return [Send(Mend(request.bucket, writes, answer=True))] if writes else []

    def _next(self, now: float) -> float:
        return now + self._every * (0.75 + 0.5 * self._jitter())

    def _next_bucket(self) -> list[Effect]:
        if not self._todo:
            return []
        bucket = self._todo[0]
        return [ReadBucket(self._number(), bucket, None), Send(More(bucket))]


def _numbers(heads: Mapping[bytes, Head]) -> dict[bytes, int]:
    return {author: head.seq for author, head in heads.items() if head.seq}
