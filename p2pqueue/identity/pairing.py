"""How does a device that was told a code come into a space, and nobody else? The two machines of the protocol.

`A` is the joiner, which was told the code; `B` the inviter, which made it. Messages are MessagePack arrays::

    1  A → B   version, protocols, nameplate, share            in clear
    2  B → A   version, protocols, share                       in clear; from here on the code is spent
    3  A → B   confirmation, [key, label]                      in brackets: sealed, bound to all before
    4  B → A   confirmation, [role, space, name, root, key, label]
    5  A → B   [signature by A's device key]
    6  B → A   [signature by B's device key, B's certificates, A's certificate, space key, root key]
    7  A → B   []                                              A has written it to its disk
    0  B → A   a reason; ends it                               in clear, a hint and no more

Whoever doesn't know the code fails at 3 or 4: the side that says it first shows that it knows the code, in a way that
tells nothing to one that doesn't. Each side signs the hash of the whole conversation, in which are both device
keys, the role, the versions and the space. Whatever doesn't fit ends a machine for good. Pure: randomness is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from nacl.signing import SigningKey

from p2pqueue import wire
from p2pqueue.errors import BadSignature, MalformedMessage, NotAllowed, PairingFailed, PeerError
from p2pqueue.identity.certificate import KEY_SIZE, Role, device_id, issue, read_certificate, verify
from p2pqueue.identity.chain import follow
from p2pqueue.identity.codes import Code
from p2pqueue.identity.keyfile import MOST_ISSUERS, SPACE_KEY_SIZE
from p2pqueue.identity.keys import Identity, JoinedSpace, label_of
from p2pqueue.identity.roles import ROLES, allows, may_give
from p2pqueue.identity.spake2 import Agreed, Exchange, is_share
from p2pqueue.identity.transcript import Transcript

VERSION: Final = 1  # of this protocol
MESSAGE_LIMIT: Final = 1024  # bytes of one message
REASONS: Final = {
    "nameplate": "No invitation with that number is open there; look at the number again, or make a new code with `p2pqueue invite`",
    "busy": "Another device is using that code right now; a code is for one device: make another one with `p2pqueue invite`",
    "version": "That device pairs in another way than this version of p2pqueue: bring both to the same version",
    "code": "That is not the code, and one guess is all that a code allows: make a new one with `p2pqueue invite`",
    "gone": "That code has expired or was used: make a new one with `p2pqueue invite`",
    "failed": "The other device broke it off: make a new code with `p2pqueue invite`",
}
_SIGNED_BY_A = b"p2pqueue pairing: the joiner signs\0"
_SIGNED_BY_B = b"p2pqueue pairing: the inviter signs\0"
_NOT_ITS_CODE = (
    "Whoever answered doesn't know the code; make a new one with `p2pqueue invite`, and join by `--peer` to be sure whom you ask"
)
Protocols = tuple[int, int]


@dataclass(frozen=True)
class Newcomer:
    """The device that an inviter has let in."""

    device_id: str
    public_key: bytes
    label: str
    role: Role
    certificate: bytes
    issuer: str  # device id of the key that signed the certificate


class _Machine:
    """What both sides have: where they are, and the conversation so far."""

    def __init__(self, code: Code, exchange: Exchange, transcript: Transcript, protocols: Protocols) -> None:
        self._code = code
        self._exchange = exchange
        self._transcript = transcript
        self._protocols = list(protocols)
        self._agreed: Agreed
        self.their_protocols: Protocols = (0, 0)  # what the other side says that it speaks; proven once a confirmation came
        self._next: int | None = None  # the kind of the message that is awaited; None: nothing any more

    def _take(self, message: bytes) -> list[Any]:
        """The fields of the message that is awaited, which ends the machine unless its reader sets what comes next."""
        awaited, self._next = self._next, None
        match _unpacked(message):
            case [0, str(reason)]:
                raise PairingFailed(REASONS.get(reason, REASONS["failed"]))
            case [kind, *fields] if awaited is not None and kind == awaited:
                return fields
            case _:
                raise MalformedMessage("a message that isn't awaited in a pairing")

    def _finish(self, opening: bytes, answer: bytes, share: bytes) -> None:
        self._transcript.said(opening, answer)
        self._agreed = self._exchange.finish(share, context=self._transcript.digest)
        self._transcript.agree(self._agreed.key)

    def _say(self, kind: int, text: Sequence[Any], *, confirm: bool = False) -> bytes:
        shown = [self._agreed.confirmation] if confirm else []
        self._transcript.said(bytes([kind]), *shown)
        return wire.pack([kind, *shown, self._transcript.seal(wire.pack(list(text)))])

    def _hear(self, kind: int, sealed: bytes, *, confirmed: bytes | None = None) -> list[Any]:
        self._transcript.said(bytes([kind]), *([] if confirmed is None else [confirmed]))
        text = wire.unpack(self._transcript.open(sealed), limit=MESSAGE_LIMIT)
        if not isinstance(text, list):
            raise MalformedMessage("a sealed text of a pairing is an array")
        return text


class Joiner(_Machine):
    """The side that was told the code. Good for one try: `begin`, `receive` until `space` is there, `done`."""

    def __init__(self, code: Code, *, label: str, protocols: Protocols, random: Callable[[int], bytes]) -> None:
        super().__init__(code, Exchange(code.text.encode(), "A", random=random), Transcript("A"), protocols)
        self._label = label
        self._signing = SigningKey(random(KEY_SIZE))
        self._terms: list[Any] = []
        self._signed = b""
        self.space: JoinedSpace | None = None  # set once everything holds

    def begin(self) -> bytes:
        """The first message."""
        self._next = 2
        self._opening = wire.pack([1, VERSION, self._protocols, self._code.nameplate, self._exchange.share])
        return self._opening

    def receive(self, message: bytes) -> bytes | None:
        """Takes a message, gives the next; None once `space` is there. Raises `PairingFailed` and `PeerError`s: then all is over."""
        awaited = self._next
        fields = self._take(message)
        match awaited, fields:
            case 2, [version, [int(lowest), int(highest)], bytes(share)] if version == VERSION:
                self.their_protocols = lowest, highest
                return self._introduce(message, share)
            case 2, _:
                raise PairingFailed(REASONS["version"])
            case 4, [bytes(confirmation), bytes(sealed)]:
                return self._accept(confirmation, sealed)
            case 6, [bytes(sealed)]:
                self.space = self._enter(self._hear(6, sealed))
                return None
            case _:
                raise MalformedMessage("a message of a pairing that can't be read")

    def done(self) -> bytes:
        """The last message: what was given is on the disk."""
        assert self.space is not None
        return self._say(7, [])

    def _introduce(self, answer: bytes, share: bytes) -> bytes:
        self._finish(self._opening, answer, share)
        self._next = 4
        return self._say(3, [bytes(self._signing.verify_key), self._label], confirm=True)

    def _accept(self, confirmation: bytes, sealed: bytes) -> bytes:
        if not self._agreed.confirms(confirmation):
            raise PairingFailed(_NOT_ITS_CODE)
        self._terms = self._hear(4, sealed, confirmed=confirmation)
        match self._terms:
            case [role, str(), str(), bytes(root), bytes(key), str()] if role in ROLES and len(root) == len(key) == KEY_SIZE:
                pass
            case _:
                raise MalformedMessage("terms that can't be read")
        self._next = 6
        self._signed = _SIGNED_BY_A + self._transcript.digest
        return self._say(5, [self._signing.sign(self._signed).signature])

    def _enter(self, given: list[Any]) -> JoinedSpace:
        role, space_id, name, root_public, inviter, label = self._terms
        match given:
            case [bytes(signature), [*chain], bytes(certificate), bytes(space_key), (bytes() | None) as root]:
                pass
            case _:
                raise MalformedMessage("a welcome that can't be read")
        if not verify(inviter, _SIGNED_BY_B + self._signed, signature):
            raise BadSignature("the inviter's signature doesn't fit")
        issuers = _issuers(certificate, chain, root_public)
        who = follow(chain, space_id=space_id, root_public=root_public)
        mine = follow([certificate, *issuers], space_id=space_id, root_public=root_public)
        if who.public_key != inviter or not may_give(who.role, role):
            raise BadSignature("the inviter may not invite into that role")
        if mine.public_key != bytes(self._signing.verify_key) or mine.role != role:
            raise BadSignature("the certificate is that of another device or role")
        if len(space_key) != SPACE_KEY_SIZE or (root is not None) != allows(role, "root key"):
            raise MalformedMessage("keys that don't fit the role")
        if root is not None and bytes(SigningKey(root).verify_key) != root_public:
            raise BadSignature("the root key is that of another space")
        known = device_id(inviter), label_of(label, "device")
        return JoinedSpace(space_id, name, space_key, root, root_public, certificate, issuers, self._signing, known)


class Inviter(_Machine):
    """One code, for one device. `begin` spends it; `receive` until `newcomer` is there and `finished`, or it raised."""

    def __init__(self, code: Code, *, identity: Identity, role: Role, protocols: Protocols, random: Callable[[int], bytes]) -> None:
        if not may_give(identity.role, role):
            raise NotAllowed(f"This device has the role {identity.role}, and may not let one in as {role}; an owner's or admin's may")
        if not allows(role, "space key"):
            raise NotAllowed(f"This version can't run a device with the role {role} yet: it would have no key of the space")
        super().__init__(code, Exchange(code.text.encode(), "B", random=random), Transcript("B"), protocols)
        self._identity = identity
        self._role = role
        self._applicant: tuple[bytes, str] = (b"", "")
        self._signed = b""
        self.spent = False
        self.finished = False
        self.newcomer: Newcomer | None = None  # set when its certificate goes out

    def begin(self, message: bytes) -> bytes:
        """The answer to a joiner's first message, after which the code is spent, whatever comes.

        Raises `PairingRefused` and `MalformedMessage` for what is no guess: then the code is as good as before.
        """
        if self.spent:
            raise PairingRefused("busy")
        match _unpacked(message):
            case [1, version, *_] if version != VERSION:
                raise PairingRefused("version")
            case [1, _, [int(lowest), int(highest)], str(nameplate), bytes(share)] if is_share(share):
                self.their_protocols = lowest, highest
                if nameplate != self._code.nameplate:
                    raise PairingRefused("nameplate")
            case _:
                raise MalformedMessage("the first message of a pairing can't be read")
        answer = wire.pack([2, VERSION, self._protocols, self._exchange.share])
        self.spent = True
        self._finish(message, answer, share)
        self._next = 3
        return answer

    def receive(self, message: bytes) -> bytes | None:
        """Takes a message, gives the next; None when it is `finished`. Raises `PairingFailed` and `PeerError`s: then all is over."""
        awaited = self._next
        fields = self._take(message)
        match awaited, fields:
            case 3, [bytes(confirmation), bytes(sealed)]:
                return self._offer(confirmation, sealed)
            case 5, [bytes(sealed)]:
                return self._welcome(self._hear(5, sealed))
            case 7, [bytes(sealed)]:
                self._hear(7, sealed)
                self.finished = True
                return None
            case _:
                raise MalformedMessage("a message of a pairing that can't be read")

    def end(self) -> None:
        """Lets nobody in any more."""
        self.spent, self._next = True, None

    def _offer(self, confirmation: bytes, sealed: bytes) -> bytes:
        if not self._agreed.confirms(confirmation):
            raise PairingRefused("code")
        match self._hear(3, sealed, confirmed=confirmation):
            case [bytes(key), str(label)] if len(key) == KEY_SIZE:
                self._applicant = key, label_of(label, "device")
            case _:
                raise MalformedMessage("an introduction that can't be read")
        mine = self._identity
        self._next = 5
        terms = [self._role, mine.space_id, mine.space_name, mine.root_public, mine.public_key, mine.label]
        answer = self._say(4, terms, confirm=True)
        self._signed = _SIGNED_BY_A + self._transcript.digest
        return answer

    def _welcome(self, said: list[Any]) -> bytes:
        key, label = self._applicant
        match said:
            case [bytes(signature)] if verify(key, self._signed, signature):
                pass
            case _:
                raise BadSignature("the joiner's signature doesn't fit")
        mine = self._identity
        signing = mine.root or mine.signing
        certificate = issue(signing, space_id=mine.space_id, public_key=key, role=self._role)
        root = bytes(mine.root) if mine.root is not None and allows(self._role, "root key") else None
        self._next = 7
        issuer = device_id(bytes(signing.verify_key))
        self.newcomer = Newcomer(device_id(key), key, label, self._role, certificate, issuer)
        return self._say(6, [mine.sign(_SIGNED_BY_B + self._signed), list(mine.chain), certificate, mine.space_key, root])


class PairingRefused(PairingFailed):
    """An inviter says no, with one of `REASONS`, which the joiner is told."""

    def __init__(self, reason: str) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason


def nameplate_of(message: bytes) -> str:
    """The nameplate that a joiner's first message asks for. Raises `MalformedMessage`."""
    match _unpacked(message):
        case [1, _, _, str(nameplate), *_]:
            return nameplate
        case _:
            raise MalformedMessage("the first message of a pairing can't be read")


def refusal(error: PeerError) -> bytes:
    """The message that tells a joiner why it was refused."""
    return wire.pack([0, error.reason if isinstance(error, PairingRefused) else "failed"])


def _unpacked(message: bytes) -> Any:
    return wire.unpack(message, limit=MESSAGE_LIMIT, nesting=3)


def _issuers(certificate: bytes, chain: list[Any], root_public: bytes) -> tuple[bytes, ...]:
    """The certificates between a new one and the root: none where the root signed it, else those of its inviter."""
    if not all(isinstance(each, bytes) for each in chain) or not 0 < len(chain) <= MOST_ISSUERS:
        raise MalformedMessage("a chain of certificates that can't be read")
    return () if read_certificate(certificate).issuer == root_public else tuple(cast(list[bytes], chain))
