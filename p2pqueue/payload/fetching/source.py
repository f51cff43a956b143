"""Where else can a shard come from? What a fetch asks of each place: a peer over one of its lanes, or an origin.

This room knows no network; whoever does hands sources in. A device that can be reached by several lanes is several
sources with the same `name` and different `lane`: the planner measures them, and uses the fastest one.

Every source has `shard`, which gives the bytes of one shard to the event loop. A lane that can do better offers one
of these as well, and is then asked by that alone:

`deliver` (`Delivering`)
    still in the event loop, but straight into the buffer of the request: nothing is put together or copied there.

`carry` (`Carrying`)
    in threads: the lane takes one request after the other from the `Work` that it is given, receives each into the
    request's own buffer, and calls `finish`, which checks, opens and writes the shard in that same thread. The event
    loop has no part in it::

        def carry(self, work: Work) -> None:
            while (request := work.take()) is not None:
                try:
                    into = request.room(self.ask(request.address))   # how long the answer says it is
                    while into:
                        read = self.socket.recv_into(into)           # with a time-out of half a second, after
                        into = into[read:]                           # which `request.wanted` is looked at
                        request.advance(read)
                except (ShardMissing, SourceFailed, BadShard) as error:
                    request.fail(error)
                else:
                    request.finish()
"""

from __future__ import annotations

from typing import Literal, Protocol

from p2pqueue.errors import BadShard

Lane = Literal["webrtc", "http", "link", "origin"]


class ShardMissing(Exception):
    """This source doesn't have the shard; others may. Its text says why, where the source once had it."""


class SourceFailed(Exception):
    """This source can't be reached now, in words."""


class Source(Protocol):
    """One place that may have shards. It is asked by several tasks at once, `parallel` at most.

    An attribute `metered`, where it is there and true, says that bytes cost money on this way.
    """

    @property
    def name(self) -> str:
        """What it is called in words and counts: a device's id, or an origin's address."""

    @property
    def lane(self) -> Lane:
        """The way that its bytes come now."""

    @property
    def parallel(self) -> int:
        """How many shards may be asked of it at the same time."""

    @property
    def is_last_resort(self) -> bool:
        """Says whether it is asked only when nothing nearer delivers: an origin."""

    async def shard(self, address: bytes, size: int) -> bytes:
        """The shard of that address, of at most `size` bytes, unchecked. Raises `ShardMissing` and `SourceFailed`."""


class Request(Protocol):
    """One shard that is asked of one source. For any thread, but for one at a time."""

    @property
    def address(self) -> bytes:
        """What is asked for."""

    @property
    def size(self) -> int:
        """How many bytes it may have at most."""

    @property
    def wanted(self) -> bool:
        """Says whether anybody waits for it still. If not, the lane gives it up at once, by closing its connection if need be."""

    def room(self, size: int) -> memoryview:
        """The buffer for a shard of exactly that many bytes; the same one when it is asked for again.

        Raises `BadShard` for more than `size`, or for nothing: the lane then hands that error to `fail`.
        """

    def put(self, body: memoryview) -> None:
        """Instead of `room`: what came, where it came in memory of its own. Nobody changes that any more."""

    def advance(self, size: int) -> None:
        """Tells that so many more bytes have come: a source that is slow is not taken for a silent one."""

    def finish(self) -> bool:
        """The buffer is full: checks, opens and writes it in this thread, and says whether it was right. Never raises."""

    def fail(self, error: ShardMissing | SourceFailed | BadShard | TimeoutError) -> None:
        """It can't be had here: others are asked."""


class Work(Protocol):
    """What there is for one source to do in one fetch. For all threads of its lane at once."""

    def take(self, *, wait: bool = True) -> Request | None:
        """The next shard to ask for. None: there is nothing now, and `carry` is to return; it is called again when there is.

        It waits a while for something to do, except with `wait=False`: a lane that asks for the next shard before the
        last has come takes it so. How much is under way at once is decided here, not by the lane.
        """

    @property
    def ended(self) -> bool:
        """Says whether this lane is not used any more, for now or for good."""


class Delivering(Source, Protocol):
    """A source that receives into the buffer of the request, in the event loop."""

    async def deliver(self, request: Request) -> None:
        """Fills `request.room(…)`, or calls `put`; the fetch finishes it in a thread. Raises `ShardMissing`, `SourceFailed`, `BadShard`.

        It is cancelled when the shard is not wanted any more.
        """


class Carrying(Source, Protocol):
    """A source that works in threads of its own."""

    @property
    def threads(self) -> int:
        """How many threads may be in `carry` at once."""

    def carry(self, work: Work) -> None:
        """Does what `work` gives until that gives None. Called in a thread of the fetcher.

        What it took and didn't answer when it returns or raises `SourceFailed` counts as failed. It looks at
        `wanted` at least every half second while it waits for bytes.
        """
