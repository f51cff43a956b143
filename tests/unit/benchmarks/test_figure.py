"""A benchmark says plainly whether its targets hold."""

from __future__ import annotations

import json

import pytest

from benchmarks.figure import Figure, Sample, Target, as_json, load_targets, table, verdict
from benchmarks.yardstick import judged


@pytest.mark.parametrize(
    ("target", "value", "peer_value", "holds"),
    [
        (Target(ratio=0.8), 80.0, 100.0, True),  # exactly reached
        (Target(ratio=0.8), 79.0, 100.0, False),
        (Target(ratio=0.8), 79.0, None, None),  # no peer: nothing to compare with, so nothing is claimed
        (Target(at_most=50), 50.0, None, True),
        (Target(at_most=50), 50.1, None, False),
        (Target(at_least=100), 100.0, None, True),
        (Target(at_least=100), 99.0, None, False),
        (Target(), 1.0, 2.0, None),  # shown for comparison alone
    ],
)
def test_a_target_holds_or_not(target: Target, value: float, peer_value: float | None, holds: bool | None) -> None:
    assert Figure("a figure", value, "ms", target, "a peer", peer_value).holds is holds


def test_a_figure_in_json_has_the_promised_keys() -> None:
    (row,) = json.loads(as_json([Figure("a figure", 3.0, "jobs/s", Target(ratio=2), "a peer", 1.0)]))
    assert row == {
        "name": "a figure",
        "value": 3.0,
        "unit": "jobs/s",
        "peer": "a peer",
        "peer_value": 1.0,
        "target": ">= 2 x a peer",
        "holds": True,
        "holds_as_it_is": True,
        "at_reference": None,
    }


@pytest.mark.parametrize(
    ("target", "value", "holds", "at_reference"),
    [
        (Target(at_most=4, scaled=True), 8.0, True, 4.0),
        (Target(at_most=4, scaled=True), 8.1, False, 4.05),
        (Target(at_least=100, scaled=True), 50.0, True, 100.0),
        (Target(at_least=100, scaled=True), 49.0, False, 98.0),
        (Target(at_most=4), 8.0, False, None),  # memory is no smaller on a slow machine
    ],
)
def test_a_scaled_target_allows_for_a_machine_that_is_twice_as_slow(target: Target, value: float, holds: bool, at_reference: float) -> None:
    figure = Figure("a figure", value, "ms", target, slowness=2.0)
    assert figure.holds is holds
    assert figure.at_reference == at_reference
    assert figure.holds_as_it_is is False
    assert table([figure]).splitlines()[-1].split()[-1] == ("scaled" if holds else "NO")


def test_how_slow_a_machine_is_is_told_with_the_figures_of_a_section() -> None:
    told, figure = judged(lambda: [Figure("a figure", 1.0, "ms", Target(at_most=1, scaled=True))])
    assert told.value == figure.slowness > 0


def test_the_verdict_names_what_does_not_hold_with_its_target() -> None:
    figures = [Figure("slow", 9.0, "ms", Target(at_most=5)), Figure("fast", 1.0, "ms", Target(at_most=5))]
    assert verdict(figures) == "1 of 2 targets DO NOT HOLD: slow is 9 ms, target <= 5."
    assert verdict(figures[1:]) == "All 1 targets that could be judged hold."


def test_the_table_shows_the_ratio_to_the_peer() -> None:
    shown = table([Figure("a figure", 1500.0, "jobs/s", Target(ratio=2), "a peer", 500.0, (1400.0, 1600.0))])
    assert "3.00" in shown
    assert "1,400..1,600" in shown
    assert shown.splitlines()[-1].endswith("yes")


def test_percentiles_are_values_that_were_measured() -> None:
    sample = Sample.of(range(1, 101))
    assert (sample.percentile(0.5), sample.percentile(0.99), sample.percentile(1.0)) == (50, 99, 100)
    assert Sample.of([7.0]).percentile(0.99) == 7.0


def test_every_target_can_be_read() -> None:
    assert load_targets("jobs")["enqueue one by one, sync"].ratio == 0.8
