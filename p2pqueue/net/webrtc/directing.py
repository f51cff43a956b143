"""How does each peer get direct connections? The one place that imports aiortc, when a node wants them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from p2pqueue.identity.keys import Identity
from p2pqueue.net.interfaces import Interface
from p2pqueue.net.peer import Peer
from p2pqueue.net.signalling import Ends
from p2pqueue.net.webrtc.bulk import BulkChannel
from p2pqueue.net.webrtc.connection import RtcConnection, make_certificate
from p2pqueue.net.webrtc.direct import Direct
from p2pqueue.net.webrtc.pipe import LINK_BUFFER

_log = logging.getLogger(__name__)


class Directing:
    """Makes the `Direct` of each peer, with one certificate for all as long as the node runs."""

    def __init__(
        self, identity: Identity, *, interfaces: Callable[[], Sequence[Interface]], loopback: bool,
        on_bulk: Callable[[Peer, BulkChannel], None] | None,
    ) -> None:  # fmt: skip
        self._identity = identity
        self._interfaces = interfaces
        self._loopback = loopback
        self._on_bulk = on_bulk
        self._certificate = make_certificate()

    def __call__(self, peer: Peer) -> Direct:
        """The direct connections to a peer, yet to be built."""
        return Direct(
            Ends(self._identity.device_id, peer.device_id, peer.public_key, self._identity.sign),
            connect=partial(self._connect, peer.address[0]),
            tell=partial(peer.link.outbox.offer, "net"),
            on_message=peer.came,
            on_bulk=partial(_safely, self._on_bulk, peer),
        )

    def connection(self, controlling: bool) -> RtcConnection:
        """One that is to carry a link itself, to a peer of which no address is known yet."""
        return self._connect(None, controlling, LINK_BUFFER)

    def _connect(self, towards: str | None, controlling: bool, high_water: int) -> RtcConnection:
        return RtcConnection(
            controlling=controlling,
            certificate=self._certificate,
            interfaces=self._interfaces,
            loopback=self._loopback,
            high_water=high_water,
            towards=towards,
        )


def _safely(callback: Callable[..., None] | None, *arguments: object) -> None:
    """Calls back; a fault there would close one side of a connection unseen."""
    if callback is None:
        return
    try:
        callback(*arguments)
    except Exception:  # noqa: BLE001  it comes out of any callback of aiortc
        _log.exception("what a direct connection brings could not be dealt with")
