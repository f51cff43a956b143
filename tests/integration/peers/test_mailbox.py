"""Nodes' stores exchange rows by way of a bucket while both are there, and rest while there is no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from p2pqueue.identity import members as reading
from p2pqueue.identity.members import Members
from p2pqueue.payload.origins.bucket import Bucket
from p2pqueue.payload.origins.bucket_client import BucketClient
from p2pqueue.peers.mail import mailbox as module
from p2pqueue.peers.mail.mailbox import Mailbox
from p2pqueue.replica.writer import Writer
from tests.integration.peers.lan import LIMIT, Device, Lan

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"LOOK_FIRST": 0.05, "LOOK_LAST": 0.2, "POST_FIRST": 0.02, "POST_LAST": 0.1, "GATHER": 0.01,
                          "ACKNOWLEDGE_EVERY": 0.2}.items():  # fmt: skip
        monkeypatch.setattr(module, name, seconds)


@asynccontextmanager
async def corresponding(device: Device, place: BucketClient, *, is_on: Callable[[], bool] = lambda: True) -> AsyncIterator[Mailbox]:
    members = Members(device.identity)
    members.refresh(await device.store.read(reading.read))
    mailbox = Mailbox(
        device.store, place, device.identity, members, is_on=is_on, posts=True, linked=tuple, brought=lambda forked: None,
        dropped=lambda rows: None,
    )  # fmt: skip

    async def keep() -> None:
        while True:
            await asyncio.sleep(0.1)
            members.refresh(await device.store.read(reading.read))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(mailbox.run()), group.create_task(keep())]
        yield mailbox
        for task in tasks:
            task.cancel()


def job(name: str) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        writer.put("jobs", name, "spec", {"queue": "q", "task": "t", "created_at": writer.now})

    return write


async def has(device: Device, *names: str) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            rows = await device.store.read(lambda connection: connection.execute("SELECT id FROM jobs").fetchall())
            if {row[0] for row in rows} >= set(names):
                return
            await asyncio.sleep(0.05)


async def test_rows_go_both_ways_while_both_are_there_and_come_to_rest(lan: Lan) -> None:
    one, two = await lan.device("one"), await lan.device("two")
    place = BucketClient(Bucket("memory://"))
    async with corresponding(one, place) as mailbox, corresponding(two, place):
        await one.store.write(job("a"))
        await has(two, "a")
        await two.store.write(job("b"))
        await has(one, "b")
        async with asyncio.timeout(LIMIT):
            while len(await place.store.listed("mail/")) > 2:  # noqa: ASYNC110 - when all have all, only the indexes are left
                await asyncio.sleep(0.05)
        assert mailbox.status()["devices"] == 1
        assert mailbox.status()["trouble"] is None


async def test_without_the_network_nothing_is_asked_and_with_it_again_all_that_waits_is_exchanged(lan: Lan) -> None:
    one, two = await lan.device("one"), await lan.device("two")
    place = BucketClient(Bucket("memory://"))
    on = False
    async with corresponding(one, place, is_on=lambda: on), corresponding(two, place):
        await one.store.write(job("a"))
        await asyncio.sleep(0.5)
        assert len({each.name.split("/")[2] for each in await place.store.listed("mail/")}) == 1
        on = True
        await has(two, "a")


async def test_a_place_that_is_away_is_told_in_words_and_tried_again(lan: Lan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from p2pqueue.payload.origins.objects import StoreFailed

    one, two = await lan.device("one"), await lan.device("two")
    bucket = Bucket("memory://")
    listed, away = bucket.listed, True

    async def fail(prefix: str, *, most: int | None = None) -> object:
        if away:
            raise StoreFailed("the bucket is out of order")
        return await listed(prefix, most=most)

    monkeypatch.setattr(bucket, "listed", fail)
    async with corresponding(one, BucketClient(bucket)) as mailbox, corresponding(two, BucketClient(bucket)):
        async with asyncio.timeout(LIMIT):
            while mailbox.status()["trouble"] != "the bucket is out of order":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await one.store.write(job("a"))
        away = False
        await has(two, "a")
        assert mailbox.status()["trouble"] is None


async def test_what_was_written_last_is_there_when_a_device_parts(lan: Lan, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = await lan.device("one"), await lan.device("two")
    place = BucketClient(Bucket("memory://"))
    async with corresponding(one, place) as mailbox:
        await one.store.write(job("a"))
        async with asyncio.timeout(LIMIT):
            while not mailbox.status()["written"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        for name in ("POST_FIRST", "POST_LAST"):
            monkeypatch.setattr(module, name, 1_000.0)
        monkeypatch.setattr(mailbox, "_post_pause", 1_000.0)
        await one.store.write(job("b"))
        await asyncio.sleep(0.1)
        await mailbox.part()
    async with corresponding(two, place):
        await has(two, "a", "b")
