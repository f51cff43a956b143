"""When does a node link to the other devices of its space, and what may be asked of it meanwhile?

As long as no other device is known and none is invited, nothing listens, and nothing is imported that a device by
itself has no use for.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.errors import ConfigError, P2PQueueError, PayloadUnavailable, WorldError
from p2pqueue.identity import members as reading
from p2pqueue.payload.capability import parse_capability
from p2pqueue.peers import book as address_book
from p2pqueue.peers import options
from p2pqueue.peers.parts import Parts

if TYPE_CHECKING:
    from p2pqueue.identity.keys import Identity
    from p2pqueue.payload.fetching.fetch import Fetched
    from p2pqueue.payload.fetching.transfers import Transfer
    from p2pqueue.payload.manifest import FileManifest, FolderManifest, TreeManifest
    from p2pqueue.peers.links import Links
    from p2pqueue.workers.claiming.foretold import Told

AGAIN_AFTER: Final = 30.0  # seconds until networking is tried again that could not begin
BEGUN_WITHIN: Final = 20.0  # seconds that a fetch waits for networking to begin: its libraries are imported meanwhile
SAVE_EVERY: Final = 60.0  # seconds between two looks whether addresses are to be kept

_LOOK_EVERY: Final = 0.1  # seconds between two looks whether it has begun
_SPACE_TABLES = frozenset({"devices", "standings", "space", "authors"})
_log = logging.getLogger(__name__)


class Network:
    """The networking of one node."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._links: Links | None = None
        self._want(parts.settings.network)  # `offline` and `online` change it
        self._inviting = 0
        self._wake = asyncio.Event()
        self._settling = asyncio.Lock()
        self._has_settled = False  # once, so that networking has begun if it should
        self._group: asyncio.TaskGroup | None = None
        self.trouble: str | None = None  # why networking could not begin

    # -- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begins networking, if there is anybody to link to. Raises `ConfigError` for what can't be meant."""
        for words in options.check(self._parts.settings):
            _log.warning("%s", words)
        self._book = await address_book.load(self._parts.store)
        await self._read_members()
        await self._settle()

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            if self._links is not None:
                group.create_task(self._links.run())
            for loop in (self._follow(), self._keep(), self._keep_book()):
                group.create_task(loop)

    async def close(self) -> None:
        """Says goodbye and ends all networking."""
        if self._links is not None and self._links.mesh.is_online:
            await self._links.end(stopping=True)
            try:
                await address_book.save(self._parts.store, self._book)
            except P2PQueueError as error:  # a full disk doesn't keep a node from stopping in order
                _log.warning("the addresses of other devices were not kept: %s", error)

    async def offline(self) -> None:
        """Stops all networking until `online`."""
        self._want(False)
        await self._settle()

    async def online(self) -> None:
        """Begins all networking anew."""
        self._want(True)
        await self._settle()

    # -- what may be asked ------------------------------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        """Where other devices reach this one, as `HOST:PORT`; none while it doesn't listen."""
        return [] if self._links is None else self._links.addresses()

    async def fetch(self, capability: str, on_progress: Callable[[int, int], None] | None = None) -> Fetched:
        """Brings a file here. Raises `PayloadUnavailable` and what `Fetcher.fetch` raises."""
        return await (await self._begun()).fetcher.fetch(capability, on_progress=on_progress)

    async def describe(self, capability: str) -> FileManifest | FolderManifest | TreeManifest:
        """What the manifest of a file that is elsewhere tells. Raises as `fetch` does."""
        return await (await self._begun()).fetcher.describe(capability)

    async def _begun(self) -> Links:
        """The links, as soon as networking has begun, where it begins at all. Raises `PayloadUnavailable`."""
        until = time.monotonic() + BEGUN_WITHIN
        while True:
            if self._links is not None and self._links.mesh.is_online:
                return self._links
            begins = not self._has_settled or self._settling.locked() or (self._parts.members.known() and self.trouble is None)
            if not (begins and self._wanted_on) or time.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK_EVERY)
        if self.trouble is not None:
            raise PayloadUnavailable(f"the content is on another device, and networking can't begin: {self.trouble}")
        if not self._wanted_on:
            raise PayloadUnavailable("the content is on another device, and this one is offline: `p2pqueue online` begins its networking")
        raise PayloadUnavailable(
            "the content is on another device, and this one knows of none and of no origin: `p2pqueue invite` lets one in, "
            "`p2pqueue config set origin` names an origin"
        )

    def transfer(self, capability: str) -> Transfer | None:
        """How the fetch of one file stands; None where it is not under way."""
        return None if self._links is None else self._links.fetcher.transfers.of(parse_capability(capability).address)

    def transfers(self) -> tuple[Transfer, ...]:
        """The files that are on their way to this device."""
        return self._links.fetcher.transfers.now() if self._links is not None else ()

    async def follow_transfers(self) -> AsyncGenerator[tuple[Transfer, ...], None]:
        """The same again and again, until this device is linked to none any more."""
        if self._links is None:
            yield ()
            return
        async with aclosing(self._links.fetcher.transfers.follow()) as looks:
            async for look in looks:
                yield look

    async def invite(self, fields: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Tells what becomes of a code, as `Invitations.asked` does; networking begins for it if need be."""
        self._inviting += 1
        try:
            await self._settle()
            if self._links is None or not self._links.mesh.is_online:
                raise WorldError(self.trouble or "This device is offline; `p2pqueue online` begins its networking again")
            async with aclosing(self._links.invitations.asked(fields)) as events:
                async for event in events:
                    if "joined" in event:
                        await self._read_members()  # before it is told: whoever hears it may leave, and then there must be a reason to stay
                    yield event
        finally:
            self._inviting -= 1
            self._wake.set()  # nothing may be left to listen for

    def peers(self) -> dict[str, dict[str, Any]]:
        """The linked devices by their ids, and how they are linked."""
        return {} if self._links is None else self._links.peers()

    def linked(self, device_id: str) -> bool:
        """Says whether a device is linked now."""
        return self._links is not None and device_id in self._links.mesh.peers

    @property
    def is_usable(self) -> bool:
        """Says whether this device could hear of others: networking goes on, and there is an interface for it."""
        return self._links is not None and self._links.mesh.is_online and self._links.mesh.has_interface

    def synced_at(self) -> float | None:
        """When a round of replication with a linked device was finished last, in the loop's time.

        None while none is linked, minus infinity while no round is finished.
        """
        rounds = {} if self._links is None else self._links.replication.status()
        ages = [each["last_done"] for each in rounds.values() if each["last_done"] is not None]
        return None if not rounds else asyncio.get_running_loop().time() - min(ages) if ages else -math.inf

    def status(self) -> dict[str, Any]:
        """How networking stands, as plain values."""
        told: Mapping[str, Any] = {"online": False, "peers": [], "refused": [], "carried": {}}
        if self._links is not None:
            told = self._links.status()
        return {**told, "wanted": self._wanted_on, "trouble": self.trouble or told.get("trouble")}

    # -- what happens here ------------------------------------------------------------------------------------

    def told_progress(self, job_id: str, claim: int, fraction: float, phase: str) -> None:
        """Tells others how far a job is that runs here."""
        if self._links is not None:
            self._links.hearsay.progress(job_id, claim, fraction, phase)

    def told_end(self, job_id: str, status: str) -> None:
        """Tells others that an attempt has ended here."""
        if self._links is not None:
            self._links.hearsay.ended(job_id, status)

    def told_begun(self, begun: Sequence[Told], back: Sequence[str]) -> None:
        """Tells others what begins here now, before it does."""
        if self._links is not None:
            self._links.hearsay.begun(begun, back)

    def told_presence(self) -> None:
        """Tells others at once what this node can do now."""
        if self._links is not None:
            self._links.hurried.set()

    def rename(self, identity: Identity) -> None:
        """Tells others from now on that this device has another label."""
        if self._links is not None:
            self._links.rename(identity)

    # -- beginning and ending ---------------------------------------------------------------------------------

    def _want(self, on: bool) -> None:
        self._wanted_on = self._parts.roster.hears = on

    async def _settle(self) -> None:
        """Begins or ends networking as it should be now."""
        async with self._settling:
            settings = self._parts.settings
            asked = settings.listen or settings.peers or settings.origin or self._inviting or self._parts.members.known()
            wanted = self._wanted_on and bool(asked)
            if wanted and (self._links is None or not self._links.mesh.is_online):
                await self._begin()
            elif self._links is not None and self._links.mesh.is_online and not wanted:
                await self._links.end(stopping=False)
        self._has_settled = True

    async def _begin(self) -> None:
        if self._links is None:
            module = await asyncio.to_thread(importlib.import_module, "p2pqueue.peers.links")
            self._links = module.Links(self._parts, self._book)
            if self._group is not None:
                self._group.create_task(self._links.run())
        try:
            await self._links.begin()
            self.trouble = None
        except WorldError as error:
            self.trouble = str(error)
            _log.warning("networking can't begin: %s", error)

    async def _keep(self) -> None:
        """Tries again to begin what could not, and begins when the first other device comes to be known."""
        while True:
            self._wake.clear()
            try:
                async with asyncio.timeout(AGAIN_AFTER):
                    await self._wake.wait()
            except TimeoutError:
                pass
            try:
                await self._settle()
            except ConfigError as error:
                self.trouble = str(error)

    async def _keep_book(self) -> None:
        kept = self._book.dump()
        while True:
            await asyncio.sleep(SAVE_EVERY)
            now = self._book.dump()
            if now != kept:
                await address_book.save(self._parts.store, self._book)
                kept = now

    async def _follow(self) -> None:
        """Takes in what rows say of devices."""
        async with self._parts.store.subscribe() as changes:
            async for touched in changes:
                if touched is None or any(table in _SPACE_TABLES for table, _ in touched):
                    await self._read_members()

    async def _read_members(self) -> None:
        members = self._parts.members
        before = members.known()
        members.refresh(await self._parts.store.read(reading.read))
        own = members.get(self._parts.identity.device_id)
        if own is not None:
            await self._parts.on_label(own.label)
        known = members.known()
        self._parts.roster.others = bool(known)
        if known != before:
            self._wake.set()
            if self._links is not None and self._links.mesh.is_online:
                self._links.mesh.look_again()
