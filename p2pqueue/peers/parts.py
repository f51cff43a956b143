"""What of a node does its networking work with?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from p2pqueue.payload.limit import Limits

if TYPE_CHECKING:
    from p2pqueue.identity.keys import Identity
    from p2pqueue.identity.members import Members
    from p2pqueue.jobs.orders import Order
    from p2pqueue.payload.shelf import Shelf
    from p2pqueue.replica.store import Store
    from p2pqueue.settings import Settings
    from p2pqueue.workers.claiming.presence import Roster
    from p2pqueue.workers.running.live import Live


@dataclass(frozen=True)
class Parts:
    """The parts of one node.

    :param hello: the fields of what this node tells of itself.
    :param look: makes the worker look at a job again (None: at all that could be claimed).
    :param obey: makes the worker stop jobs as another device ordered.
    :param on_linked: told that another device is linked.
    :param on_gone: told of each device whose link ended, and whether it said goodbye.
    :param on_twin: told in words that another running device has the key of this one, and by None that it has gone.
    :param on_label: told how this device is called, whenever rows of devices changed.
    :param wanted: the files that should be on the origin now.
    :param limits: what people set of transfers; may be changed at any time.
    """

    store: Store
    shelf: Shelf
    identity: Identity
    settings: Settings
    members: Members
    live: Live
    roster: Roster
    hello: Callable[[], dict[str, Any]]
    look: Callable[[str | None], object]
    obey: Callable[[Sequence[Order]], object]
    on_linked: Callable[[], object]
    on_gone: Callable[[str, bool], object]
    on_twin: Callable[[str | None], object]
    on_label: Callable[[str], Awaitable[None]]
    wanted: Callable[[], Awaitable[Sequence[str]]]
    limits: Limits = field(default_factory=Limits)
