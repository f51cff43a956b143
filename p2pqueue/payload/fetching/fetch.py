"""How does a file come to this device from the others?

First the shards of its manifest, then its chunks, from every source that has some, several at a time. Each is checked
against its address, opened and written where it belongs; memory stays the same whatever the size. A source that fails,
lies or falls silent costs time and nothing else: what was asked of it is asked of another. What has come stays when a
fetch ends before its time, and the next one goes on from there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, ParamSpec, TypeVar

from p2pqueue.cancelling import cancellable
from p2pqueue.errors import DiskFull, MalformedMessage
from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability, parse_capability
from p2pqueue.payload.expected import Claim
from p2pqueue.payload.fetching.budget import Budget
from p2pqueue.payload.fetching.folder_landing import FolderLanding
from p2pqueue.payload.fetching.gathering import NOBODY, Manifests
from p2pqueue.payload.fetching.landing import Landing
from p2pqueue.payload.fetching.several import Several
from p2pqueue.payload.fetching.source import Lane, Source
from p2pqueue.payload.fetching.threaded import to_end, to_end_or_undo
from p2pqueue.payload.fetching.transfer import STANDS_AFTER, Holders, Means, Progress, Running, nobody
from p2pqueue.payload.fetching.transfers import SourceShare, Transfer, Transfers
from p2pqueue.payload.layout import Layout
from p2pqueue.payload.limit import Limits
from p2pqueue.payload.manifest import FileManifest, FolderManifest, PartedManifest, TreeManifest
from p2pqueue.payload.names import safe_name
from p2pqueue.payload.publish import enter_folder
from p2pqueue.payload.shelf import Shelf

IN_FLIGHT: Final = 32 * 1024**2  # bytes of shards that are asked for, or wait to be written, in this process
MOST_THREADS: Final = 64  # that lanes may have at once
CHECKING: Final = 2  # threads that check what came over lanes without threads of their own
AT_ONCE: Final = 4  # files of one manifest that are fetched at the same time
DEEPEST: Final = 64  # manifests of manifests in one another
ROOM_AGAIN: Final = 0.5  # seconds between two looks of who waits for the room that others have claimed

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Fetched:
    """What a fetch brought: bytes by (source, lane). Nothing where everything was here already."""

    received: dict[tuple[str, Lane], int]


@dataclass
class _Wanted:
    """A file that is being fetched, for as many as want it."""

    by: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    listeners: list[Progress] = field(default_factory=list)


class Fetcher:
    """Brings files to a shelf. `sources` is asked again and again for the sources there are now.

    :param limits: what people set of transfers; by default nothing is limited.
    :param holders: tells the ids of the devices that should have the file of a capability, and what they are called.
    :param called: what people call a source.
    """

    def __init__(
        self, shelf: Shelf, sources: Callable[[], Sequence[Source]], *, limits: Limits | None = None, holders: Holders = nobody,
        called: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self._shelf = shelf
        self.limits = Limits() if limits is None else limits
        self.transfers = Transfers()
        self._means = Means(
            sources, self.limits, Budget(IN_FLIGHT),
            ThreadPoolExecutor(MOST_THREADS, "p2pqueue-lane"), ThreadPoolExecutor(CHECKING, "p2pqueue-check"), holders, called,
        )  # fmt: skip
        self._wanted: dict[bytes, _Wanted] = {}

    async def fetch(self, capability: str, *, on_progress: Progress | None = None) -> Fetched:
        """Makes the shelf hold a file, or all files that a manifest lists.

        `on_progress` is told the bytes that are here and those of the whole file. Raises `PayloadUnavailable` where no
        source has it now, `BadShard` and `MalformedMessage` for a manifest that is wrong, and `DiskFull`; what of it
        is here stays, and a later fetch goes on from there.
        """
        root = parse_capability(capability)
        wanted = self._wanted.setdefault(root.address, _Wanted())
        received: Counter[tuple[str, Lane]] = Counter()
        wanted.by += 1
        if on_progress is not None:
            wanted.listeners.append(on_progress)
        try:
            async with wanted.turn:  # several jobs may want one file: one fetches, and if it is stopped, the next one goes on
                if not await asyncio.to_thread(self._shelf.holds, root.text):
                    fetch = _Fetch(self._shelf, self._means, self.transfers, received, time.monotonic(), root)
                    with self.transfers.under_way(root.address, fetch.look):
                        await cancellable(fetch.bring(root, wanted.listeners))
        finally:
            if on_progress is not None:
                wanted.listeners.remove(on_progress)
            wanted.by -= 1
            if not wanted.by:
                del self._wanted[root.address]
        return Fetched(dict(received))

    async def describe(self, capability: str) -> FileManifest | FolderManifest | TreeManifest:
        """What a manifest tells, of which nothing else is fetched and nothing kept. Raises as `fetch` does."""
        with self._shelf.batch() as batch:
            manifest = await Manifests(self._means.sources, batch, Counter(), called=self._means.called).read(parse_capability(capability))
            return manifest.head if isinstance(manifest, PartedManifest) else manifest


@dataclass
class _Fetch:
    """One fetch, of however many files."""

    shelf: Shelf
    means: Means
    transfers: Transfers
    received: Counter[tuple[str, Lane]]
    peers_at: float  # when a peer delivered last, or the start
    root: Capability
    running: Running | None = None  # where it is a single file
    several: Several | None = None  # where its manifest lists several
    manifests: Manifests | None = None
    waits_for: str = ""  # the name of what waits for room
    begun_at: float = field(default_factory=time.monotonic)
    turns: dict[bytes, asyncio.Lock] = field(default_factory=dict)  # by the address of each manifest
    done: set[bytes] = field(default_factory=set)

    def look(self) -> Transfer:
        """How it stands."""
        if self.running is not None:
            return self.running.look()
        if self.several is not None and self.several.under_way:
            return self.several.look(self.root.text)
        now, sources = time.monotonic(), self.means.sources()
        called, received = self.means.called, self.received
        asked = tuple(
            [SourceShare(each.name, each.lane, received[each.name, each.lane], 0.0, "used", called(each.name)) for each in sources]
        )
        why = None
        if self.waits_for:
            why = f"{safe_name(self.waits_for)} waits for room on this disk: other files are on their way, and take what is left"
        elif now - self.begun_at >= STANDS_AFTER:
            paused = self.manifests.paused if self.manifests is not None else ()
            why = "its manifest was asked for and has not come yet" if asked else NOBODY
            why = f"transfers are paused on {', '.join(map(called, paused))}" if paused else why
        return Transfer(self.root.text, "", 0, 0, 0.0, None, asked, why)

    async def bring(self, root: Capability, listeners: Sequence[Progress] = (), *, depth: int = 0) -> None:
        if depth > DEEPEST:
            raise MalformedMessage(f"its manifests are nested more than {DEEPEST} deep")
        async with self.turns.setdefault(root.address, asyncio.Lock()):  # many manifests may list one
            if root.address not in self.done and not await asyncio.to_thread(self.shelf.holds, root.text):
                await self._bring(root, listeners, depth)
            self.done.add(root.address)

    async def _bring(self, root: Capability, listeners: Sequence[Progress], depth: int) -> None:
        with self.shelf.batch() as batch:
            manifests = Manifests(self.means.sources, batch, self.received, lambda: self.means.holders(root.text), called=self.means.called)
            self.manifests = manifests
            manifest = await manifests.read(root)
            if isinstance(manifest, FolderManifest):
                if root == self.root:
                    self.several = Several(manifest)
                await self._bring_all(manifest, depth + 1)
                folder = manifest
                await to_end(batch.end, lambda connection: enter_folder(connection, root, folder, batch.addresses), keep=root.address)
                return
            await self._bring_file(root, await self._content(manifest, manifests), batch, listeners)

    async def _content(self, manifest: FileManifest | PartedManifest | TreeManifest, manifests: Manifests) -> FileManifest | Layout:
        if isinstance(manifest, FileManifest):
            return manifest
        size = manifest.size if isinstance(manifest, TreeManifest) else manifest.head.size
        await self._with_room(self.shelf.check_room_for, size)  # before memory is taken for what it claims
        return await (manifests.layout(manifest) if isinstance(manifest, TreeManifest) else manifests.complete(manifest))

    async def _bring_all(self, manifest: FolderManifest, depth: int) -> None:
        left = iter(manifest.entries)

        async def work() -> None:
            for entry in left:
                await self.bring(entry.capability, depth=depth)
                if self.several is not None and manifest is self.several.manifest:
                    self.several.here += entry.size

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _bring_file(self, root: Capability, manifest: FileManifest | Layout, batch: Batch, listeners: Sequence[Progress]) -> None:
        def tell(done: int, size: int) -> None:
            for listener in tuple(listeners):
                listener(done, size)

        claim = await self._claim(root, manifest)
        try:
            await self._land(root, manifest, batch, tell, claim)
        finally:
            self.shelf.expected.give_up(claim)

    async def _claim(self, root: Capability, manifest: FileManifest | Layout) -> Claim:
        """Speaks for the room of a file; waits for it where others have it that are on their way."""
        try:
            while (claim := await self._with_room(self.shelf.claim, root, manifest)) is None:
                self.waits_for = manifest.name
                await asyncio.sleep(ROOM_AGAIN)
        finally:
            self.waits_for = ""
        return claim

    async def _with_room(self, look: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Looks for room, and once more after what nothing needs was freed."""
        try:
            return await to_end_or_undo(self._give_up, look, *args, **kwargs)
        except DiskFull:
            if self.shelf.make_room is None:
                raise
            await self.shelf.make_room()
            return await to_end_or_undo(self._give_up, look, *args, **kwargs)

    def _give_up(self, claim: object) -> None:
        if isinstance(claim, Claim):
            self.shelf.expected.give_up(claim)

    async def _land(self, root: Capability, manifest: FileManifest | Layout, batch: Batch, tell: Progress, claim: Claim) -> None:
        needed = claim.left()
        landing = await to_end_or_undo(_close, self.shelf.landing, root, manifest)
        try:
            running = Running(
                root.text, manifest.name, manifest, manifest.size, landing, self.means, landing.touch,
                self.shelf.check_reserve, tell, self.peers_at,
            )  # fmt: skip
            first = running.desk.verified
            claim.left = lambda: needed - (running.desk.verified - first)
            if root == self.root:
                self.running = running
            elif self.several is not None:
                self.several.under_way[root.address] = running.look
            with nullcontext() if root == self.root else self.transfers.under_way(root.address, running.look):
                try:
                    await running.run()
                finally:
                    self.received.update(running.desk.received)
                    self.peers_at = max(self.peers_at, running.desk.plan.peers_at)
                await to_end(landing.finish, batch, root)
        finally:
            if self.several is not None:
                self.several.under_way.pop(root.address, None)
            await to_end(_close, landing)


def _close(landing: Landing | FolderLanding) -> None:
    with landing:
        pass
