"""What a watcher is shown of what a node says at once and a row says later."""

from __future__ import annotations

import pytest

from p2pqueue.jobs.follower import Seen
from p2pqueue.jobs.watching import _View


def row(status: str, fraction: float, *, claim: int, phase: str | None = "row") -> Seen:
    return Seen(status, fraction, phase, "here", (0, claim))


def word(status: str, fraction: float, phase: str | None = "node") -> Seen:
    return Seen(status, fraction, phase, "here")


CASES: list[tuple[str, list[Seen], list[tuple[str, float]]]] = [
    ("rows alone are all shown", [row("queued", 0, claim=0), row("running", 0, claim=1), row("running", 0.5, claim=1)], [
        ("queued", 0), ("running", 0), ("running", 0.5)]),
    ("the same thing is shown once", [row("running", 0.5, claim=1)] * 3, [("running", 0.5)]),
    ("another phase is another step", [row("running", 0.5, claim=1), row("running", 0.5, claim=1, phase="x")], [("running", 0.5)] * 2),
    ("a row that lags behind the word is left out", [row("running", 0, claim=1), word("running", 0.5), row("running", 0.2, claim=1)], [
        ("running", 0), ("running", 0.5)]),
    ("a row that is ahead is shown", [row("running", 0, claim=1), word("running", 0.5), row("running", 0.7, claim=1)], [
        ("running", 0), ("running", 0.5), ("running", 0.7)]),
    ("a row that still waits for its claim is left out", [row("queued", 0, claim=0), word("running", 0.1), row("queued", 0, claim=0)], [
        ("queued", 0), ("running", 0.1)]),
    ("and so is the claim, when the word was further on", [row("queued", 0, claim=0), word("running", 0.1), row("running", 0, claim=1)], [
        ("queued", 0), ("running", 0.1)]),
    ("a job that went back to the queue is shown", [row("queued", 0, claim=0), word("running", 0.1), row("queued", 0, claim=1)], [
        ("queued", 0), ("running", 0.1), ("queued", 0)]),
    ("another attempt begins anew", [row("running", 0, claim=1), word("running", 0.5), row("running", 0, claim=2)], [
        ("running", 0), ("running", 0.5), ("running", 0)]),
    ("a pause is shown", [row("running", 0, claim=1), word("running", 0.5), row("paused", 0.2, claim=1)], [
        ("running", 0), ("running", 0.5), ("paused", 0.2)]),
    ("the end is shown", [row("running", 0, claim=1), word("running", 0.5), row("failed", 0.2, claim=1)], [
        ("running", 0), ("running", 0.5), ("failed", 0.2)]),
    ("rows count again when the node falls silent", [word("running", 0.5), row("running", 0.6, claim=1), row("running", 0.4, claim=1)], [
        ("running", 0.5), ("running", 0.6), ("running", 0.4)]),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "shown"), [pytest.param(seen, shown, id=reason) for reason, seen, shown in CASES])
def test_what_is_said_late_is_no_step_back(seen: list[Seen], shown: list[tuple[str, float]]) -> None:
    view = _View()
    steps = [view.take(each) for each in seen]
    assert [(step.status, step.fraction) for step in steps if step is not None] == shown
