"""What do two devices write one another by mail to build a direct connection, and what of it is taken for true?

An *offer* lies in the outbox of the device with the lower id, an *answer* in the other's, each under a name that both can
tell and nobody else::

    o-<from, to>-<nonce>    signal; the start of the receiver that it is for, as its index tells
    a-<from, to>-<nonce>    signal; the nonce is that of the offer

Each is sealed for its name, and signed by its device over its name, both devices and everything in it. What was written for
another start, lay for more than minutes, or was read before, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from p2pqueue import wire
from p2pqueue.errors import BadSignature, MalformedMessage
from p2pqueue.identity.certificate import verify
from p2pqueue.identity.members import Refusal as NotAdmitted
from p2pqueue.net.webrtc.signal import SIGNAL_LIMIT
from p2pqueue.peers.mail.format import Admit, MailKeys, MailSigner
from p2pqueue.replica.wire.fields import read_bytes, read_number, read_text

OFFER: Final = "o-"
ANSWER: Final = "a-"
LETTERS: Final = (OFFER, ANSWER)
LETTER_LIMIT: Final = 16 * 1024  # bytes of an object: a signal, and certificates up to the root's
NONCE_SIZE: Final = 16  # bytes
VALID_FOR: Final = 600_000  # milliseconds by which a letter may be old, or the two clocks apart
OTHER_START: Final = "it is for another start of this device"
MOST_NONCES: Final = 64  # of one device, of the last minutes

_VERSION: Final = 1
_CHAIN_LIMIT: Final = 8  # certificates
_SIGNED: Final = b"p2pqueue mail 1 letter "


@dataclass(frozen=True)
class Letter:
    """An offer or an answer. `start` is that of the receiver, empty in an answer; `at` in milliseconds UTC."""

    sender: str
    receiver: str
    nonce: bytes
    start: bytes
    at: int
    signal: bytes

    def pack(self, path: str, signer: MailSigner) -> bytes:
        """The bytes of it, signed for the path at which it will lie."""
        body = wire.pack({"f": self.sender, "to": self.receiver, "n": self.nonce, "i": self.start, "t": self.at, "s": self.signal})
        return wire.pack({"v": _VERSION, "c": list(signer.chain), "b": body, "s": signer.sign(_covered(path, body))})


def letter_path(keys: MailKeys, kind: str, sender: str, receiver: str, nonce: bytes) -> str:
    """Where a letter lies, by the ids of both devices."""
    tag = keys.device(sender)
    return f"{keys.space}/{tag}/{kind}{keys.between(tag, keys.device(receiver))}-{nonce.hex()}"


def read_letter(data: bytes, path: str, admit: Admit) -> Letter:
    """A letter that a member of the space signed for that path. Raises `MalformedMessage` and `BadSignature`."""
    fields: Any = wire.unpack(data, limit=LETTER_LIMIT, nesting=3)
    match fields:
        case {"v": 1, "c": list(chain), "b": bytes(body), "s": bytes(signature)} if len(chain) <= _CHAIN_LIMIT and all(
            isinstance(each, bytes) for each in chain
        ):
            member = admit(chain)
        case _:
            raise MalformedMessage("a letter in a form that this version doesn't know")
    if isinstance(member, NotAdmitted):
        raise BadSignature(f"a letter is not read: {member.words}")
    if not verify(member.public_key, _covered(path, body), signature):
        raise BadSignature("a letter whose signature doesn't fit")
    letter = _read(wire.unpack(body, limit=LETTER_LIMIT, nesting=2))
    if letter.sender != member.device_id:
        raise BadSignature("a letter that another device signed than the one that it names")
    return letter


def _read(raw: Any) -> Letter:
    try:
        return Letter(
            read_text(raw["f"], 64), read_text(raw["to"], 64), read_bytes(raw["n"], NONCE_SIZE), read_bytes(raw["i"], 0, 64),
            read_number(raw["t"]), read_bytes(raw["s"], 1, SIGNAL_LIMIT),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedMessage(f"a letter that can't be read: {error}") from None


def _covered(path: str, body: bytes) -> bytes:
    return _SIGNED + path.encode() + b"\0" + body


class Refusals:
    """Which letters to this device are refused, though their senders signed them?"""

    def __init__(self, device_id: str, start: bytes) -> None:
        self._device_id = device_id
        self._start = start
        self._nonces: dict[str, dict[bytes, int]] = {}  # by device, with the wall clock then

    def of_offer(self, letter: Letter, *, wall: int) -> str | None:
        """Why an offer is refused, in words; None where it may be answered, once."""
        known = {nonce: at for nonce, at in self._nonces.get(letter.sender, {}).items() if abs(wall - at) < 2 * VALID_FOR}
        self._nonces[letter.sender] = known
        if letter.receiver != self._device_id:
            return "it is for another device"
        if letter.sender >= letter.receiver:
            return "its sender is not the one that offers"
        if letter.start != self._start:
            return OTHER_START
        if abs(wall - letter.at) >= VALID_FOR:
            return "it is old, or one of the two clocks is wrong"
        if letter.nonce in known:
            return "it was read before"
        if len(known) >= MOST_NONCES:
            return "there are too many of its sender"
        known[letter.nonce] = wall
        return None

    def of_answer(self, letter: Letter, offer: Letter, *, wall: int) -> str | None:
        """Why an answer is refused, in words."""
        if (letter.sender, letter.receiver, letter.nonce) != (offer.receiver, offer.sender, offer.nonce):
            return "it answers another offer"
        return "it is old, or one of the two clocks is wrong" if abs(wall - letter.at) >= VALID_FOR else None
