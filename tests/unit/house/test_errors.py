"""Every error that p2pqueue raises on purpose stands in one tree, which the docstring of `errors` shows."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from p2pqueue import errors


def shown_tree() -> dict[str, str]:
    """Each error's parent, as the drawing in the docstring has it."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([ │├└─]*)([A-Z]\w+)(?:\s{2,}\S|$)", line)
        if not found:
            continue
        depth, name = len(found[1]), found[2]
        while path and path[-1][0] >= depth:
            path.pop()
        parents[name] = path[-1][1] if path else ""
        path.append((depth, name))
    return parents


ALL = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.P2PQueueError) and kind.__module__ == errors.__name__
}


def test_the_docstring_draws_the_tree_as_it_is() -> None:
    real = {name: "" if kind is errors.P2PQueueError else kind.__bases__[0].__name__ for name, kind in ALL.items()}
    assert shown_tree() == real


@pytest.mark.parametrize("name", ALL)
def test_every_error_says_in_one_sentence_what_happened(name: str) -> None:
    first = (ALL[name].__doc__ or "").splitlines()[0]
    assert first.endswith(".")
    assert len(first) > 15


def test_errors_carry_what_a_caller_needs_to_go_on() -> None:
    assert errors.HomeInUse("held", pid=7).pid == 7
    failed = errors.JobFailed("it failed", job_id="j", error="ValueError: no", traceback="Traceback …")
    assert (failed.job_id, failed.error, failed.traceback) == ("j", "ValueError: no", "Traceback …")
    assert isinstance(errors.ResultTimeout("late", job_id="j"), TimeoutError)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "deepcopy", "pickle"]
)
def test_an_error_that_is_handed_on_by_a_program_of_yours_stays_whole(again: Callable[[Exception], Exception]) -> None:
    for error in (
        errors.JobFailed("no", job_id="j", error="e", traceback="t"),
        errors.ResultTimeout("late", job_id="j"),
        errors.HomeInUse("x", pid=7),
    ):
        other = again(error)
        assert type(other) is type(error)
        assert (str(other), vars(other)) == (str(error), vars(error))


def test_a_handler_may_name_its_delay_in_seconds_or_as_a_timedelta() -> None:
    assert errors.Retry("later", delay=timedelta(minutes=2)).delay == 120.0
    assert errors.Retry(delay=3).delay == 3
    assert errors.Retry().delay is None
    with pytest.raises(ValueError, match="soon"):  # at the handler's own line
        errors.Retry(delay="soon")  # type: ignore[arg-type]


def test_a_broad_except_in_a_handler_doesnt_swallow_a_cancel() -> None:
    assert not issubclass(errors.Cancelled, Exception)
    assert not issubclass(errors.Retry, errors.P2PQueueError)
