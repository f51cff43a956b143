"""When does a node look into the mailbox of its space, and when does it write there?

At its start, soon after it wrote something itself, and from time to time: more rarely the longer nothing comes. What
was read goes the same way as over a link, and linked devices are told of it. Without the network nothing is asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from p2pqueue.errors import P2PQueueError
from p2pqueue.identity.keys import Identity
from p2pqueue.identity.members import Member, Members
from p2pqueue.identity.members import Refusal as NotAdmitted
from p2pqueue.identity.roles import allows, relays
from p2pqueue.payload.fetching.source import SourceFailed
from p2pqueue.peers.disk import Disk
from p2pqueue.peers.mail.format import MailKeys
from p2pqueue.peers.mail.inbox import Inbox
from p2pqueue.peers.mail.outbox import Outbox
from p2pqueue.peers.mail.place import MailPlace
from p2pqueue.peers.mail.rendezvous import Rendezvous
from p2pqueue.peers.mail.tidying import abandoned
from p2pqueue.replica.replica import wall_clock
from p2pqueue.replica.store import Store
from p2pqueue.replica.syncing.messages import RowId
from p2pqueue.replica.syncing.peering import Peering

LOOK_FIRST: Final = 2.0  # seconds between two looks after something came; grows while nothing does
LOOK_LAST: Final = 30.0  # seconds
LOOK_LINKED: Final = 120.0  # seconds, while every other device is linked: it tells at once what it has
GROWS: Final = 1.5
GATHER: Final = 0.3  # seconds from a change to writing it: what follows at its heels comes along
POST_FIRST: Final = 2.0  # seconds between two writings; grows while there are many
POST_LAST: Final = 15.0  # seconds: below a third of a lease
POST_LINKED: Final = 60.0  # seconds, while every other device is linked
PARTING: Final = 3.0  # seconds that a stop waits at most for what was written last
QUIET: Final = 60.0  # seconds without a writing after which it counts as rare again
ACKNOWLEDGE_EVERY: Final = 30.0  # seconds between two writings that say only what was read
TIDY_EVERY: Final = 3_600.0  # seconds
WAIT_LAST: Final = 120.0  # seconds between two attempts while the place is away

_AUTHORS: Final = "SELECT author FROM authors WHERE device = ?"  # authors_by_device
_log = logging.getLogger(__name__)


class Mailbox:
    """Exchanges rows with devices that are not there now.

    `is_on`: the network is on; `posts`: this device writes there too; `linked` gives the devices that are linked now;
    `brought` hears that rows came, and whether a fork was seen, `dropped` of rows that ended elsewhere; `rendezvous` meets
    the devices that write there.
    """

    def __init__(
        self, store: Store, place: MailPlace, identity: Identity, members: Members, *, is_on: Callable[[], bool], posts: bool,
        linked: Callable[[], Collection[str]], brought: Callable[[bool], object], dropped: Callable[[tuple[RowId, ...]], object],
        rendezvous: Rendezvous | None = None,
    ) -> None:  # fmt: skip
        self._store, self._place, self._identity, self._members = store, place, identity, members
        self._is_on, self._posts, self._linked = is_on, posts and allows(identity.role, "read"), linked
        self._brought, self._dropped, self._rendezvous = brought, dropped, rendezvous
        self._keys = MailKeys(identity.space_key, os.urandom)
        self._wake = asyncio.Event()
        self._look_pause = self._post_pause = LOOK_FIRST
        self._posted_at = self._acknowledged_at = self._tidied_at = float("-inf")
        self._changed = True  # there may be something to write
        self.trouble: str | None = None  # why the mailbox can't be used now
        self.looked_at: float | None = None  # monotonic
        self.came_at: float | None = None  # when something came last
        self._inbox: Inbox | None = None
        self._outbox: Outbox | None = None
        self._busy = asyncio.Lock()

    def hurry(self) -> None:
        """Somebody is gone, or something may have been written: looks soon."""
        self._look_pause = LOOK_FIRST
        self._wake.set()

    def status(self) -> dict[str, Any]:
        """How it stands, as plain values; times in seconds ago."""
        now = time.monotonic()
        troubles = {} if self._inbox is None else self._inbox.troubles
        return {
            "trouble": self.trouble or next(iter(troubles.values()), None),
            "looked": None if self.looked_at is None else round(now - self.looked_at, 1),
            "written": self._posts and self._posted_at > 0 and not self._changed,
            "came": None if self.came_at is None else round(now - self.came_at, 1),
            "devices": 0 if self._inbox is None else len(self._inbox.seen.keys() - {self._keys.device(self._identity.device_id)}),
        }

    async def part(self) -> None:
        """Writes what was written last, before the network ends; gives up soon."""
        if not self._posts or not self._changed or self.trouble or self._inbox is None or self._outbox is None or self.looked_at is None:
            return
        try:
            async with asyncio.timeout(PARTING), self._busy:
                await self._post(self._inbox, self._outbox)
        except (TimeoutError, SourceFailed, P2PQueueError, sqlite3.Error, OSError) as error:
            _log.warning("what was written last is not in the mailbox yet: %s", str(error) or "it takes too long")

    async def run(self) -> None:
        """Reads and writes until it is cancelled."""
        disk = Disk(self._store)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                await self._exchange(disk)
        finally:
            await disk.close()

    async def _follow(self) -> None:
        async with self._store.subscribe(quiet=True) as changes:
            async for _ in changes:
                self._changed = True
                self._wake.set()

    async def _exchange(self, disk: Disk) -> None:
        inbox, outbox = self._make(disk)
        self._inbox, self._outbox = inbox, outbox
        look_at, wait = 0.0, LOOK_FIRST
        while True:
            if not self._is_on():
                await asyncio.sleep(LOOK_FIRST)
                continue
            try:
                if time.monotonic() >= look_at:
                    async with self._busy:
                        await self._look(inbox, outbox)
                    look_at = time.monotonic() + self._pause()
                if self._posts and self._may_post():
                    async with self._busy:
                        await self._post(inbox, outbox)
                self.trouble, wait = None, LOOK_FIRST
            except (SourceFailed, P2PQueueError, sqlite3.Error, OSError) as error:
                if str(error) != self.trouble:
                    _log.warning("the mailbox can't be used now, and is tried again: %s", error)
                self.trouble = str(error)
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))
                wait = min(2 * wait, WAIT_LAST)
                continue
            await self._sleep(look_at)
            look_at = min(look_at, time.monotonic() + self._look_pause) if self._look_pause == LOOK_FIRST else look_at

    async def _sleep(self, look_at: float) -> None:
        """Until the next look, or until there is something to write and it may be written."""
        until = min(look_at, self._acknowledged_at + ACKNOWLEDGE_EVERY)
        if self._changed:
            until = min(until, self._posted_at + self._post_at_most())
        try:
            async with asyncio.timeout(max(GATHER, until - time.monotonic())):
                await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(GATHER)  # what follows at its heels comes along
        except TimeoutError:
            pass

    # -- one look, one writing ------------------------------------------------------------------------------------

    async def _look(self, inbox: Inbox, outbox: Outbox) -> None:
        for tag, seen in tuple(inbox.seen.items()):
            member = self._members.get(seen.member.device_id)
            if member is not None and member.revoked:
                del inbox.seen[tag]
        listed = await self._place.list_mail(self._keys.space)
        new = await inbox.look(listed)
        if self._rendezvous is not None:
            self._rendezvous.looked(listed, inbox.seen)
        outbox.listed(listed, inbox.seen.get(outbox.tag))
        came = await inbox.take()
        self.looked_at = time.monotonic()
        if new or came:
            self.came_at, self._changed = self.looked_at, True
            self._look_pause = LOOK_FIRST
        else:
            self._look_pause = min(GROWS * self._look_pause, LOOK_LAST)
        if self._posts and self.looked_at - self._tidied_at >= TIDY_EVERY:
            self._tidied_at = self.looked_at
            heads = await self._store.read(lambda connection: dict(connection.execute("SELECT author, seq FROM heads").fetchall()))
            for name in abandoned(listed, inbox.seen, outbox.tag, heads, now=time.time()):
                await self._place.delete_mail(name)

    def _pause(self) -> float:
        return (LOOK_LINKED if self._are_all_linked() else self._look_pause) * random.uniform(0.8, 1.2)

    def _post_at_most(self) -> float:
        return POST_LINKED if self._are_all_linked() else self._post_pause

    def _are_all_linked(self) -> bool:
        others = self._members.known()
        return bool(others) and set(others) <= set(self._linked())

    def _may_post(self) -> bool:
        now = time.monotonic()
        acknowledges = now - self._acknowledged_at >= ACKNOWLEDGE_EVERY
        return (self._changed or acknowledges) and now - self._posted_at >= self._post_at_most()

    async def _post(self, inbox: Inbox, outbox: Outbox) -> None:
        now = time.monotonic()
        acknowledge = now - self._acknowledged_at >= ACKNOWLEDGE_EVERY
        self._changed = False
        if acknowledge:
            self._acknowledged_at = now
        about = b"" if self._rendezvous is None else self._rendezvous.about()
        try:
            posted = await outbox.post(
                inbox.seen, known=self._members.known(), refused=inbox.refused, acknowledge=acknowledge, about=about
            )  # fmt: skip
        except BaseException:
            self._changed = True
            raise
        if posted and outbox.index is not None:
            inbox.posted(outbox.tag, outbox.name, outbox.member, outbox.index)
            often = now - self._posted_at < QUIET
            self._post_pause = min(GROWS * self._post_pause, POST_LAST) if often else POST_FIRST
            self._posted_at = now
            if not often:
                self._look_pause = LOOK_FIRST  # an answer may come

    # -- making ---------------------------------------------------------------------------------------------------

    def _make(self, disk: Disk) -> tuple[Inbox, Outbox]:
        identity = self._identity
        own = Member(identity.device_id, identity.label, identity.role, identity.public_key, identity.certificate)

        def admit(chain: list[bytes]) -> Member | NotAdmitted:
            is_own = bool(chain) and chain[0] == identity.certificate
            return own if is_own else self._members.admit(chain)

        inbox = Inbox(
            self._keys, identity.device_id, admit, self._place, disk, self._peering, self._authors_of, time.monotonic, self._brought,
            self._dropped,
        )  # fmt: skip
        outbox = Outbox(
            self._keys, identity, own, relays(identity.role), self._place, disk, self._peering(identity.device_id, True), self._authors_of,
            time.monotonic, wall_clock, os.urandom,
        )  # fmt: skip
        return inbox, outbox

    def _peering(self, device_id: str, peer_relays: bool) -> Peering:
        return Peering(self._store.replica, device_id, peer_relays=peer_relays)

    async def _authors_of(self, device_id: str) -> set[bytes]:
        rows = await self._store.read(lambda connection: connection.execute(_AUTHORS, (device_id,)).fetchall())
        return {bytes.fromhex(author) for (author,) in rows}
