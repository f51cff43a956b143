"""Devices that are never there together come to hold the same by mail, however late, lost or repeated its readings are.

Hypothesis chooses who writes, who looks and who posts, what the store shows of the past, which requests fail, which
device starts again, perhaps with an old disk, and which two meet for once. Then each device comes by a few times, and all must be equal.
"""

from __future__ import annotations

import functools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pqueue.peers.mail import plan as mailbox_plan
from tests.property.mail import World, images_of

NAMES = ("one", "two", "three")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("load"), st.integers(0, 2), st.integers(20, 60)),
        st.tuples(st.just("look"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("post"), st.integers(0, 2), st.integers(0, 1)),
        st.tuples(st.just("visit"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("late"), st.integers(0, 2), st.integers(0, 12)),
        st.tuples(st.sampled_from(["fail", "lose"]), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("restart"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("turns"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("meet"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 900)),
        st.tuples(st.sampled_from(["save", "restore"]), st.integers(0, 2), st.just(0)),
    ),
    max_size=60,
)
ROLES = st.sampled_from([("owner", "owner", "owner"), ("owner", "member", "worker"), ("owner", "worker", "worker")])


@functools.cache
def images() -> list[bytes]:
    return images_of(NAMES)


def carry_out(world: World, steps: list[tuple[str, int, int]]) -> bool:
    """Says whether a device came back with an old disk."""
    saved: dict[int, bytes] = {}
    restored = False
    for kind, who, number in steps:
        device = world.devices[who]
        world.now += 1.0
        match kind:
            case "write":
                device.write(number)
            case "load":
                device.load(number)
            case "turns" if who != number:
                for each in (device, world.devices[number]) * 2:
                    each.write(3 + who)
                    for visitor in (each, device, world.devices[number]):
                        world.now += 1.0
                        visitor.look()
                        visitor.post()
            case "look":
                device.look()
            case "post":
                device.post(acknowledge=bool(number))
            case "visit":
                device.look()
                device.post()
            case "late":
                world.place.late[device.outbox.tag] = number
            case "lose":
                world.place.lost[device.outbox.tag] = number
            case "fail":
                world.place.fails = number
            case "restart":
                device.restart()
            case "meet" if who != number:
                world.meet(who, number)
            case "wait":
                world.now += number
            case "save":
                saved[who] = device.replica.image()
            case "restore" if who in saved:
                device.restart(saved[who])
                restored = True
    return restored


@pytest.mark.timeout(180)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, roles=ROLES, small=st.sampled_from([1, 4096]))
def test_devices_that_are_never_there_together_come_to_hold_the_same(
    steps: list[tuple[str, int, int]], roles: tuple[str, str, str], small: int
) -> None:
    world = World(images(), dict(zip(NAMES, roles, strict=True)))
    mailbox_plan.SMALL, usual = small, mailbox_plan.SMALL
    try:
        restored = carry_out(world, steps)
        world.settle()
        states = [device.state() for device in world.devices]
        if not restored or set(roles) == {"owner"}:  # what a worker alone has of others it may not pass on
            assert states[0] == states[1] == states[2]
        if not restored:  # of an author that was given up some writes may stay uncounted for ever
            heads = [{author: head.seq for author, head in device.replica.heads().items()} for device in world.devices]
            assert heads[0] == heads[1] == heads[2]
            assert not any(device.replica.held() for device in world.devices)
        puts, reads = world.place.puts, world.place.reads
        world.settle(rounds=2)
        assert (world.place.puts, world.place.reads) == (puts, reads)  # nothing changes, nothing is done
    finally:
        mailbox_plan.SMALL = usual
        world.close()
