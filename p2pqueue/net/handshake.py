"""How do two devices of a space prove to one another who they are, while a stranger learns nothing?

A SIGMA-I exchange (Krawczyk, "SIGMA", 2003) under a key that only devices of the space have. After both hellos::

    initiator → responder   "L", ephemeral X25519 key
    responder → initiator   ephemeral X25519 key
    initiator → responder   sealed: certificates, instance, signature
    responder → initiator   sealed: certificates, instance, signature, what it says of itself
    initiator → responder   the link's first frame, under the session keys: what it says of itself

Both sides mix the shared secret, a key derived from the space's id and root key, and a hash of every byte said so
far into the keys. Each signature covers that hash and its maker's device id; the responder's also the
initiator's, which it knows by then. The initiator can't know whom it dialled: that nobody stands between is bound
by the responder's ephemeral key in what it signs. The initiator proves itself first; the responder reveals itself
only to a device that may link. Who may is not decided here. Pure: keys and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import nacl.bindings
from blake3 import blake3

from p2pqueue import wire
from p2pqueue.errors import BadSignature, LinkRefused, MalformedMessage
from p2pqueue.identity.certificate import device_id, read_certificate, verify
from p2pqueue.net.sealing import KEY_SIZE, Opener, Sealer, SessionKeys

LINK_MODE = b"L"
PAIR_MODE = b"P"
SECRET_SIZE = 32  # bytes of randomness that a handshake takes
INSTANCE_SIZE = 16  # bytes that tell one start of a device from another, and a device from its clone
FIRST_LIMIT = 4096  # bytes of a frame before the other side is known
CHAIN_LIMIT = 8  # certificates from a device up to the root's own

_PSK = "p2pqueue 2026-01 link: the key that only devices of a space have"
_INITIATOR = b"p2pqueue link: the initiator signs\0"
_RESPONDER = b"p2pqueue link: the responder signs\0"


@dataclass(frozen=True)
class Credentials:
    """What a device proves itself with."""

    space_id: str
    root_public: bytes
    device_id: str
    instance: bytes
    chain: Sequence[bytes] = field(repr=False)  # its certificate first, then that of the issuer
    sign: Callable[[bytes], bytes] = field(repr=False)


@dataclass(frozen=True)
class Proven:
    """A device that holds the key of the first certificate in its chain."""

    device_id: str
    public_key: bytes
    chain: list[bytes]
    instance: bytes
    about: bytes  # what the responder says of itself; empty for an initiator, which says it later


class _Exchange:
    """What both sides share: the transcript, and the keys that follow from it."""

    def __init__(self, credentials: Credentials, *, secret: bytes, hellos: tuple[bytes, bytes]) -> None:
        assert len(secret) == SECRET_SIZE
        self._mine = credentials
        self._secret = secret
        self._psk = blake3(credentials.space_id.encode() + b"\0" + credentials.root_public, derive_key_context=_PSK).digest()
        self._transcript = blake3(b"p2pqueue link transcript\0")
        self._shared = b""
        for hello in hellos:  # the initiator's first
            self._said(hello)

    def _said(self, frame: bytes) -> None:
        self._transcript.update(len(frame).to_bytes(4, "big") + frame)

    def _meet(self, their_public: bytes) -> None:
        try:
            self._shared = nacl.bindings.crypto_scalarmult(self._secret, their_public)
        except RuntimeError:  # the point has a small order: the secret would be known to everybody
            raise MalformedMessage("an ephemeral key that is none") from None

    def _keys(self, stage: bytes) -> tuple[bytes, bytes]:
        """The initiator's and the responder's sending keys at this point of the transcript."""
        both = blake3(stage + self._shared + self._transcript.digest(), key=self._psk).digest(length=2 * KEY_SIZE)
        return both[:KEY_SIZE], both[KEY_SIZE:]

    def _public(self) -> bytes:
        return nacl.bindings.crypto_scalarmult_base(self._secret)


class Initiator(_Exchange):
    """The side that dialled: `begin`, `prove`, `finish`, and then `keys`."""

    def begin(self) -> bytes:
        """The first frame after the hellos."""
        frame = LINK_MODE + self._public()
        self._said(frame)
        return frame

    def prove(self, answer: bytes) -> bytes:
        """The frame that proves who this device is to whoever is of the space."""
        if len(answer) != KEY_SIZE:
            raise MalformedMessage("the answer to a handshake is an ephemeral key")
        self._meet(answer)
        self._said(answer)
        mine, self._their_key = self._keys(b"handshake")
        signed = _INITIATOR + self._transcript.digest() + bytes.fromhex(self._mine.device_id)
        frame = Sealer(mine).seal(_pack_proof(self._mine, self._mine.sign(signed), b""))
        self._said(frame)
        return frame

    def finish(self, proof: bytes) -> Proven:
        """Who has answered. Raises `LinkRefused` and `PeerError`s where that isn't proven."""
        signed = _RESPONDER + self._transcript.digest() + bytes.fromhex(self._mine.device_id)
        proven = _read_proof(_open(self._their_key, proof), signed)
        self._said(proof)
        sending, receiving = self._keys(b"session")
        self.keys = SessionKeys(sending=sending, receiving=receiving)
        return proven


class Responder(_Exchange):
    """The side that was dialled: `answer`, `check`, `prove`, and then `keys`."""

    def answer(self, beginning: bytes) -> bytes:
        """The frame that answers the first one."""
        if len(beginning) != 1 + KEY_SIZE or beginning[:1] != LINK_MODE:
            raise MalformedMessage("a handshake begins with an ephemeral key")
        self._said(beginning)
        self._meet(beginning[1:])
        frame = self._public()
        self._said(frame)
        return frame

    def check(self, proof: bytes) -> Proven:
        """Who has dialled. Raises `LinkRefused` for a stranger and `PeerError`s where a proof doesn't hold."""
        theirs, self._my_key = self._keys(b"handshake")
        self._peer = _read_proof(_open(theirs, proof), _INITIATOR + self._transcript.digest())
        self._said(proof)
        return self._peer

    def prove(self, about: bytes) -> bytes:
        """The frame that proves who this device is; only for one that may link."""
        signed = _RESPONDER + self._transcript.digest() + bytes.fromhex(self._peer.device_id) + bytes.fromhex(self._mine.device_id)
        frame = Sealer(self._my_key).seal(_pack_proof(self._mine, self._mine.sign(signed), about))
        self._said(frame)
        receiving, sending = self._keys(b"session")
        self.keys = SessionKeys(sending=sending, receiving=receiving)
        return frame


def _open(key: bytes, proof: bytes) -> bytes:
    if len(proof) > FIRST_LIMIT:
        raise MalformedMessage("a proof beyond its limit")
    try:
        return Opener(key).open(proof)
    except MalformedMessage:
        raise LinkRefused("it belongs to another space") from None


def _pack_proof(mine: Credentials, signature: bytes, about: bytes) -> bytes:
    return wire.pack({"chain": list(mine.chain), "signature": signature, "instance": mine.instance, "about": about})


def _read_proof(packed: bytes, signed: bytes) -> Proven:
    """Who has made this proof: `signed` and the maker's device id bear the signature of its key."""
    fields: Any = wire.unpack(packed, limit=FIRST_LIMIT, nesting=4)
    match fields:
        case {"chain": [bytes(first), *_] as chain, "signature": bytes(signature), "instance": bytes(instance), "about": bytes(about)} if (
            len(chain) <= CHAIN_LIMIT and all(isinstance(link, bytes) for link in chain) and len(instance) == INSTANCE_SIZE
        ):
            key = read_certificate(first).public_key
        case _:
            raise MalformedMessage("a proof that can't be read")
    if not verify(key, signed + bytes.fromhex(device_id(key)), signature):
        raise BadSignature("the proof doesn't bear the signature of the device that it names")
    return Proven(device_id=device_id(key), public_key=key, chain=chain, instance=instance, about=about)
