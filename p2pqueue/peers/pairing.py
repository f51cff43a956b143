"""How does a node let a new device in while an invitation is open, and how does a new device come in?

The machines of `identity.pairing` say what is said; here it goes over a connection, with limits of time, and what comes
of it is written down. `Invitations` is the inviter's side, `pair` the joiner's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, get_args

from p2pqueue.errors import ArgumentError, MalformedMessage, P2PQueueError, PairingFailed, PeerError, PeerGone, WrongState
from p2pqueue.identity import codes
from p2pqueue.identity.certificate import Role
from p2pqueue.identity.enrolling import Hand, enrol
from p2pqueue.identity.keys import Identity, JoinedSpace
from p2pqueue.identity.pairing import Inviter, Joiner, PairingRefused, nameplate_of, refusal
from p2pqueue.net.hello import PROTOCOLS, Hello

TTL = 600.0  # seconds for which a code is good, unless said
LONGEST_TTL = 86_400.0  # seconds; a code that is good for longer is a password on a slip of paper
OPENING_WAIT = 5.0  # seconds for a joiner's first message
EXCHANGE_WAIT = 20.0  # seconds from there to the last: six messages, and keys written to a slow disk
_GONE = "the other device went away before it was in; the code is used up"
_UNSURE = "the other device was given its certificate and went away before it said that it kept it: `p2pqueue devices` there tells"

_log = logging.getLogger(__name__)


class PairingPipe(Protocol):
    """A connection on which a stranger may speak the pairing protocol: `net.pairing.PairingPipe` is one."""

    @property
    def hello(self) -> Hello:
        """What the other side said first, in clear."""
        ...

    async def send(self, message: bytes) -> None:
        """Raises `PeerGone`."""
        ...

    async def receive(self) -> bytes:
        """Raises `PeerGone` and `MalformedMessage`."""
        ...


@dataclass
class _Invitation:
    """One open code."""

    inviter: Inviter
    nameplate: str
    events: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    failures: int = 0
    over: bool = False

    def tell(self, **event: Any) -> None:
        """Lets whoever opened it know."""
        self.over = self.over or "joined" in event or "failed" in event
        self.events.put_nowait(event)


class Invitations:
    """The codes of a device, of which one is open at a time.

    :param write: runs a function in a transaction of the replica: `Store.write`.
    :param announce: shows a nameplate by mDNS, or none (None).
    :param addresses: where this device listens, as `HOST:PORT`.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        write: Callable[[Callable[[Hand], None]], Awaitable[None]],
        announce: Callable[[str | None], object] = lambda _nameplate: None,
        addresses: Callable[[], Sequence[str]] = tuple,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.identity = identity
        self._write = write
        self._announce = announce
        self._addresses = addresses
        self._random = random
        self._open: _Invitation | None = None

    async def open(self, role: str = "member", ttl: float = TTL) -> AsyncGenerator[dict[str, Any], None]:
        """Makes a code and tells what becomes of it; the code is dead when this ends.

        First `{"code", "nameplate", "role", "expires_at", "addresses"}` (milliseconds UTC); then any number of
        `{"refused": words, "failures": n}`, and one of `{"joined": {"id", "label", "role"}}`, `{"failed": words}` and
        `{"expired": True}`. Raises `NotAllowed`, `WrongState` and `ArgumentError`.
        """
        invitation = self._begin(role, ttl)
        try:
            code = self._code
            yield {
                "code": code.text,
                "nameplate": code.nameplate,
                "role": role,
                "expires_at": int((time.time() + ttl) * 1000),
                "addresses": list(self._addresses()),
            }
            async for event in self._events(invitation, ttl):
                yield event
        finally:
            invitation.over = True
            invitation.inviter.end()
            self._open = None
            self._announce(None)

    def asked(self, fields: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The stream `invite` of the local socket: what `open` tells, for the fields `role` and `ttl` (seconds)."""
        ttl = fields.get("ttl", TTL)
        if not isinstance(ttl, (int, float)):
            raise ArgumentError("ttl is a number of seconds")
        return self.open(str(fields.get("role", "member")), float(ttl))

    async def serve(self, pipe: PairingPipe) -> None:
        """Speaks with one stranger who wants to pair. Never raises for what a peer or the network does."""
        invitation, inviter = self._open, None
        try:
            async with asyncio.timeout(OPENING_WAIT):
                first = await pipe.receive()
            inviter, answer = _wanted(invitation, first)
        except (PeerError, PeerGone, TimeoutError) as error:
            await self._refuse(pipe, invitation, error)
            return
        assert invitation is not None
        try:
            async with asyncio.timeout(EXCHANGE_WAIT):
                _check_hello(pipe, inviter)
                await _converse(pipe, inviter, answer)
            assert inviter.newcomer is not None
            newcomer = inviter.newcomer
            await self._write(lambda writer: enrol(writer, newcomer))
            invitation.tell(joined={"id": newcomer.device_id, "label": newcomer.label, "role": newcomer.role})
        except (PeerError, PeerGone, TimeoutError) as error:
            with contextlib.suppress(PeerGone):
                await pipe.send(refusal(error if isinstance(error, PeerError) else PairingFailed(_GONE)))
            invitation.tell(failed=_why_failed(error, inviter))
        except P2PQueueError as error:  # the device is in; this disk couldn't keep its row, which it brings itself
            _log.warning("the row of a new device could not be written: %s", error)
            invitation.tell(failed=f"the other device is in, but this one could not write it down: {error}")
        finally:
            if not invitation.over:  # the node stops in the midst of it
                invitation.tell(failed=_GONE)

    def _begin(self, role: str, ttl: float) -> _Invitation:
        if self._open is not None:
            raise WrongState("An invitation is open already: one device at a time; end that one, or wait for it")
        if role not in get_args(Role):
            raise ArgumentError(f"{role!r} is no role; there are {', '.join(get_args(Role))}")
        if not 0 < ttl <= LONGEST_TTL:
            raise ArgumentError("A code is good for at most a day")
        self._code = codes.make(self._random)
        inviter = Inviter(self._code, identity=self.identity, role=cast(Role, role), protocols=PROTOCOLS, random=self._random)
        self._open = _Invitation(inviter, self._code.nameplate)
        self._announce(self._code.nameplate)
        return self._open

    async def _events(self, invitation: _Invitation, ttl: float) -> AsyncIterator[dict[str, Any]]:
        deadline = asyncio.get_running_loop().time() + ttl
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    event = await invitation.events.get()
            except TimeoutError:
                if invitation.inviter.spent and not invitation.over:
                    deadline += EXCHANGE_WAIT  # a device that began in time may end, which it does within that
                    continue
                yield {"expired": True}
                return
            yield event
            if "joined" in event or "failed" in event:
                return

    async def _refuse(self, pipe: PairingPipe, invitation: _Invitation | None, error: Exception) -> None:
        if isinstance(error, PeerError):
            with contextlib.suppress(PeerGone):
                await pipe.send(refusal(error))
        if invitation is None:
            return
        invitation.failures += 1
        invitation.tell(refused=_why_refused(error), failures=invitation.failures)


async def pair(pipe: PairingPipe, joiner: Joiner, *, keep: Callable[[JoinedSpace], Identity]) -> Identity:
    """Comes into a space over a connection to its inviter; `keep` writes what was given, in a thread.

    Raises `PairingFailed` and other errors of the house in words; then nothing was kept, and the code is spent.
    """
    try:
        async with asyncio.timeout(EXCHANGE_WAIT):
            message: bytes | None = joiner.begin()
            while message is not None:
                await pipe.send(message)
                message = joiner.receive(await pipe.receive())
                _check_hello(pipe, joiner)
    except TimeoutError:
        raise PairingFailed("The other device went silent in the midst of it; make a new code there") from None
    except PeerGone as error:
        raise PairingFailed("The connection was lost in the midst of it; make a new code there") from error
    assert joiner.space is not None
    identity = await asyncio.to_thread(keep, joiner.space)
    with contextlib.suppress(PeerGone):  # then the inviter isn't sure, but this device is in
        await pipe.send(joiner.done())
    return identity


def _wanted(invitation: _Invitation | None, first: bytes) -> tuple[Inviter, bytes]:
    nameplate = nameplate_of(first)
    if invitation is None or invitation.over or nameplate != invitation.nameplate:
        raise PairingRefused("nameplate")
    return invitation.inviter, invitation.inviter.begin(first)


def _check_hello(pipe: PairingPipe, machine: Inviter | Joiner) -> None:
    """The hello was said in clear: what it promised must be what is said where nobody can change it."""
    if (pipe.hello.lowest, pipe.hello.highest) != machine.their_protocols:
        raise MalformedMessage("the versions were changed on the way")


async def _converse(pipe: PairingPipe, inviter: Inviter, answer: bytes | None) -> None:
    while answer is not None:
        await pipe.send(answer)
        answer = inviter.receive(await pipe.receive())


def _why_refused(error: Exception) -> str:
    if isinstance(error, PairingRefused):
        return {"nameplate": "a device asked for another code", "busy": "another device tried the same code"}.get(error.reason, str(error))
    if isinstance(error, PeerError):
        return f"a device said what can't be understood: {error}"
    return "a device knocked and said nothing"


def _why_failed(error: Exception, inviter: Inviter) -> str:
    if inviter.newcomer is not None:
        return _UNSURE
    if isinstance(error, PairingRefused):
        return "somebody typed a wrong code, or guessed; the code is used up"
    if isinstance(error, (PeerGone, TimeoutError)):
        return _GONE
    return f"the pairing was disturbed ({error}); the code is used up"
