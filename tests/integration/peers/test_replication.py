"""Real stores in homes of their own come to hold the same over pipes."""

from __future__ import annotations

import asyncio

from p2pqueue.replica.syncing.messages import MAX_WRITES, Heads, Writes
from p2pqueue.replica.syncing.offering import AHEAD, WINDOW
from tests.integration.peers.lan import Lan, Weather


async def test_what_one_device_writes_is_on_the_disk_of_the_other(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    lan.link(here, there)
    await lan.wait_until_equal(here, there)
    (job,) = await here.make()
    await there.wait_for_jobs(job)
    (back,) = await there.make()
    await here.wait_for_jobs(back)
    await lan.wait_until_equal(here, there)
    assert not here.reports
    assert not there.reports


async def test_a_commit_is_pushed_at_once_and_not_with_the_next_exchange_of_heads(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    end = lan.link(here, there)
    await lan.wait_until_equal(here, there)
    for _ in range(5):
        heads = sum(isinstance(message, Heads) for message in end.twin.sent)
        (job,) = await here.make()
        await there.wait_for_jobs(job)
        told = sum(isinstance(message, Heads) for message in end.twin.sent) - heads
        assert told <= 2, "it came only after the other side had asked again"


async def test_a_quiet_commit_is_pushed_too(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    lan.link(here, there)
    (job,) = await here.make()
    await there.wait_for_jobs(job)
    await here.store.write(lambda writer: writer.put("jobs", job, "tune", ("claimed quietly", 1)), quiet=True)

    async def came() -> bool:
        return (await there.titles())[job] == "claimed quietly"

    await there.wait(came)


async def test_a_common_peer_passes_on_what_others_wrote(lan: Lan) -> None:
    west, middle, east = [await lan.device(name) for name in ("west", "middle", "east")]
    lan.link(west, middle)
    lan.link(middle, east)
    (one,), (two,) = await west.make(), await east.make()
    await east.wait_for_jobs(one)
    await west.wait_for_jobs(two)
    await lan.wait_until_equal(west, middle, east)


async def test_four_devices_linked_to_one_another_become_equal_and_send_nothing_for_ever(lan: Lan) -> None:
    devices = [await lan.device(name) for name in ("north", "east", "south", "west")]
    ends = [lan.link(one, two) for index, one in enumerate(devices) for two in devices[index + 1 :]]
    for device in devices:
        await device.make(50)
    await lan.wait_until_equal(*devices)
    await asyncio.sleep(0.6)  # the last relays have looked
    before = [_writes(end.sent) + _writes(end.twin.sent) for end in ends]
    await asyncio.sleep(1.0)
    assert [_writes(end.sent) + _writes(end.twin.sent) for end in ends] == before


async def test_a_new_device_gets_thousands_of_jobs_page_by_page_the_newest_first(lan: Lan) -> None:
    old = await lan.device("old")
    made = [job for _ in range(6) for job in await old.make(500)]
    new = await lan.device("new")
    end = lan.link(old, new)
    await lan.wait_until_equal(old, new)
    messages = [message for message in end.sent if isinstance(message, Writes)]
    assert max(len(message.writes) for message in messages) <= MAX_WRITES
    sent = [write.key for message in messages for write in message.writes if write.table == "jobs" and write.register == "spec"]
    assert sent == sorted(made, reverse=True)
    assert end.most_under_way <= (WINDOW + 1) * 64 * 1024
    assert len(messages) > 2 * AHEAD, "it was no more than two pages"
    assert not new.reports


async def test_a_long_history_of_changes_is_sent_once_and_without_what_it_overtook(lan: Lan) -> None:
    old = await lan.device("old")
    jobs = await old.make(1_000)
    for title in ("first", "second", "third"):
        await old.edit(jobs, title)
    new = await lan.device("new")
    end = lan.link(old, new)
    await lan.wait_until_equal(old, new)
    assert _writes(end.sent) < 3_100
    assert set((await new.titles()).values()) == {"third"}


async def test_both_sides_change_the_same_jobs_apart_and_meet(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    end = lan.link(here, there)
    jobs = await here.make(300)
    await there.wait_for_jobs(*jobs)
    await lan.wait_until_equal(here, there)
    lan.cut(end)
    await here.edit(jobs, "here")
    await there.edit(jobs[:200], "there")
    new = await there.make(10)
    lan.link(here, there)
    await here.wait_for_jobs(*new)
    await lan.wait_until_equal(here, there)
    assert await here.titles() == await there.titles()
    assert set((await here.titles()).values()) == {"here", "there", "title"}


async def test_links_that_lose_double_delay_and_shuffle_cost_only_time(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    lan.link(here, there, Weather(loss=0.1, twice=0.1, delay=0.002, shuffle=0.05))
    jobs = await here.make(400)
    back = await there.make(100)
    await here.edit(jobs[:50], "edited")
    await there.wait_for_jobs(*jobs)
    await here.wait_for_jobs(*back)
    await lan.wait_until_equal(here, there)


async def test_a_link_that_is_cut_again_and_again_gets_there(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    jobs = [job for _ in range(4) for job in await here.make(250)]
    for _ in range(6):
        end = lan.link(here, there, Weather(delay=0.005))
        await asyncio.sleep(0.1)
        lan.cut(end)
    lan.link(here, there)
    await there.wait_for_jobs(*jobs)
    await lan.wait_until_equal(here, there)


async def test_a_new_link_takes_the_place_of_the_one_before(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    old = lan.link(here, there)
    await lan.wait_until_equal(here, there)
    new = lan.link(here, there)
    here.replication.down(old)  # comes late, and is about the old one
    (job,) = await here.make()
    await there.wait_for_jobs(job)
    assert any(isinstance(message, Writes) for message in new.sent)


async def test_the_status_tells_how_far_both_sides_are(lan: Lan) -> None:
    here, there = await lan.device("here"), await lan.device("there")
    assert here.replication.status() == {}
    lan.link(here, there)
    await here.make(3)
    name = here.identity.device_id
    await there.wait(lambda: there.replication.status()[name]["in_sync"] and there.replication.status()[name]["last_done"] is not None)
    told = there.replication.status()[name]
    assert (told["behind"], told["ahead"], told["trouble"], told["reports"]) == (0, 0, None, {})
    assert told["rounds"] >= 1


def _writes(messages: list[object]) -> int:
    return sum(len(message.writes) for message in messages if isinstance(message, Writes))
