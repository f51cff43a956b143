"""Whoever isn't linked is dialled for ever, soon where that can help, and never twice at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.net.addresses import AddressBook, Endpoint
from p2pqueue.net.dialling import (
    ATTEMPT_LIMIT,
    FORGOTTEN_AFTER,
    LOCAL_FOR,
    LONGEST_DELAY,
    SIGHTINGS_LIMIT,
    STAGGER,
    Attempt,
    DialSchedule,
    race,
)

A, B = "a" * 32, "b" * 32
NEAR, FAR, NEW = ("10.0.0.2", 7433), ("203.0.113.9", 7433), ("10.0.0.9", 7433)
HOUR = 3600.0


def near(host: str) -> bool:
    return host.startswith("10.")


def schedule(*addresses: Endpoint, device: str = A) -> DialSchedule:
    """A schedule that knows one device, good at these addresses."""
    book = AddressBook([(device, *where, 1) for where in addresses])
    made = DialSchedule(book, is_local=near)
    made.know([device], 0.0)
    return made


def starts(dials: DialSchedule, *, until: float, now: float = 0.0) -> list[float]:
    """When attempts start if each of them takes its whole time and fails."""
    times = []
    while (due := dials.next_due(now)) is not None and due <= until:
        now = due
        for attempt in dials.due(now):
            times.append(now)
            now += ATTEMPT_LIMIT
            dials.failed(attempt.target, now)
    return times


def waits(times: list[float]) -> list[float]:
    return [round(later - earlier - ATTEMPT_LIMIT, 3) for earlier, later in itertools.pairwise(times)]


def test_a_known_device_is_dialled_at_once() -> None:
    assert schedule(NEAR).due(0.0) == [Attempt(A, (NEAR,), A)]


def test_a_device_without_an_address_is_not_dialled_until_it_has_one() -> None:
    book = AddressBook()
    dials = DialSchedule(book)
    dials.know([A], 0.0)
    assert dials.due(0.0) == []
    assert dials.next_due(0.0) is None
    book.note_sighting(A, [NEAR], source="common peer")
    dials.told(A, 5.0)
    assert dials.due(5.0) == [Attempt(A, (NEAR,), A)]


def test_the_waits_double_up_to_a_second_on_the_same_subnet() -> None:
    assert waits(starts(schedule(NEAR), until=20.0))[:5] == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_a_silent_cut_of_ten_minutes_ends_within_a_second_and_an_attempt() -> None:
    times = starts(schedule(NEAR), until=600.0)
    assert max(waits(times)) == 1.0
    assert times[-1] > 597.0


def test_after_an_hour_without_an_event_a_minute_is_soon_enough() -> None:
    times = starts(schedule(NEAR), until=LOCAL_FOR + 10 * LONGEST_DELAY)
    late = [time for time in times if time > LOCAL_FOR]
    assert max(waits(late)) == LONGEST_DELAY


def test_the_waits_double_up_to_a_minute_elsewhere() -> None:
    assert waits(starts(schedule(FAR), until=400.0))[:10] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_it_is_dialled_for_ever() -> None:
    assert starts(schedule(FAR), until=24 * HOUR)[-1] > 24 * HOUR - LONGEST_DELAY - ATTEMPT_LIMIT


EVENTS: list[tuple[str, Callable[[DialSchedule, float], None]]] = [
    ("the interfaces changed or the machine woke", lambda dials, now: dials.reset(now)),
    ("another address was told", lambda dials, now: dials.told(A, now)),
]


@pytest.mark.parametrize(("what", "event"), EVENTS, ids=[what for what, _ in EVENTS])
def test_an_event_begins_the_waits_anew(what: str, event: Callable[[DialSchedule, float], None]) -> None:
    dials = schedule(FAR)
    now = starts(dials, until=HOUR)[-1] + ATTEMPT_LIMIT
    event(dials, now)
    assert waits(starts(dials, now=now, until=now + 10.0))[:2] == [0.25, 0.5], what


def test_a_lost_link_is_dialled_again_at_once() -> None:
    dials = schedule(NEAR)
    dials.linked(A, target=dials.due(0.0)[0].target, at=NEAR)
    assert dials.due(9.0) == []
    assert dials.next_due(9.0) is None
    dials.lost(A, 10.0)
    assert dials.due(10.0) == [Attempt(A, (NEAR,), A)]


def test_a_device_that_dialled_us_is_not_dialled() -> None:
    dials = schedule(NEAR)
    dials.linked(A)
    assert dials.due(0.0) == []


def test_an_attempt_under_way_is_not_started_again_by_an_event() -> None:
    dials = schedule(NEAR)
    dials.due(0.0)
    dials.reset(1.0)
    assert dials.due(1.0) == []


def test_an_event_during_an_attempt_is_not_lost_when_that_fails() -> None:
    dials = schedule(NEAR)
    dials.due(0.0)
    dials.reset(1.0)  # somebody asked, or the cable came back
    dials.failed(A, 1.2, refused=True)
    assert [attempt.target for attempt in dials.due(1.2)] == [A]
    dials.failed(A, 1.4, refused=True)
    assert dials.due(1.4) == []


def test_an_attempt_whose_end_nobody_told_counts_as_failed() -> None:
    dials = schedule(NEAR)
    dials.due(0.0)
    assert dials.next_due(0.0) == FORGOTTEN_AFTER
    assert dials.due(FORGOTTEN_AFTER + 1.0) == [Attempt(A, (NEAR,), A)]


def test_a_refusal_is_not_asked_for_again_every_second() -> None:
    dials = schedule(NEAR)
    dials.failed(dials.due(0.0)[0].target, 0.0, refused=True)
    assert dials.next_due(0.0) == LONGEST_DELAY


def test_a_device_that_left_the_space_is_dialled_no_more() -> None:
    dials = schedule(NEAR)
    dials.know([], 1.0)
    assert dials.due(2.0) == []


# -- those whose device is not known yet ----------------------------------------------------------------------------


def test_whoever_mdns_shows_is_dialled_at_once() -> None:
    dials = DialSchedule(AddressBook(), is_local=near)
    dials.sighted("x", [NEAR], 3.0)
    assert dials.due(3.0) == [Attempt(None, (NEAR,), "x")]


def test_a_sighting_that_is_recognised_gives_the_device_its_address() -> None:
    book = AddressBook()
    dials = DialSchedule(book, is_local=near)
    dials.know([A], 0.0)
    dials.sighted("x", [NEAR], 0.0)
    dials.linked(A, target=dials.due(0.0)[0].target, at=NEAR)
    dials.lost(A, 5.0)
    assert dials.due(5.0) == [Attempt(A, (NEAR,), A)]


def test_a_changed_address_is_dialled_first_and_at_once() -> None:
    dials = DialSchedule(book := AddressBook(), is_local=near)
    dials.know([A], 0.0)
    dials.sighted("x", [NEAR], 0.0)
    dials.linked(A, target=dials.due(0.0)[0].target, at=NEAR)
    book.note_good(A, *NEAR, 1)
    dials.lost(A, 100.0)
    now = starts(dials, now=100.0, until=200.0)[-1] + ATTEMPT_LIMIT
    dials.sighted("x", [NEW], now)
    assert dials.due(now) == [Attempt(A, (NEW, NEAR), A)]


def test_a_sighting_of_a_device_that_is_linked_there_is_not_dialled() -> None:
    dials = schedule(NEAR)
    dials.linked(A, target=dials.due(0.0)[0].target, at=NEAR)
    dials.sighted("x", [NEAR], 1.0)
    assert dials.due(1.0) == []


def test_nobody_is_dialled_twice_at_the_same_address_at_a_time() -> None:
    dials = schedule(NEAR)
    dials.sighted("x", [NEAR], 0.0)
    assert [attempt.target for attempt in dials.due(0.0)] == [A]
    assert dials.next_due(0.0) == FORGOTTEN_AFTER
    dials.failed(A, 1.0)
    assert [attempt.target for attempt in dials.due(1.0)] == ["x"]


def test_who_is_seen_no_more_is_dialled_no_more() -> None:
    dials = DialSchedule(AddressBook())
    dials.sighted("x", [NEAR], 0.0)
    dials.unsighted("x")
    assert dials.due(1.0) == []


def test_a_peer_of_the_command_line_is_dialled_until_it_is_a_linked_device() -> None:
    dials = DialSchedule(AddressBook(), is_local=near)
    dials.know([A], 0.0)
    dials.add_peer(*FAR, 0.0)
    assert starts(dials, until=HOUR)[-1] > HOUR - LONGEST_DELAY - ATTEMPT_LIMIT
    (attempt,) = dials.due(2 * HOUR)
    assert attempt == Attempt(None, (FAR,), "203.0.113.9:7433")
    dials.linked(A, target=attempt.target, at=FAR)
    assert dials.due(3 * HOUR) == []
    dials.lost(A, 3 * HOUR)
    assert dials.due(3 * HOUR) == [Attempt(A, (FAR,), A)]


def test_a_lan_full_of_lies_fills_no_memory_and_hides_no_known_device() -> None:
    dials = schedule(NEAR)
    for number in range(2 * SIGHTINGS_LIMIT):
        dials.sighted(f"x{number}", [(f"10.1.{number // 256}.{number % 256}", 7433)], 0.0)
    attempts = dials.due(0.0)
    assert len(attempts) == SIGHTINGS_LIMIT + 1
    assert Attempt(A, (NEAR,), A) in attempts


def test_the_addresses_of_a_race_start_one_after_the_other() -> None:
    assert [(start.after, start.address) for start in race([NEAR, FAR, NEW])] == [(0.0, NEAR), (STAGGER, FAR), (2 * STAGGER, NEW)]


# -- whatever happens -----------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["due", "fail", "refuse", "link", "lose", "linked us", "sight", "unsight", "reset", "peer"]),
        st.sampled_from([A, B]),
        st.floats(0.0, 90.0),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_happens_the_linked_are_left_alone_and_the_others_are_dialled_for_ever(taken: list[tuple[str, str, float]]) -> None:
    where = {A: NEAR, B: FAR}
    dials = DialSchedule(AddressBook([(device, *address, 1) for device, address in where.items()]), is_local=near)
    dials.know([A, B], 0.0)
    under_way: dict[str, tuple[str, float]] = {}  # target → who answers there, when it started
    linked: set[str] = set()
    now = 0.0
    for step, device, passed in taken:
        now += passed
        under_way = {target: (who, at) for target, (who, at) in under_way.items() if now < at + FORGOTTEN_AFTER}
        match step:
            case "due":
                for attempt in dials.due(now):
                    who = next(name for name, address in where.items() if address in attempt.addresses)
                    assert who not in linked
                    assert attempt.target not in under_way
                    assert not any(other == who for other, _ in under_way.values())
                    under_way[attempt.target] = (who, now)
            case "fail" | "refuse" if under_way:
                dials.failed(under_way.popitem()[0], now, refused=step == "refuse")
            case "link" if under_way:
                target, (who, _) = under_way.popitem()
                dials.linked(who, target=target, at=where[who])
                linked.add(who)
            case "lose" if device in linked:
                linked.discard(device)
                dials.lost(device, now)
            case "linked us":
                linked.add(device)
                dials.linked(device, at=where[device])
            case "sight":
                dials.sighted("x" + device, [where[device]], now)
            case "unsight":
                dials.unsighted("x" + device)
            case "reset":
                dials.reset(now)
            case "peer":
                dials.add_peer(*where[device], now)
    for target in under_way:
        dials.failed(target, now)
    dialled = {address for attempt in dials.due(now + FORGOTTEN_AFTER + LONGEST_DELAY) for address in attempt.addresses}
    assert dialled == {where[device] for device in (A, B) if device not in linked}
