"""What do two linked devices tell one another to build a direct connection?

A step names what is to be connected (`control` or `bulk`) and the generation of the attempt; the newest generation counts.
It is signed together with both device ids, so that it may also come by way of somebody else. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from p2pqueue import wire
from p2pqueue.errors import BadSignature, MalformedMessage
from p2pqueue.identity.certificate import verify
from p2pqueue.net.notes import Signalling

Kind = Literal["offer", "answer", "broken", "ask"]
Purpose = Literal["control", "bulk"]

STEP_LIMIT = 4096  # bytes
_SIGNED: Final = b"p2pqueue direct connection: a step is signed\0"
_LATEST = 1 << 62  # no generation is beyond


@dataclass(frozen=True)
class Step:
    """One step: `offer` and `answer` carry an `RtcSignal`; `broken` ends a generation, with a reason; `ask` asks for an offer."""

    kind: Kind
    purpose: Purpose
    generation: int
    signal: bytes = b""


@dataclass(frozen=True)
class Ends:
    """The two devices, and what one of them signs and checks with."""

    mine: str
    theirs: str
    public_key: bytes  # of theirs
    sign: Callable[[bytes], bytes]

    @property
    def offers(self) -> bool:
        """Says whether this device is the one that makes the offers: its id is the lower."""
        return self.mine < self.theirs

    def sign_step(self, step: Step) -> Signalling:
        """The note that carries a step of ours."""
        body = wire.pack([step.kind, step.purpose, step.generation, step.signal])
        return Signalling(body, self.sign(_covered(body, self.mine, self.theirs)))

    def read_step(self, note: Signalling) -> Step | None:
        """The step in a note of theirs; None for one of a later version. Raises `BadSignature` and `MalformedMessage`."""
        if not verify(self.public_key, _covered(note.body, self.theirs, self.mine), note.signature):
            raise BadSignature("a step towards a direct connection that its sender didn't sign")
        match wire.unpack(note.body, limit=STEP_LIMIT, nesting=2):
            case [str(kind), str(purpose), int(generation), bytes(signal), *_] if 0 <= generation < _LATEST:
                if kind in get_args(Kind) and purpose in get_args(Purpose):
                    return Step(cast(Kind, kind), cast(Purpose, purpose), generation, signal)
                return None
            case _:
                raise MalformedMessage("a step towards a direct connection that can't be read")


def _covered(body: bytes, sender: str, receiver: str) -> bytes:
    return _SIGNED + bytes.fromhex(sender) + bytes.fromhex(receiver) + body
