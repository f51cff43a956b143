"""Whatever sources do, a file comes whole, nearly as fast as the honest ones together could bring it, and little comes twice."""

from __future__ import annotations

import itertools
import random

import pytest

from p2pqueue.payload.fetching.plan import ORIGIN_AFTER, SPARE, SPARE_SHARE
from p2pqueue.payload.fetching.standing import STRIKES
from p2pqueue.payload.format import MIB
from tests.simulation.fetching.world import LONGEST, Site, World

FAR = LONGEST


def fetched(world: World) -> float:
    seconds = world.run()
    assert sorted(world.came) == list(range(world.count))
    assert set(world.came.values()) <= {1}
    return seconds


def spare(count: int) -> int:
    return (SPARE + count // SPARE_SHARE) * MIB


def test_one_source_is_used_to_its_full_speed() -> None:
    world = World(1000, MIB, [Site("a", rate=100e6, delay=0.02)])
    assert fetched(world) < 1.05 * 1000 * MIB / 100e6 + 0.2
    assert world.wasted == 0


def test_a_long_way_is_filled_up_to_the_largest_window() -> None:
    world = World(400, MIB, [Site("a", rate=100e6, delay=0.2)])
    assert fetched(world) < 400 * MIB / (8 * MIB / 0.3) + 2.0


def test_two_devices_of_half_the_speed_are_nearly_as_fast_as_one() -> None:
    alone = fetched(World(600, MIB, [Site("a", rate=20e6)]))
    world = World(600, MIB, [Site("a", rate=20e6), Site("b", rate=20e6)])
    assert alone / fetched(world) > 1.9
    assert world.wasted <= spare(600)


@pytest.mark.parametrize("rate", [0.3e6, 0.4e6, 0.5e6, 0.6e6, 0.7e6, 0.8e6, 0.9e6])
def test_a_device_that_is_a_hundred_times_slower_costs_nothing(rate: float) -> None:
    alone = fetched(World(500, MIB, [Site("quick", rate=50e6)]))
    world = World(500, MIB, [Site("slow", rate=rate), Site("quick", rate=50e6)])
    seconds = fetched(world)
    assert seconds < 1.1 * alone + 0.5
    assert world.wasted <= spare(500)
    assert world.plan.twice <= 2  # what the other one brings sooner was not asked of it


def test_a_liar_is_out_after_three_whatever_the_lane() -> None:
    liar = [Site("liar", lane, rate=100e6, lies=1.0) for lane in ("http", "webrtc")]
    world = World(200, MIB, [*liar, Site("good", rate=10e6)])
    fetched(world)
    assert STRIKES <= world.answers["liar", "wrong"] <= STRIKES + 2 * 8  # those under way then
    assert world.answers["liar", "came"] == 0


def test_a_device_that_vanishes_gives_back_all_that_it_was_asked_for() -> None:
    world = World(300, MIB, [Site("a", rate=20e6, there=((0.0, 3.0),)), Site("b", rate=20e6, delay=0.03)])
    ideal = 3.0 + (300 * MIB - 2 * 3 * 20e6) / 20e6
    assert fetched(world) < 1.05 * ideal + 0.5
    assert world.wasted <= spare(300)


def test_one_that_falls_silent_delays_the_rest_by_no_more_than_what_is_late() -> None:
    world = World(300, MIB, [Site("a", rate=20e6, silent=((3.0, FAR),)), Site("b", rate=20e6)])
    ideal = 3.0 + (300 * MIB - 2 * 3 * 20e6) / 20e6
    assert fetched(world) < 1.05 * ideal + 2.0


def test_partial_holders_serve_what_they_have() -> None:
    even = Site("even", has=lambda chunk: chunk % 2 == 0)
    odd = Site("odd", has=lambda chunk: chunk % 2 == 1)
    fetched(World(100, MIB, [even, odd]))
    back = Site("back", rate=10e6, has=lambda chunk: chunk >= 500)
    front = Site("front", rate=10e6, has=lambda chunk: chunk < 500)
    world = World(1000, MIB, [back, front])
    assert fetched(world) < 1.25 * 500 * MIB / 10e6
    assert world.answers["back", "missing"] < 300


def test_the_origin_begins_when_no_peer_delivers_and_rests_when_they_do() -> None:
    peer = Site("peer", rate=10e6, there=((0.0, 5.0), (20.0, FAR)))
    world = World(500, MIB, [peer, Site("origin", "origin", rate=5e6, last=True)])
    fetched(world)
    asked = [when for when, key in world.asked_after if key[0] == "origin"]
    assert 5.0 + ORIGIN_AFTER - 0.2 <= min(asked) < 5.0 + ORIGIN_AFTER + 0.5
    assert max(asked) < 20.5
    near = World(500, MIB, [Site("peer", rate=10e6), Site("origin", "origin", rate=100e6, last=True)])
    fetched(near)
    assert near.carried["origin", "origin"] == 0


def lanes(world: World) -> dict[str, int]:
    return {lane: size // MIB for (_, lane), size in world.carried.items()}


def test_a_quicker_lane_takes_over_after_a_short_trial_and_a_slower_one_does_not() -> None:
    world = World(2000, MIB, [Site("a", "http", rate=10e6), Site("a", "webrtc", rate=40e6)])
    assert fetched(world) < 1.1 * 2000 * MIB / 40e6 + 2.0
    assert lanes(world)["http"] < 40
    world = World(2000, MIB, [Site("a", "http", rate=40e6), Site("a", "webrtc", rate=30e6)])
    fetched(world)
    assert 0 < lanes(world)["webrtc"] <= 12  # trials
    world = World(100, MIB, [Site("a", "http", rate=100e6), Site("a", "webrtc", rate=900e6)])
    fetched(world)
    assert lanes(world) == {"http": 100}  # it would be over before a trial could pay


def test_a_lane_that_fails_is_left_at_once_and_the_other_one_goes_on() -> None:
    dies = Site("a", "http", rate=50e6, there=((0.0, 2.0),))
    world = World(400, MIB, [dies, Site("a", "webrtc", rate=20e6, delay=0.05)])
    ideal = 2.0 + (400 * MIB - 2.0 * 50e6) / 20e6
    assert fetched(world) < 1.05 * ideal + 1.0
    refuses = Site("a", "http", rate=50e6, fails=1.0)
    world = World(400, MIB, [refuses, Site("a", "webrtc", rate=20e6)])
    assert fetched(world) < 1.2 * 400 * MIB / 20e6


def test_a_lane_that_falls_silent_is_left_after_a_second_or_so() -> None:
    silent = Site("a", "http", rate=50e6, silent=((2.0, FAR),))
    world = World(400, MIB, [silent, Site("a", "webrtc", rate=20e6, delay=0.05)])
    ideal = 2.0 + (400 * MIB - 2.0 * 50e6) / 20e6
    assert fetched(world) < 1.1 * ideal + 4.0


def test_a_lane_that_becomes_slow_is_left_for_the_other_one_and_they_do_not_flap() -> None:
    slows = Site("a", "http", rate=50e6, slow=((5.0, FAR), 20))
    world = World(2000, MIB, [slows, Site("a", "webrtc", rate=25e6)])
    ideal = 5.0 + (2000 * MIB - 5.0 * 50e6) / 25e6
    assert fetched(world) < 1.25 * ideal + 5.0
    used = [key[1] for _, key in world.asked_after]
    assert sum(1 for before, after in itertools.pairwise(used) if before != after) < 40


@pytest.mark.parametrize("seed", range(80))
def test_any_company_in_which_somebody_honest_has_every_chunk_brings_the_file(seed: int) -> None:
    dice = random.Random(seed)
    count, size = dice.choice([1, 2, 7, 60, 300]), dice.choice([MIB, 2 * MIB, 8 * MIB])
    honest = Site("honest", dice.choice(["http", "webrtc"]), rate=dice.choice([1e6, 20e6, 200e6]), delay=dice.choice([0.001, 0.2]))
    if dice.random() < 0.3:
        honest.there = ((0.0, 1.0), (4.0, FAR))
    world = World(count, size, [honest, *(stranger(dice, number) for number in range(dice.randrange(5)))], seed=seed)
    dice.shuffle(world.sites)
    seconds = fetched(world)
    window = max(2 * size, 8 * MIB)
    alone = count * size / min(honest.rate, window / (honest.delay + size / honest.rate)) + honest.delay
    assert seconds < 1.1 * alone + 12.0
    liars = [site.name for site in world.sites if site.lies]
    assert all(world.answers[name, "wrong"] <= STRIKES + 40 for name in liars)
    honest_waste = world.wasted - sum(world.answers[name, "wrong"] for name in liars) * size
    slowest = sum(1 for site in world.sites if site.silent or site.slow or site.rate < 1e6 or len(site.there) > 1)
    assert honest_waste <= (SPARE + count // SPARE_SHARE + 16 * (slowest + 1)) * size


def stranger(dice: random.Random, number: int) -> Site:
    """Somebody who may be of use, or not at all."""
    site = Site(
        f"s{number // 2}", "http" if number % 2 else "webrtc", rate=dice.choice([1e4, 1e6, 20e6]), delay=dice.choice([0.001, 0.1, 1.0])
    )
    begin = dice.uniform(0.0, 5.0)
    kind = dice.choice(["lies", "silent", "gone", "fails", "slow", "partial", "none", "flaps"])
    if kind == "lies":
        site.lies = dice.choice([0.3, 1.0])
    elif kind == "silent":
        site.silent = ((begin, begin + dice.choice([2.0, FAR])),)
    elif kind == "gone":
        site.there = ((0.0, begin),)
    elif kind == "fails":
        site.fails = dice.choice([0.5, 1.0])
    elif kind == "slow":
        site.slow = ((begin, FAR), 50)
    elif kind == "partial":
        site.has = lambda chunk: chunk % 3 == 0
    elif kind == "none":
        site.has = lambda chunk: False
    else:
        site.there = tuple((at, at + 0.7) for at in range(20))
    return site
