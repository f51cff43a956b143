from __future__ import annotations

import asyncio
import os

import pytest

from p2pqueue import wire
from p2pqueue.workers.children.protocol import Continued, Crashed, Failed, RetryLater, Succeeded
from tests.integration.children.stage import Stage

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_handler_returns_its_result(stage: Stage) -> None:
    assert await stage.value("echo", value={"a": [1, 2.5, None, b"x"]}) == {"a": [1, 2.5, None, b"x"]}


async def test_an_async_handler_runs_in_a_child_too(stage: Stage) -> None:
    assert await stage.value("echo_async", value="x") == [1, "x"]


async def test_handlers_run_one_after_the_other_in_the_same_child_outside_of_the_nodes_group(stage: Stage) -> None:
    first, second = await stage.value("whoami"), await stage.value("whoami")
    assert first == second
    pid, group, session = first
    assert pid == group == session != os.getpid()


async def test_an_exception_is_carried_as_text(stage: Stage) -> None:
    outcome = await stage.run("fail", message="as asked")
    assert isinstance(outcome, Failed)
    assert outcome.error == "ValueError: as asked"
    assert outcome.kinds == ("ValueError", "Exception", "BaseException")
    assert outcome.traceback is not None
    assert "handlers.py" in outcome.traceback
    assert "workers/children/handler.py" not in outcome.traceback


async def test_a_traceback_and_an_error_are_trimmed(stage: Stage) -> None:
    outcome = await stage.run("fail_deeply")
    assert isinstance(outcome, Failed)
    assert outcome.traceback is not None
    assert len(outcome.traceback) <= 16 * 1024
    assert len(outcome.error) <= 2 * 1024
    assert outcome.error.startswith("KeyError: 'xxx")


async def test_an_exception_that_can_not_be_shown_is_still_told(stage: Stage) -> None:
    outcome = await stage.run("fail_oddly")
    assert isinstance(outcome, Failed)
    assert "Odd" in outcome.error
    assert "ConnectionError" in outcome.kinds


async def test_a_handler_that_calls_exit_has_failed(stage: Stage) -> None:
    outcome = await stage.run("leave", status=3)
    assert isinstance(outcome, Failed)
    assert outcome.error == "SystemExit: 3"


@pytest.mark.parametrize(
    ("task", "words"), [("returns_an_object", "the result is an object"), ("returns_too_much", "the result has 100,000 characters")]
)
async def test_a_result_that_can_not_be_carried_fails_in_words(stage: Stage, task: str, words: str) -> None:
    outcome = await stage.run(task)
    assert isinstance(outcome, Failed)
    assert words in outcome.error
    assert "Object at 0x" not in outcome.error
    assert outcome.final, "no further attempt could return anything else"


async def test_arguments_that_are_no_parameters_fail_for_good_and_a_type_error_within_does_not(stage: Stage) -> None:
    outcome = await stage.run("echo", nothing=1)
    assert isinstance(outcome, Failed)
    assert "unexpected keyword argument 'nothing'" in outcome.error
    assert outcome.final
    outcome = await stage.run("adds_a_text")
    assert isinstance(outcome, Failed)
    assert "TypeError" in outcome.error
    assert not outcome.final


async def test_wrong_arguments_fail_in_words(stage: Stage) -> None:
    outcome = await stage.run("fail", nonsense=1)
    assert isinstance(outcome, Failed)
    assert "nonsense" in outcome.error


async def test_a_task_that_is_not_there_fails_in_words(stage: Stage) -> None:
    outcome = await stage.run("os.system")
    assert isinstance(outcome, Failed)
    assert "no task 'os.system'" in outcome.error


async def test_data_that_looks_like_code_stays_data(stage: Stage) -> None:
    pickled = b"cposix\nsystem\n(S'echo pwned'\ntR."
    assert await stage.value("echo", value=[pickled, "!!python/object/apply:os.system", {"__reduce__": "os.system"}]) == [
        pickled,
        "!!python/object/apply:os.system",
        {"__reduce__": "os.system"},
    ]


async def test_arguments_that_are_no_map_fail_in_words(stage: Stage) -> None:
    assignment = stage.assignment("echo", None, None, {})
    for bad in (b"\xff\xff", wire.pack([1]), b"\x80\x04\x95pickle"):
        outcome = await stage.pool.run(
            type(assignment)(**(vars(assignment) | {"args": bad, "key": bad.hex()})),
            on_progress=lambda *_: None, on_checkpoint=stage._checkpoint, on_request=stage._request,
        )  # fmt: skip
        assert isinstance(outcome, Failed)


async def test_a_handler_asks_for_a_retry(stage: Stage) -> None:
    assert await stage.run("retry") == RetryLater("not yet", None)
    assert await stage.run("retry", delay=2.5) == RetryLater("not yet", 2.5)


async def test_a_handler_gives_its_job_back_with_a_checkpoint(stage: Stage) -> None:
    assert await stage.run("go_on", state={"frame": 7}) == Continued(wire.pack({"frame": 7}))


@pytest.mark.parametrize(
    ("task", "args", "reason"),
    [
        ("crash_by", {"number": 9}, "was killed by signal 9 (SIGKILL)"),
        ("crash_by", {"number": 6}, "was killed by signal 6 (SIGABRT)"),
        ("exit_hard", {"status": 0}, "ended with exit status 0"),
        ("exit_hard", {"status": 7}, "ended with exit status 7"),
        ("overflow", {}, "was killed by signal 11 (SIGSEGV)"),
        ("segfault", {}, "was killed by signal 11 (SIGSEGV)"),
        ("crash_by", {"number": 15}, "was told to end (SIGTERM) by somebody else"),
        ("close_everything", {}, "closed the connection"),
        ("send_garbage", {}, "it sent its node a message of 4,294,967,295 bytes"),
    ],
)
async def test_a_crash_is_told_with_its_reason_and_the_next_job_runs(stage: Stage, task: str, args: dict[str, int], reason: str) -> None:
    outcome = await stage.run(task, **args)
    assert isinstance(outcome, Crashed)
    assert reason in outcome.reason
    assert await stage.value("echo", value="next") == "next"


async def test_a_crash_brings_the_end_of_the_log(stage: Stage) -> None:
    outcome = await stage.run("crash_by", number=9)
    assert isinstance(outcome, Crashed)
    assert outcome.log_tail == "about to crash\n"


async def test_endless_recursion_is_a_failure(stage: Stage) -> None:
    outcome = await stage.run("recurse")
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("RecursionError")


async def test_a_child_stays_warm_after_a_failure_and_is_replaced_after_a_crash(stage: Stage) -> None:
    (first, *_), _ = await stage.value("whoami"), await stage.run("fail")
    (second, *_), _ = await stage.value("whoami"), await stage.run("exit_hard")
    (third, *_) = await stage.value("whoami")
    assert first == second != third


async def test_more_jobs_than_slots_take_their_turns(stage: Stage) -> None:
    outcomes = await asyncio.gather(*(stage.run("sleep", seconds=0.02) for _ in range(6)), *(stage.run("echo", value=n) for n in range(6)))
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
