"""A node lets one device in while an invitation is open, tells what becomes of it, and survives every stranger."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.errors import ArgumentError, DiskFull, MalformedMessage, NotAllowed, PairingFailed, PeerGone, WrongState
from p2pqueue.home import Home
from p2pqueue.identity import codes, members
from p2pqueue.identity.keys import Identity, JoinedSpace, create
from p2pqueue.identity.pairing import Joiner
from p2pqueue.jobs.opening import open_replica, open_store
from p2pqueue.net.hello import PROTOCOLS, Hello
from p2pqueue.peers import book, pairing
from p2pqueue.peers.joining import new_joiner, settle
from p2pqueue.peers.pairing import Invitations, pair
from p2pqueue.replica.store import Store


class Pipe:
    """One end of a connection in memory."""

    hello = Hello(*PROTOCOLS, "test")

    def __init__(self, inbox: asyncio.Queue[bytes | None], outbox: asyncio.Queue[bytes | None]) -> None:
        self._inbox, self._outbox = inbox, outbox
        self.change: Callable[[bytes], bytes] = lambda message: message

    async def send(self, message: bytes) -> None:
        self._outbox.put_nowait(self.change(message))

    async def receive(self) -> bytes:
        message = await self._inbox.get()
        if message is None:
            raise PeerGone("it has gone")
        return message

    def close(self) -> None:
        self._outbox.put_nowait(None)


def pipes() -> tuple[Pipe, Pipe]:
    there: asyncio.Queue[bytes | None] = asyncio.Queue()
    back: asyncio.Queue[bytes | None] = asyncio.Queue()
    return Pipe(there, back), Pipe(back, there)


@dataclass
class Box:
    """A device that invites, and what it showed."""

    home: Home
    identity: Identity
    store: Store
    invitations: Invitations
    shown: list[str | None] = field(default_factory=list)

    async def members(self) -> list[tuple[str, str]]:
        return sorted((each.label, each.role) for each in await self.store.read(members.read))


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    home = Home(tmp_path / "box")
    identity = create(home, space_name="studio", label="box")
    store = await open_store(home, identity)
    shown: list[str | None] = []
    invitations = Invitations(identity=identity, write=store.write, announce=shown.append, addresses=lambda: ["10.0.0.7:7433"])
    yield Box(home, identity, store, invitations, shown)
    await store.close()


@asynccontextmanager
async def opened(box: Box, **wanted: Any) -> AsyncGenerator[tuple[dict[str, Any], AsyncIterator[dict[str, Any]]], None]:
    async with aclosing(box.invitations.open(**wanted)) as events:
        yield await anext(events), events


async def come_in(
    box: Box, code: str, home: Home, *, label: str = "laptop", change: Callable[[bytes], bytes] | None = None
) -> Identity:  # fmt: skip
    """A device that was told the code comes in, over a connection whose messages from the inviter may be changed."""
    ours, theirs = pipes()
    if change is not None:
        ours.change = change
    serving = asyncio.ensure_future(box.invitations.serve(ours))
    try:
        return await pair(theirs, joiner(code, label), keep=lambda space: settle(home, space, label=label))
    finally:
        theirs.close()
        await serving


def joiner(code: str, label: str = "laptop") -> Joiner:
    return new_joiner(codes.parse(code), label)


def wrong(code: str) -> str:
    return "-".join([*code.split("-")[:2], "zither" if not code.endswith("zither") else "abacus"])


async def test_a_device_comes_in_and_both_replicas_know_it(box: Box, tmp_path: Path) -> None:
    async with opened(box, role="worker") as (first, events):
        assert (first["role"], first["addresses"], first["nameplate"]) == ("worker", ["10.0.0.7:7433"], first["code"].split("-")[0])
        identity = await come_in(box, first["code"], Home(tmp_path / "laptop"))
        assert await anext(events) == {"joined": {"id": identity.device_id, "label": "laptop", "role": "worker"}}
        assert [event async for event in events] == []
    assert box.shown == [first["nameplate"], None]
    assert await box.members() == [("box", "owner"), ("laptop", "worker")]
    assert identity.space_key == box.identity.space_key
    replica = open_replica(Home(tmp_path / "laptop"), identity)
    try:
        assert [(each.device_id, each.role) for each in replica.read(members.read)] == [(identity.device_id, "worker")]
    finally:
        replica.close()


async def test_where_the_inviter_was_is_kept_for_the_first_link(box: Box, tmp_path: Path) -> None:
    async with opened(box) as (first, _):
        ours, theirs = pipes()
        serving = asyncio.ensure_future(box.invitations.serve(ours))
        home = Home(tmp_path / "laptop")
        keep = partial(settle, home, label="laptop", at=("10.0.0.7", 7433))
        identity = await pair(theirs, joiner(first["code"]), keep=keep)
        await serving
    assert identity.inviter == (box.identity.device_id, "box")
    store = await open_store(home, identity)
    try:
        assert (await book.load(store)).candidates(box.identity.device_id) == (("10.0.0.7", 7433),)
    finally:
        await store.close()


async def test_two_devices_that_were_paired_take_one_anothers_rows(box: Box, tmp_path: Path) -> None:
    async with opened(box) as (first, _):
        identity = await come_in(box, first["code"], Home(tmp_path / "laptop"))
    replica = open_replica(Home(tmp_path / "laptop"), identity)
    try:
        theirs = await box.store.call(lambda mine: mine.live_writes(above={}))
        assert replica.merge(theirs).refused == ()
        assert (await box.store.merge(replica.live_writes(above={}))).refused == ()
        assert replica.verify_pending() == ()
        both = [replica.read(members.read), await box.store.read(members.read)]
        assert [[each.device_id for each in found] for found in both] == [sorted([identity.device_id, box.identity.device_id])] * 2
    finally:
        replica.close()


async def test_a_wrong_code_is_told_to_both_and_uses_the_code_up(box: Box, tmp_path: Path) -> None:
    async with opened(box) as (first, events):
        with pytest.raises(PairingFailed, match="That is not the code"):
            await come_in(box, wrong(first["code"]), Home(tmp_path / "guess"))
        assert "wrong code" in (await anext(events))["failed"]
        with pytest.raises(PairingFailed, match="No invitation with that number|used"):
            await come_in(box, first["code"], Home(tmp_path / "late"))
    assert await box.members() == [("box", "owner")]
    assert not (tmp_path / "guess" / "identity").exists()
    assert not (tmp_path / "late" / "identity").exists()


async def test_a_code_is_for_one_device(box: Box, tmp_path: Path) -> None:
    async with opened(box) as (first, events):
        await come_in(box, first["code"], Home(tmp_path / "one"))
        with pytest.raises(PairingFailed):
            await come_in(box, first["code"], Home(tmp_path / "two"))
        assert "joined" in await anext(events)
    assert len(await box.members()) == 2


async def test_strangers_are_counted_and_cost_no_guess(box: Box, tmp_path: Path) -> None:
    async with opened(box) as (first, events):
        other = f"{int(first['nameplate']) % 999 + 1}-orbit-velvet"
        with pytest.raises(PairingFailed, match="No invitation with that number"):
            await come_in(box, other, Home(tmp_path / "lost"))
        ours, theirs = pipes()
        await theirs.send(os.urandom(600))
        await box.invitations.serve(ours)
        theirs.close()
        ours, theirs = pipes()
        theirs.close()
        await box.invitations.serve(ours)
        told = [await anext(events) for _ in range(3)]
        assert [event["failures"] for event in told] == [1, 2, 3]
        assert "another code" in told[0]["refused"]
        await come_in(box, first["code"], Home(tmp_path / "laptop"))
        assert "joined" in await anext(events)


async def test_without_an_invitation_every_code_is_refused(box: Box, tmp_path: Path) -> None:
    with pytest.raises(PairingFailed, match="No invitation"):
        await come_in(box, "7-orbit-velvet", Home(tmp_path / "laptop"))


async def test_a_code_expires_and_nobody_comes_in_by_it(box: Box, tmp_path: Path) -> None:
    async with opened(box, ttl=0.05) as (first, events):
        assert await anext(events) == {"expired": True}
    with pytest.raises(PairingFailed):
        await come_in(box, first["code"], Home(tmp_path / "laptop"))
    assert box.shown[-1] is None


async def test_a_connection_that_breaks_off_uses_the_code_up(box: Box) -> None:
    async with opened(box) as (first, events):
        ours, theirs = pipes()
        await theirs.send(joiner(first["code"]).begin())
        theirs.close()
        await box.invitations.serve(ours)
        assert "went away" in (await anext(events))["failed"]


async def test_a_silent_joiner_is_waited_for_only_so_long(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "OPENING_WAIT", 0.02)
    monkeypatch.setattr(pairing, "EXCHANGE_WAIT", 0.02)
    async with opened(box) as (first, events):
        await box.invitations.serve(pipes()[0])
        assert "said nothing" in (await anext(events))["refused"]
        ours, theirs = pipes()
        await theirs.send(joiner(first["code"]).begin())
        await box.invitations.serve(ours)
        assert "failed" in await anext(events)
        with pytest.raises(PairingFailed, match="went silent"):
            await pair(pipes()[0], joiner(first["code"]), keep=never)


def never(space: JoinedSpace) -> Identity:
    raise AssertionError("nothing was to be kept")


async def test_an_invitation_that_is_closed_lets_nobody_in_who_is_halfway(box: Box, tmp_path: Path) -> None:
    ours, theirs = pipes()
    async with opened(box) as (first, _):
        machine = joiner(first["code"])
        serving = asyncio.ensure_future(box.invitations.serve(ours))
        message = machine.begin()
        for _ in range(2):
            await theirs.send(message)
            message = machine.receive(await theirs.receive()) or b""
    await theirs.send(message)
    with pytest.raises(PairingFailed, match="broke it off"):
        machine.receive(await theirs.receive())
    await serving
    assert await box.members() == [("box", "owner")]


async def test_one_invitation_is_open_at_a_time_and_another_after_it(box: Box) -> None:
    async with opened(box):
        with pytest.raises(WrongState, match="open already"):
            await anext(box.invitations.open())
    async with opened(box) as (first, _):
        assert first["code"]


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [({"role": "king"}, ArgumentError), ({"role": "store"}, NotAllowed), ({"ttl": 0.0}, ArgumentError), ({"ttl": 1e9}, ArgumentError)],
)
async def test_what_can_not_be_invited_is_said_before_a_code_is_shown(box: Box, wanted: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await anext(box.invitations.open(**wanted))
    assert box.shown == []


async def test_versions_that_were_changed_in_the_hello_are_noticed(box: Box, tmp_path: Path) -> None:
    async with opened(box) as (first, events):
        ours, theirs = pipes()
        theirs.hello = Hello(1, 9, "somebody in between")
        serving = asyncio.ensure_future(box.invitations.serve(ours))
        with pytest.raises(MalformedMessage, match="changed on the way"):
            await pair(theirs, joiner(first["code"]), keep=never)
        theirs.close()
        await serving
        assert "failed" in await anext(events)


async def test_a_full_disk_at_the_inviter_is_told_and_the_device_is_in(box: Box, tmp_path: Path) -> None:
    async def full(_function: Any) -> None:
        raise DiskFull("no space left")

    box.invitations = Invitations(identity=box.identity, write=full)
    async with opened(box) as (first, events):
        assert (await come_in(box, first["code"], Home(tmp_path / "laptop"))).role == "member"
        assert "is in, but this one could not write it down: no space left" in (await anext(events))["failed"]


async def test_a_joiner_that_can_not_keep_its_keys_is_not_in(box: Box, tmp_path: Path) -> None:
    def full(_space: JoinedSpace) -> Identity:
        raise DiskFull("no space left")

    async with opened(box) as (first, events):
        ours, theirs = pipes()
        serving = asyncio.ensure_future(box.invitations.serve(ours))
        with pytest.raises(DiskFull):
            await pair(theirs, joiner(first["code"]), keep=full)
        theirs.close()
        await serving
        assert "went away before it said that it kept it" in (await anext(events))["failed"]
    assert await box.members() == [("box", "owner")]
