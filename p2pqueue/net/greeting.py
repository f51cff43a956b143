"""How does a fresh connection become a link, a pairing, or nothing?

Drives the hello and the handshake over a pipe, with a time limit. Whoever is refused is told a code and nothing else;
this side's own words stand in the error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, runtime_checkable

from p2pqueue.errors import LinkRefused, MalformedMessage, PeerError
from p2pqueue.net import codes
from p2pqueue.net.framing import Assembler, split
from p2pqueue.net.handshake import FIRST_LIMIT, PAIR_MODE, SECRET_SIZE, Credentials, Initiator, Proven, Responder
from p2pqueue.net.hello import Hello, agree, read_hello
from p2pqueue.net.notes import About, Note, Twin, read_note
from p2pqueue.net.pipe import AnyPipe
from p2pqueue.net.sealing import Opener, Sealer, SessionKeys
from p2pqueue.net.twins import Twins

HANDSHAKE_WAIT = 5.0  # seconds from the connection to the link


class Admitted(Protocol):
    """A device that may be linked: `identity.members.Member` is one."""

    @property
    def device_id(self) -> str: ...  # noqa: D102
    @property
    def role(self) -> str: ...  # noqa: D102
    @property
    def label(self) -> str: ...  # noqa: D102


@runtime_checkable
class Refused(Protocol):
    """Why a device may not: `identity.members.Refusal` is one."""

    @property
    def words(self) -> str: ...  # noqa: D102


_Result = TypeVar("_Result")
Admit = Callable[[list[bytes]], Admitted | Refused]


class Duplicate(LinkRefused):
    """The two devices are linked already, or about to be."""

    def __init__(self, device_id: str) -> None:
        super().__init__(codes.words(codes.DUPLICATE), code=codes.DUPLICATE)
        self.device_id = device_id


@dataclass(frozen=True)
class Greeted:
    """The other side of a link that is about to begin."""

    device_id: str
    role: str
    label: str
    product: str  # the version of p2pqueue that it runs
    protocol: int
    instance: bytes
    public_key: bytes
    about: About
    mine: About  # what this device says of itself to it; the dialling side says it in the link's first frame
    chain: list[bytes]
    dialled: bool  # by this device
    sealer: Sealer
    opener: Opener


@dataclass(frozen=True)
class Desk:
    """What every greeting of this device needs."""

    hello: Hello
    credentials: Callable[[], Credentials]
    admit: Admit
    about: Callable[[], About]
    coming: Callable[[Proven, int], None]  # (who, +1 or −1): it may link and is about to, or is no more
    twins: Twins


async def dial(pipe: AnyPipe, desk: Desk) -> Greeted:
    """Makes a link over a connection that this device opened. Raises `PeerError`s and `OSError`; closes the pipe then."""
    return await _surely(pipe, _dial(pipe, desk))


async def answer(pipe: AnyPipe, desk: Desk) -> Greeted | Hello:
    """Makes a link over a connection that came in; gives the other's hello where it wants to pair instead."""
    return await _surely(pipe, _answer(pipe, desk))


async def exchange_hellos(pipe: AnyPipe, mine: Hello) -> tuple[Hello, bytes, int]:
    """Says hello; gives that of the other side, its bytes, and the version to go on with. Raises `LinkRefused` in words."""
    await pipe.send(mine.pack())
    frame = await pipe.receive()
    theirs = read_hello(frame)
    try:
        return theirs, frame, agree(mine, theirs)
    except LinkRefused as error:
        raise LinkRefused(str(error), code=codes.OTHER_PROTOCOL) from None


async def receive_early(pipe: AnyPipe) -> bytes:
    """A frame of a side that is not known yet. Raises `MalformedMessage` beyond what such a frame may have."""
    frame = await pipe.receive()
    if len(frame) > FIRST_LIMIT:
        raise MalformedMessage(f"a first frame of {len(frame)} bytes")
    return frame


async def _surely(pipe: AnyPipe, greeting: Awaitable[_Result]) -> _Result:
    """Runs a greeting within its time; however it fails, the connection is closed."""
    code = codes.FAULT
    done = False
    try:
        async with asyncio.timeout(HANDSHAKE_WAIT):
            result = await greeting
        done = True
        return result
    except TimeoutError:
        code = codes.TOO_SLOW
        raise LinkRefused("it didn't answer the handshake in time", code=codes.TOO_SLOW) from None
    except LinkRefused as error:
        code = error.code or codes.STRANGER
        raise
    except PeerError:
        code = codes.MALFORMED
        raise
    finally:
        if not done:
            await pipe.close(code)


async def _dial(pipe: AnyPipe, desk: Desk) -> Greeted:
    theirs, frame, protocol = await exchange_hellos(pipe, desk.hello)
    initiator = Initiator(desk.credentials(), secret=os.urandom(SECRET_SIZE), hellos=(desk.hello.pack(), frame))
    await pipe.send(initiator.begin())
    await pipe.send(initiator.prove(await receive_early(pipe)))
    proven = initiator.finish(await receive_early(pipe))
    desk.twins.is_mine(proven, True)
    member = _admitted(desk.admit(proven.chain), proven)
    about = _about_of(read_note(proven.about))
    if about.twin is not None:
        answer = desk.twins.answer(about.twin, member.label or about.label)
        await pipe.send(Sealer(initiator.keys.sending).seal(next(split("net", answer.pack()))))
        raise LinkRefused(codes.words(codes.CLONE), code=codes.CLONE)
    return _greeted(proven, member, theirs, protocol=protocol, about=about, mine=desk.about(), keys=initiator.keys, dialled=True)


async def _answer(pipe: AnyPipe, desk: Desk) -> Greeted | Hello:
    theirs, frame, protocol = await exchange_hellos(pipe, desk.hello)
    beginning = await receive_early(pipe)
    if beginning == PAIR_MODE:
        return theirs
    responder = Responder(desk.credentials(), secret=os.urandom(SECRET_SIZE), hellos=(frame, desk.hello.pack()))
    await pipe.send(responder.answer(beginning))
    proven = responder.check(await receive_early(pipe))
    if desk.twins.is_mine(proven, False):
        await pipe.send(responder.prove(desk.about().pack()))  # so that it learns the same
        raise LinkRefused("this device dialled itself, or is here twice", code=codes.CLONE)
    member = _admitted(desk.admit(proven.chain), proven)
    if (holding := desk.twins.holding(proven)) is not None:
        await pipe.send(responder.prove(replace(desk.about(), twin=holding).pack()))
        said = await _first_note(pipe, Opener(responder.keys.receiving))
        if isinstance(said, Twin):
            desk.twins.introduce(proven, said)
        raise LinkRefused("two running devices show the same key: one of the two homes was copied", code=codes.CLONE)
    desk.coming(proven, +1)
    try:
        mine = desk.about()
        await pipe.send(responder.prove(mine.pack()))
        opener = Opener(responder.keys.receiving)
        about = _about_of(await _first_note(pipe, opener))
    finally:
        desk.coming(proven, -1)
    return _greeted(proven, member, theirs, protocol=protocol, about=about, mine=mine, keys=responder.keys, dialled=False, opener=opener)


def _greeted(
    proven: Proven, member: Admitted, hello: Hello, *, protocol: int, about: About, mine: About, keys: SessionKeys,
    dialled: bool, opener: Opener | None = None,
) -> Greeted:  # fmt: skip
    return Greeted(
        device_id=proven.device_id,
        role=member.role,
        label=member.label or about.label,
        product=hello.product,
        protocol=protocol,
        instance=proven.instance,
        public_key=proven.public_key,
        about=about,
        mine=mine,
        chain=proven.chain,
        dialled=dialled,
        sealer=Sealer(keys.sending),
        opener=opener or Opener(keys.receiving),
    )


def _admitted(outcome: Admitted | Refused, proven: Proven) -> Admitted:
    if isinstance(outcome, Refused):
        raise LinkRefused(outcome.words, code=codes.REFUSED)
    if outcome.device_id != proven.device_id:
        raise LinkRefused("the certificates tell of another device", code=codes.REFUSED)
    return outcome


async def _first_note(pipe: AnyPipe, opener: Opener) -> Note | None:
    """What the dialling side says in the link's first frame."""
    match Assembler().take(opener.open(await receive_early(pipe))):
        case ("net", message):
            return read_note(message)
        case _:
            raise MalformedMessage("the first frame of a link tells what its maker is")


def _about_of(note: Note | None) -> About:
    if not isinstance(note, About):
        raise MalformedMessage("a device that doesn't say what it is")
    return note
