"""How do two running devices with one key learn of one another, where they meet and where only a third one meets both?

Two that dial one another see it in the handshake: the key is their own, the instance another. A third device, to which
both come, passes on between the one that is linked and the one that it refuses what each of them says::

    third → refused   in the handshake: the instance that is linked, and its statement for this one, once there is one
    refused → third   its statement for the linked one
    third → linked    that statement, on the link
    linked → third    its own, for the next time that the other comes

A statement is a signature by the common key over the instance that makes it and the one that it is for. An instance is
random and made at a start, so nobody, the third device included, can make up a twin that doesn't run beside this start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from p2pqueue.errors import LinkRefused
from p2pqueue.identity.certificate import verify
from p2pqueue.net import codes
from p2pqueue.net.handshake import Proven
from p2pqueue.net.notes import Twin

if TYPE_CHECKING:
    from p2pqueue.identity.keys import Identity
    from p2pqueue.net.peer import Peer

KEPT_AT_MOST: Final = 64  # statements of others, until they come again

_COPIED: Final = "another running device has the key of this one: one of the two homes was copied from the other"
_SIGNED: Final = b"p2pqueue twin: this instance of the device runs beside that one\0"


class Twins:
    """What one device knows of others with its key, and of two others with one key.

    :param holder: the linked device whose place one that comes with the same key does not get.
    :param on_clone: told in words where another device runs with the key of this one.
    """

    def __init__(
        self, identity: Identity, instance: bytes, *, holder: Callable[[Proven], Peer | None], on_clone: Callable[[str], None] | None
    ) -> None:
        self._identity = identity
        self._instance = instance
        self._holder = holder
        self._on_clone = on_clone
        self._kept: OrderedDict[tuple[bytes, bytes], bytes] = OrderedDict()

    # -- this device's own ------------------------------------------------------------------------------------

    def is_mine(self, proven: Proven, dialled: bool) -> bool:
        """Says whether a device has this one's key; tells of a twin, and ends a connection that this device opened to it."""
        if proven.device_id != self._identity.device_id:
            return False
        myself = proven.instance == self._instance
        if not myself:
            self._tell(_COPIED)
        if dialled:
            code = codes.MYSELF if myself else codes.CLONE
            raise LinkRefused(codes.words(code), code=code)
        return True

    def answer(self, said: Twin, by: str) -> Twin:
        """What this device says to a twin of which the device `by` told; one that has proven itself is told of here."""
        if self._holds(said):
            self._tell(f"{_COPIED}; {by or 'a third device'} has met both")
        signature = self._identity.sign(_SIGNED + self._instance + said.instance)
        return Twin(self._instance, said.instance, signature)

    # -- between two others -----------------------------------------------------------------------------------

    def holding(self, proven: Proven) -> Twin | None:
        """What a device that comes is told where another with its key has its place; None where it may have it."""
        holder = self._holder(proven)
        if holder is None:
            return None
        return Twin(holder.instance, proven.instance, self._kept.get((holder.instance, proven.instance), b""))

    def introduce(self, proven: Proven, said: Twin) -> None:
        """Passes on to the linked one what the one that was refused says to it."""
        holder = self._holder(proven)
        if holder is not None and (said.instance, said.other) == (proven.instance, holder.instance):
            holder.link.outbox.offer("net", said.pack())

    def heard(self, peer: Peer, said: Twin) -> None:
        """A linked device says something to its twin, or passes on what this device's own says."""
        if said.instance == peer.instance:
            self._kept[said.instance, said.other] = said.proof
            self._kept.move_to_end((said.instance, said.other))
            while len(self._kept) > KEPT_AT_MOST:
                self._kept.popitem(last=False)
        else:
            peer.link.outbox.offer("net", self.answer(said, peer.label).pack())

    def _holds(self, said: Twin) -> bool:
        return (
            said.other == self._instance != said.instance
            and verify(self._identity.public_key, _SIGNED + said.instance + said.other, said.proof)
        )  # fmt: skip

    def _tell(self, words: str) -> None:
        if self._on_clone is not None:
            self._on_clone(words)
