"""What lies in a mailbox for two devices to meet by: what is true makes a link, all else is told once and does nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from p2pqueue.identity.keys import Identity
from p2pqueue.identity.members import Member
from p2pqueue.net.mesh import NetOptions
from p2pqueue.payload.origins.objects import Listed
from p2pqueue.peers.mail import rendezvous as module
from p2pqueue.peers.mail.format import Index, MailKeys
from p2pqueue.peers.mail.inbox import Seen
from p2pqueue.peers.mail.letters import LETTER_LIMIT, LETTERS, MOST_NONCES, OFFER, VALID_FOR, Letter, Refusals, letter_path
from p2pqueue.peers.mail.rendezvous import MOST_NEW, Rendezvous
from p2pqueue.peers.mail.telling import TOLD_FOR
from p2pqueue.replica.replica import wall_clock
from tests.property.mail import Place
from tests.unit.net.connected import nothing_unseen  # noqa: F401  a fixture
from tests.unit.net.kit import Node, Space, closing, until

pytestmark = pytest.mark.usefixtures("nothing_unseen")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"GRACE": 0.05, "TICK": 0.02, "POLL_EVERY": 0.05}.items():
        monkeypatch.setattr(module, name, seconds)


class Archive(Place):
    """A place that keeps what was ever put there."""

    def __init__(self) -> None:
        super().__init__()
        self.archive: dict[str, bytes] = {}

    async def put_mail(self, name: str, body: bytes) -> None:
        await super().put_mail(name, body)
        self.archive[name] = body

    def letters(self) -> list[str]:
        return [name for name in self.objects if name.split("/")[2].startswith(LETTERS)]

    def offers(self) -> list[str]:
        return [name for name in self.archive if name.split("/")[2].startswith(OFFER)]


class Correspondent:
    """A device that meets others by one place alone: nobody is dialled."""

    def __init__(self, identity: Identity, place: Archive) -> None:
        self.identity, self.place = identity, place
        self.node = Node(identity, options=NetOptions(listen="127.0.0.1:0", discovery=False, interfaces=("lo",)))
        self.keys = MailKeys(identity.space_key, os.urandom)
        self.tag = self.keys.device(identity.device_id)
        self.begin()

    def begin(self) -> None:
        mesh = self.node.mesh
        self.rendezvous = Rendezvous(
            self.place, self.identity, self.node.members, net=mesh.meeting, posts=True, is_on=lambda: mesh.is_online,
            linked=mesh.peers.keys,
        )  # fmt: skip

    def told(self) -> Seen:
        """Its index, as others read it."""
        own = self.identity
        member = Member(own.device_id, own.label, own.role, own.public_key, own.certificate)
        return Seen(self.tag, "i-0", member, Index(1, 1, {}, {}, about=self.rendezvous.about()))

    async def look(self, *others: Correspondent) -> None:
        listed = await self.place.list_mail(self.keys.space)
        self.rendezvous.looked(listed, {other.tag: other.told() for other in others})

    def put(
        self, path: str, letter: Letter, *, signer: Identity | None = None, change: Callable[[bytes], bytes] = lambda body: body
    ) -> None:
        """Puts a letter there as this device would, or not quite so."""
        body = change(self.keys.seal(path, letter.pack(path, signer or self.identity)))
        self.place.objects[path] = (body, 1)
        self.place.history.append(dict(self.place.objects))

    def offer_to(self, other: Correspondent, **changed: object) -> tuple[str, Letter]:
        """An offer as this device would write it, and where it would lie; its signal leads nowhere."""
        start = other.rendezvous._telling.start
        letter = Letter(self.identity.device_id, other.identity.device_id, os.urandom(16), start, wall_clock(), b"\x80")
        letter = replace(letter, **changed)  # type: ignore[arg-type]
        return letter_path(self.keys, OFFER, self.identity.device_id, other.identity.device_id, letter.nonce), letter


@contextlib.asynccontextmanager
async def corresponding(*, looking: bool = True) -> AsyncIterator[tuple[Correspondent, Correspondent]]:
    """Two devices, that with the lower id first, which look into one place all the time."""
    place = Archive()
    one, two = (Correspondent(identity, place) for identity in Space().identities("one", "two"))

    async def keep_looking() -> None:
        while True:
            await one.look(two)
            await two.look(one)
            await asyncio.sleep(0.02)

    async with closing(one.node, two.node):
        await one.node.mesh.start()
        await two.node.mesh.start()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.rendezvous.run()) for each in (one, two)]
            if looking:
                tasks.append(group.create_task(keep_looking()))
            yield one, two
            for task in tasks:
                task.cancel()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == module.__name__ and "refused" in record.getMessage()]


async def settle(device: Correspondent, *others: Correspondent) -> None:
    """Lets a device look several times, and do what follows."""
    for _ in range(5):
        await device.look(*others)
        await asyncio.sleep(0.05)


async def test_two_devices_link_by_an_offer_and_an_answer_which_are_taken_away_then() -> None:
    async with corresponding() as (one, two):
        await until(lambda: one.node.linked(two.node))
        await until(lambda: one.rendezvous.met == two.rendezvous.met == 1)
        await until(lambda: not one.place.letters())
        assert len(one.place.offers()) == 1
        assert one.rendezvous.status() == {"told": 1, "met": 1, "why": {}}
        one.node.peer(two.node).drop(4000, "a test ends it")
        await until(lambda: one.rendezvous.met == 2)  # it is made again


async def test_a_replayed_offer_does_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with corresponding(looking=False) as (one, two):
        for _ in range(200):
            await one.look(two)
            await two.look(one)
            await asyncio.sleep(0.02)
            if one.node.linked(two.node) and not one.place.letters():
                break
        (path,) = one.place.offers()
        for _ in range(3):
            await one.place.put_mail(path, one.place.archive[path])
            await settle(two, one)
            await one.place.delete_mail(path)
            await settle(two, one)
        assert told(caplog) == ["a letter in the mailbox is refused: it was read before"]
        assert two.rendezvous.met == 1
        assert two.node.linked(one.node)


Forged = Callable[[Correspondent, Correspondent, Correspondent], None]


def altered(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two)
    one.put(path, letter, change=lambda body: body[:-1] + bytes([body[-1] ^ 1]))


def moved(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two)
    elsewhere, _ = one.offer_to(two)
    body = one.keys.seal(path, letter.pack(path, one.identity))
    one.put(elsewhere, letter, change=lambda _: body)


def signed_by_another(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two)
    one.put(path, letter, signer=three.identity)


def of_a_stranger(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two)
    one.put(path, letter, signer=Space().identity("stranger"))


def for_another(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two, receiver=three.identity.device_id)
    one.put(path, letter)


def for_another_start(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two, start=os.urandom(16))
    one.put(path, letter)


def old(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two, at=wall_clock() - VALID_FOR - 1000)
    one.put(path, letter)


def oversized(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two)
    one.put(path, letter, change=lambda body: body + bytes(LETTER_LIMIT))


def of_the_higher_device(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = three.offer_to(two)
    three.put(path, letter)


def without_a_signal(one: Correspondent, two: Correspondent, three: Correspondent) -> None:
    path, letter = one.offer_to(two)
    one.put(path, letter)


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (altered, "doesn't open"),
        (moved, "doesn't open"),
        (signed_by_another, "another device signed"),
        (of_a_stranger, "a letter is not read"),
        (for_another, "it is for another device"),
        (for_another_start, "it is for another start"),
        (old, "it is old, or one of the two clocks is wrong"),
        (oversized, "bytes"),
        (of_the_higher_device, "its sender is not the one that offers"),
        (without_a_signal, "a signal without"),
    ],
)
async def test_what_is_no_offer_does_nothing_and_is_told_once(forge: Forged, words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    place = Archive()
    one, two, three = (Correspondent(identity, place) for identity in Space().identities("one", "two", "three"))
    async with closing(two.node):
        await two.node.mesh.start()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(two.rendezvous.run())
            forge(one, two, three)
            before = set(place.archive)
            await settle(two, one, three)
            forge(one, two, three)  # once more, under another name
            await settle(two, one, three)
            assert set(place.archive) == before  # nothing was answered
            running.cancel()
    assert len(told(caplog)) == 1
    assert words in told(caplog)[0]
    assert two.rendezvous.met == 0
    if forge is oversized:
        assert place.reads == 0


async def test_a_flood_of_offers_costs_a_few_readings_and_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    place = Archive()
    one, two = (Correspondent(identity, place) for identity in Space().identities("one", "two"))
    async with closing(two.node):
        await two.node.mesh.start()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(two.rendezvous.run())
            for _ in range(50):
                altered(one, two, one)
            await settle(two, one)
            running.cancel()
    assert place.reads <= MOST_NEW
    assert "a letter in the mailbox is refused: there are too many of its sender" in told(caplog)
    assert len(told(caplog)) <= 2


async def test_a_letter_that_is_none_beside_an_offer_keeps_that_from_nothing() -> None:
    async with corresponding(looking=False) as (one, two):
        await one.look(two)
        await until(one.place.letters)
        for _ in range(MOST_NEW - 1):
            altered(one, two, one)
        await two.look(one)
        await until(lambda: one.node.linked(two.node))


async def test_an_offer_that_nobody_answers_is_taken_away_and_made_again_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OFFER_WAIT", 0.2)
    async with corresponding(looking=False) as (one, two):
        await one.look(two)
        await until(lambda: "didn't answer" in one.rendezvous.status()["why"].get(two.identity.device_id, ""))
        await until(lambda: not one.place.letters())
        await settle(one, two)
        assert len(one.place.offers()) == 1  # it waits for a minute
        two.begin()  # that device starts anew
        await one.look(two)
        await until(lambda: len(one.place.offers()) == 2)


async def test_a_device_that_goes_offline_takes_its_offer_away_and_makes_another_when_it_is_back() -> None:
    async with corresponding(looking=False) as (one, two):
        await one.look(two)
        await until(one.place.letters)
        await one.node.mesh.offline()
        await until(lambda: not one.place.letters())
        await asyncio.sleep(0.2)
        assert len(one.place.offers()) == 1
        await one.node.mesh.online()
        await until(lambda: len(one.place.offers()) == 2)


async def test_a_device_that_parts_leaves_no_letter_behind() -> None:
    async with corresponding(looking=False) as (one, two):
        await one.look(two)
        await until(one.place.letters)
        one.node.mesh._running, running = None, one.node.mesh._running  # offline, as it is by then
        await one.rendezvous.part()
        assert not one.place.letters()
        one.node.mesh._running = running


async def test_letters_of_an_earlier_run_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with corresponding(looking=False) as (one, two):
        path, letter = two.offer_to(one)
        two.put(path, letter)
        await two.look(one)
        await until(lambda: not two.place.letters())


async def test_an_answer_that_was_changed_makes_no_link_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with corresponding(looking=False) as (one, two):
        put = one.place.put_mail

        async def change(name: str, body: bytes) -> None:
            await put(name, body if name.split("/")[2].startswith(OFFER) else body[:-1] + bytes([body[-1] ^ 1]))

        one.place.put_mail = change  # type: ignore[method-assign]
        await one.look(two)
        await until(one.place.letters)
        await two.look(one)
        await until(lambda: told(caplog))
        assert "doesn't open" in told(caplog)[0]
        assert one.rendezvous.met == 0


async def test_what_lay_there_unchanged_for_long_is_no_hint_any_more_whatever_the_clocks_say() -> None:
    async with corresponding(looking=False) as (one, two):
        two.node.others = one.node.others = {}
        index, other = f"{two.keys.space}/{two.tag}/i-0", f"{two.keys.space}/{one.tag}/i-0"

        def listed(age: float) -> list[Listed]:
            return [Listed(index, 1, "a", 5.0), Listed(other, 1, "b", 5.0 + age)]

        one.rendezvous.looked(listed(TOLD_FOR - 1), {two.tag: two.told()})
        assert one.node.book.candidates(two.identity.device_id) == two.node.mesh.meeting.endpoints
        one.rendezvous.looked(listed(TOLD_FOR), {two.tag: two.told()})
        assert one.node.book.candidates(two.identity.device_id) == ()


async def test_who_doesnt_write_there_offers_and_answers_nothing() -> None:
    async with corresponding(looking=False) as (one, two):
        one.rendezvous._posts = False
        await settle(one, two)
        assert not one.place.archive


def test_a_device_may_only_have_so_many_offers_open_and_old_ones_are_forgotten() -> None:
    one, two = Space().identities("one", "two")
    start = os.urandom(16)
    refusals = Refusals(two.device_id, start)

    def offer(at: int) -> Letter:
        return Letter(one.device_id, two.device_id, os.urandom(16), start, at, b"\x80")

    assert [refusals.of_offer(offer(1_000), wall=1_000) for _ in range(MOST_NONCES)] == [None] * MOST_NONCES
    assert refusals.of_offer(offer(1_000), wall=1_000) == "there are too many of its sender"
    later = 1_000 + 2 * VALID_FOR
    assert refusals.of_offer(offer(later), wall=later) is None
