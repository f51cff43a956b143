"""The checker bites: with a rule taken out, a few seeds are enough to see it.

Each mutant names the rule, how it is taken out, and seeds among which at least one must fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from p2pqueue.replica.merging.batch import Batch
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.syncing import peering, taking
from p2pqueue.replica.syncing.mending import Mending
from p2pqueue.replica.syncing.offering import Offering
from tests.simulation.runner import run_seed

pytestmark = pytest.mark.timeout(300)  # a mutant may run many seeds before one of them bites


class Everything(Spans):
    """Claims to hold every number."""

    __slots__ = ()

    def covers(self, first: int, last: int) -> bool:
        return True


def done_counts_before_its_writes_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "Spans", Everything)


def done_is_told_after_the_first_page(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Offering.read
    monkeypatch.setattr(Offering, "read", lambda self, request, page: read(self, request, replace(page, rest="nothing")))


def forks_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = peering._compare
    monkeypatch.setattr(peering, "_compare", lambda *arguments: (*compare(*arguments)[:2], None, 0))
    monkeypatch.setattr(peering, "_contradicted", lambda *_: None)
    monkeypatch.setattr(Mending, "compare", lambda *_: [])
    monkeypatch.setattr(Mending, "digest_read", lambda *_: [])


def the_last_to_arrive_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    rival = Batch.rival

    def lenient(self: Batch, key: str, register: str, stamp: Any) -> str | None:
        return None if register == "tune" else rival(self, key, register, stamp)

    monkeypatch.setattr(Batch, "rival", lenient)


def what_a_peer_sends_it_holds_in_any_session(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Offering._begin

    def remember(self: Offering, message: Any) -> None:
        held = self._held
        begin(self, message)
        self._held = held

    monkeypatch.setattr(Offering, "_begin", remember)


MUTANTS = [
    (done_counts_before_its_writes_are_here, range(40)),
    (done_is_told_after_the_first_page, range(40)),
    (forks_are_not_seen, range(80, 160)),
    (the_last_to_arrive_wins, range(40)),
    (what_a_peer_sends_it_holds_in_any_session, range(60)),
]


@pytest.mark.parametrize(("mutant", "seeds"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_a_rule_taken_out_is_seen(mutant: Any, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in seeds:
        outcome = run_seed(seed)
        if outcome.problem is not None:
            assert "Violation" in outcome.problem, outcome.problem
            return
    pytest.fail(f"{len(seeds)} seeds hold without that rule")
