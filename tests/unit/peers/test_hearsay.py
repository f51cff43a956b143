"""What signals of other devices do here: of whom presence is kept."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from p2pqueue.identity.members import Members
from p2pqueue.peers.hearsay import Hearsay
from p2pqueue.peers.linked import LinkedPeer
from p2pqueue.peers.signals import Signal
from p2pqueue.workers.claiming.presence import Roster
from p2pqueue.workers.running.live import Live

LINKED, KNOWN = "11" * 16, "22" * 16


@pytest.fixture
def looks() -> list[str | None]:
    return []


@pytest.fixture
def roster() -> Roster:
    return Roster(started=time.monotonic(), others=True)


@pytest.fixture
def hearsay(roster: Roster, looks: list[str | None]) -> Hearsay:
    members: Any = SimpleNamespace(get=lambda device_id: SimpleNamespace(label="known") if device_id == KNOWN else None)
    return Hearsay(live=Live(), roster=roster, members=cast(Members, members), emit=lambda _kind, **_fields: None, look=looks.append)


def hello(source: str) -> Signal:
    return Signal("hello", source, os.urandom(8), {"label": "there", "tasks": ["echo"], "slots": 1, "free": 1})


PEER = cast(LinkedPeer, SimpleNamespace(device_id=LINKED, role="member"))


@pytest.mark.parametrize("source", [LINKED, KNOWN], ids=["linked", "known by its row"])
def test_the_presence_of_a_device_that_is_linked_or_known_is_kept(
    hearsay: Hearsay, roster: Roster, looks: list[str | None], source: str
) -> None:
    hearsay.heard(hello(source), PEER)
    assert [each.device_id for each in roster.live(time.monotonic())] == [source]
    assert looks == [None]


def test_devices_that_nobody_knows_take_no_memory_and_no_turn(hearsay: Hearsay, roster: Roster, looks: list[str | None]) -> None:
    """A peer could name any number of them, each mightier than all workers there are."""
    for number in range(100):
        hearsay.heard(hello(f"{number:032x}"), PEER)
    assert roster.live(time.monotonic()) == []
    assert looks == []


@pytest.mark.parametrize(
    ("source", "role", "kept"),
    [
        (LINKED, "worker", True),
        (KNOWN, "member", False),  # passed on: whose death is not seen from here
        (LINKED, "viewer", False),  # does no jobs
    ],
)
def test_what_a_linked_worker_says_that_it_begins_is_kept(hearsay: Hearsay, roster: Roster, source: str, role: str, kept: bool) -> None:
    peer = cast(LinkedPeer, SimpleNamespace(device_id=LINKED, role=role))
    fields = {"jobs": [["job", 0, 1, 1, bytes(16)], ["rubbish"]]}
    hearsay.heard(Signal("begun", source, os.urandom(8), fields), peer)
    assert roster.foretold.taken(time.monotonic()) == ({"job": (0, 1)} if kept else {})


def test_what_is_given_back_makes_a_look(hearsay: Hearsay, looks: list[str | None]) -> None:
    for fields in ({"jobs": [["job", 0, 1, 1, bytes(16)]]}, {"back": ["other"]}, {"back": ["job"]}):
        assert looks == []
        hearsay.heard(Signal("begun", LINKED, os.urandom(8), fields), PEER)
    assert looks == [None]


@pytest.mark.parametrize(
    ("source", "role", "obeyed"),
    [(LINKED, "member", True), (LINKED, "viewer", False), (LINKED, "worker", False), (KNOWN, "member", True), ("33" * 16, "owner", False)],
    ids=["a member", "a viewer", "a worker", "passed on of a member", "passed on of nobody known"],
)
def test_orders_are_obeyed_of_those_who_may_cancel(source: str, role: str, obeyed: bool, roster: Roster) -> None:
    members: Any = SimpleNamespace(get=lambda device_id: SimpleNamespace(label="known", role="member") if device_id == KNOWN else None)
    heard: list[Any] = []
    hearsay = Hearsay(
        live=Live(),
        roster=roster,
        members=cast(Members, members),
        emit=lambda _kind, **_fields: None,
        look=lambda _: None,
        obey=heard.extend,
    )
    peer = cast(LinkedPeer, SimpleNamespace(device_id=LINKED, role=role))
    hearsay.heard(Signal("control", source, os.urandom(8), {"jobs": [["job", "cancel", 2], ["rubbish"]]}), peer)
    assert heard == ([("job", "cancel", 2)] if obeyed else [])
