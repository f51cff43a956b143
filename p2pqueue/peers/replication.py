"""How does a node keep its replica equal to those of the devices that it is linked to?

One conversation for each linked device. What this device writes goes to all of them at once; what one of them
brought, to those that still lack it a moment later. Nothing that a peer sends ends more than its own conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from p2pqueue.peers.conversation import Conversation
from p2pqueue.peers.disk import Disk
from p2pqueue.peers.linked import LinkedPeer
from p2pqueue.replica.store import Store
from p2pqueue.replica.syncing.effects import Answer, DropEnded, Merge, MoveHeads, Observe, Observed, Recheck, Report, Request, Taken
from p2pqueue.replica.syncing.messages import RowId
from p2pqueue.replica.syncing.peering import Peering

_log = logging.getLogger(__name__)

_IN_WORDS = {
    "fork": "this database goes on under a new author, for another copy of it writes too",
    "twin": "an author is known by two different histories; what differs will be found and mended",
    "digest": "rows differ though both sides have counted the same; they are being mended",
    "refused": "a write was refused",
    "refused there": "the peer refused writes of ours, which are checked here now",
    "set aside": "a write that can't be stored here was set aside",
    "flood": "it sends faster than can be taken in; what is too much is dropped and asked for again",
}


@dataclass
class _Linked:
    conversation: Conversation
    task: asyncio.Task[None] | None = None


class Replication:
    """Replicates with every linked device.

    `relays` says whether this device's role lets it pass on what others wrote, `may_relay` the same of a peer's
    role. `on_report` hears what is to be counted and shown; `drop` ends the link to a peer, with a reason in words.
    """

    def __init__(
        self,
        store: Store,
        *,
        device_id: str,
        relays: bool,
        may_relay: Callable[[str], bool],
        drop: Callable[[LinkedPeer, str], None],
        on_report: Callable[[LinkedPeer, Report], None] = lambda peer, report: None,
    ) -> None:
        self.device_id = device_id
        self._store = store
        self._relays = relays
        self._may_relay = may_relay
        self._drop = drop
        self._on_report = on_report
        self._linked: dict[str, _Linked] = {}
        self._group: asyncio.TaskGroup | None = None
        self._disk: Disk | None = None
        self._own = (b"", 0)  # the own author and its last number, as sessions were last told of it

    # --- what the net says ---

    def up(self, peer: LinkedPeer) -> None:
        """A device is linked. Where it was linked already, the new link counts."""
        if peer.device_id in self._linked:
            self._end(self._linked.pop(peer.device_id))
        peering = Peering(self._store.replica, peer.device_id, peer_relays=self._may_relay(peer.role))
        conversation = Conversation(
            peer, peering, relays=self._relays, on_report=self._report, on_answered=self._answered, on_rubbish=self._rubbish
        )
        linked = self._linked[peer.device_id] = _Linked(conversation)
        self._begin(linked)

    def down(self, peer: LinkedPeer) -> None:
        """The link is gone."""
        linked = self._linked.get(peer.device_id)
        if linked is not None and linked.conversation.peer is peer:
            del self._linked[peer.device_id]
            self._end(linked)

    def received(self, peer: LinkedPeer, message: bytes) -> None:
        """A message of a linked device has come on the topic "rows"."""
        linked = self._linked.get(peer.device_id)
        if linked is not None and linked.conversation.peer is peer:
            linked.conversation.received(message)

    def brought(self, forked: bool) -> None:
        """Rows have come by another way: linked devices may lack them."""
        self._tell(local=forked)

    def dropped(self, rows: tuple[RowId, ...]) -> None:
        """Rows were dropped since they ended elsewhere, as was told by another way."""
        for linked in tuple(self._linked.values()):
            linked.conversation.dropped(rows)

    # --- running ---

    async def run(self) -> None:
        """Replicates until it is cancelled, or until the store is closed."""
        disk = Disk(self._store)
        try:
            async with asyncio.TaskGroup() as group:
                self._group, self._disk = group, disk
                for linked in self._linked.values():
                    self._begin(linked)
                await self._follow()
                for linked in self._linked.values():
                    self._end(linked)
        finally:
            self._group = self._disk = None
            for linked in self._linked.values():
                linked.task = None
            await disk.close()

    def status(self) -> dict[str, dict[str, Any]]:
        """How replication with each linked device stands, by device id; times in seconds ago."""
        now = asyncio.get_running_loop().time()
        found = {}
        for device_id, linked in self._linked.items():
            conversation, progress = linked.conversation, linked.conversation.progress
            found[device_id] = {
                "in_sync": progress.in_sync,
                "rounds": progress.rounds,
                "last_done": None if progress.done_at is None else round(now - progress.done_at, 3),
                "behind": progress.behind,
                "ahead": progress.ahead,
                "trouble": conversation.trouble,
                "reports": dict(conversation.reports),
            }
        return found

    async def _follow(self) -> None:
        """Tells every session of what this device writes, whichever process of its home does; what peers brought has others."""
        async with self._store.subscribe(quiet=True) as changes:
            async for _ in changes:
                before, self._own = self._own, self._store.own_number
                if self._own != before:
                    self._tell(local=True)

    def _tell(self, *, local: bool, but: Conversation | None = None) -> None:
        for linked in tuple(self._linked.values()):
            if linked.conversation is not but:
                linked.conversation.committed(local=local)

    def _begin(self, linked: _Linked) -> None:
        if self._group is not None and self._disk is not None:
            name = f"p2pqueue-rows-{linked.conversation.peer.device_id[:8]}"
            linked.task = self._group.create_task(linked.conversation.run(self._disk), name=name)

    def _end(self, linked: _Linked) -> None:
        if linked.task is not None:
            linked.task.cancel()

    # --- what conversations say ---

    def _answered(self, conversation: Conversation, request: Request, answer: Answer) -> None:
        """Another session has changed the replica: the others pass it on, or know now that they needn't."""
        match request:
            case DropEnded():
                for linked in tuple(self._linked.values()):
                    if linked.conversation is not conversation:
                        linked.conversation.dropped(request.rows)
            case Merge() | Observe():
                forked = isinstance(answer, Taken | Observed) and answer.forked
                if forked or isinstance(request, Merge):
                    self._tell(local=forked, but=conversation)
            case MoveHeads() | Recheck():
                self._tell(local=False, but=conversation)

    def _report(self, conversation: Conversation, report: Report) -> None:
        if conversation.reports[report.kind] == 1:
            _log.warning("Replication with %s: %s (%s)", conversation.peer.device_id, _IN_WORDS[report.kind], report.detail)
        self._on_report(conversation.peer, report)

    def _rubbish(self, conversation: Conversation, words: str) -> None:
        _log.warning("The link to %s is dropped: %s", conversation.peer.device_id, words)
        self._drop(conversation.peer, words)
