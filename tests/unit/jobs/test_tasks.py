"""Declaring tasks: names, options, parameters, and what is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Optional

import pytest

from p2pqueue import ArgumentError, Backoff, ConfigError, File, Queue
from p2pqueue.jobs.options import EnqueueOptions
from p2pqueue.jobs.signature import Signature
from p2pqueue.workers.children.protocol import TaskDescription

queue = Queue("studio")


@queue.task(max_attempts=5, backoff=Backoff(first=1), timeout=timedelta(hours=2), needs={"ffmpeg"}, retry_on=(ConnectionError,))
def transcode(video: File, height: int = 720, *, codec: str = "av1") -> str:
    """Makes a smaller video.

    More words.
    """
    return f"{video.name}@{height}"


@queue.task
def wordcount(text: str) -> int:
    return len(text.split())


@queue.task(inline=True)
async def summarise(text: str, limit: int = 3) -> dict[str, int]:
    return {word: text.count(word) for word in text.split()[:limit]}


@queue.task
def anything(**rest: Any) -> Any:
    return rest


def test_a_task_is_called_as_the_function_that_it_was_made_from() -> None:
    assert wordcount("a b c") == 3
    assert transcode(File("clip.mov"), height=240) == "clip.mov@240"


async def test_an_async_task_is_awaited() -> None:
    assert await summarise("a b a") == {"a": 2, "b": 1}


def test_a_task_keeps_the_functions_name_and_words() -> None:
    assert (wordcount.name, wordcount.__name__, wordcount.__module__) == ("wordcount", "wordcount", __name__)
    assert transcode.__doc__ is not None
    assert transcode.__doc__.startswith("Makes a smaller video")


def test_a_queue_knows_its_tasks_by_name() -> None:
    assert queue.tasks["transcode"] is transcode
    assert set(queue.tasks) == {"transcode", "wordcount", "summarise", "anything"}


def test_a_description_is_all_that_a_node_must_know() -> None:
    described = TaskDescription.from_map(transcode.describe())
    assert described == TaskDescription(
        name="transcode",
        queue="studio",
        max_attempts=5,
        timeout=7200.0,
        backoff='{"first": 1.0, "factor": 2.0, "cap": 600.0}',
        retry_on=("ConnectionError",),
        needs=frozenset({"ffmpeg"}),
        parameters=(
            {"name": "video", "annotation": "File", "is_file": True, "required": True},
            {"name": "height", "annotation": "int", "is_file": False, "required": False, "default": 720},
            {"name": "codec", "annotation": "str", "is_file": False, "required": False, "default": "av1"},
        ),
        doc="Makes a smaller video.\n\nMore words.",
    )


def with_optional(a: Optional[File], b: File | None, c: list[File], d: "File", e: Any, f) -> None:  # type: ignore[no-untyped-def]  # noqa: UP037, UP045
    """Annotations as text, since this module imports annotations from the future."""


def test_file_parameters_are_known_by_their_annotation() -> None:
    assert Signature("t", with_optional).file_parameters == {"a", "b", "d"}


def test_file_parameters_are_known_where_only_a_type_checker_could_resolve_them() -> None:
    def handler(video: File | Unknown, other: Unknown) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    assert Signature("t", handler).file_parameters == {"video"}


BINDINGS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "transcode() misses 'video'; it takes video: 'File', height: 'int' = 720, *, codec: 'str' = 'av1'"),
    ((1, 2, 3), {}, "takes at most 2 arguments by position, and 3 were given"),
    ((1,), {"video": 2}, "got the argument 'video' twice"),
    ((1,), {"heigth": 2}, "has no parameter 'heigth' (did you mean 'height'?)"),
    (("clip.mov",), {}, "takes a File as 'video'; pass File('clip.mov')"),
]


@pytest.mark.parametrize(("args", "kwargs", "words"), BINDINGS, ids=[words[:40] for _, _, words in BINDINGS])
def test_arguments_that_dont_fit_are_refused_where_they_are_given(args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        transcode.signature.bind(args, kwargs)
    assert words in str(refused.value)


def test_arguments_become_a_map_without_the_defaults() -> None:
    clip = File("clip.mov")
    assert transcode.signature.bind((clip,), {"codec": "vp9"}) == {"video": clip, "codec": "vp9"}


def test_a_catch_all_takes_any_name() -> None:
    assert anything.signature.bind((), {"a": 1, "b": 2}) == {"a": 1, "b": 2}


def positional(x: int, /) -> None: ...
def starred(*x: int) -> None: ...
def plain(x: int) -> None: ...


DECLARATIONS: list[tuple[Callable[[Queue], object], type[Exception], str]] = [
    (lambda q: q.task(positional), ConfigError, "has no name on the wire"),
    (lambda q: q.task(starred), ConfigError, r"\*x of the task 'starred' has no name"),
    (lambda q: q.task(lambda x: x), ConfigError, "a lambda has no name"),
    (lambda q: q.task(inline=True)(plain), ConfigError, "it is no `async def`"),
    (lambda q: q.task(name="exec")(plain), ConfigError, "is taken by `p2pqueue exec`"),
    (lambda q: q.task(name="two words")(plain), ConfigError, "letters, digits"),
    (lambda q: q.task(name="")(plain), ConfigError, "letters, digits"),
    (lambda q: q.task("plain"), ConfigError, "goes above a function"),  # type: ignore[call-overload]
    (lambda q: q.task(max_attempts=0)(plain), ConfigError, "max_attempts is at least 1"),
    (lambda q: q.task(timeout=0)(plain), ConfigError, "timeout is above 0"),
    (lambda q: q.task(stall_timeout=timedelta(-1))(plain), ConfigError, "stall_timeout is above 0"),
    (lambda q: q.task(memory_limit=-5)(plain), ConfigError, "memory_limit is above 0"),
    (lambda q: q.task(needs="ffmpeg")(plain), ConfigError, "needs is a set of tags"),
    (lambda q: q.task(retry_on=ValueError)(plain), ConfigError, "retry_on is a tuple"),  # type: ignore[arg-type]
    (lambda q: q.task(queue="a b")(plain), ConfigError, "name of a queue"),
    *[
        (lambda q, given=given: q.task(**given)(plain), ConfigError, words)
        for given, words in [
            ({"timeout": "2h"}, "^timeout takes a number of seconds or a timedelta, not '2h'"),
            ({"stall_timeout": []}, "stall_timeout takes a number"),
            ({"max_attempts": 1.5}, "max_attempts takes a whole number, not 1.5"),
            ({"priority": "x"}, "priority takes a whole number"),
            ({"max_input": "1 GiB"}, "max_input takes a whole number of bytes"),
            ({"backoff": 5}, "backoff takes a Backoff"),
            ({"inline": "yes"}, "inline takes True or False"),
            ({"title": 5}, "title takes a text"),
            ({"needs": 5}, "needs takes a set of tags"),
            ({"retry_on": 5}, "retry_on is a tuple"),
            ({"retry_on": [5]}, "retry_on takes classes of exceptions"),
        ]
    ],
    (lambda q: q.task(schedule="@daily")(plain), TypeError, "there is no option 'schedule'"),  # type: ignore[call-overload]
    (lambda q: q.task(concurrency=2)(plain), TypeError, "there is no option 'concurrency'"),  # type: ignore[call-overload]
]


@pytest.mark.parametrize(("declare", "error", "words"), DECLARATIONS, ids=[words[:40] for _, _, words in DECLARATIONS])
def test_a_task_that_cant_be_is_refused_where_it_is_declared(
    declare: Callable[[Queue], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        declare(Queue("q"))


def test_two_functions_cant_share_a_name() -> None:
    other = Queue("other")
    other.task(name="plain")(starless)
    with pytest.raises(ConfigError, match=r"two functions want the task name 'plain'"):
        other.task(plain)


def starless(x: int) -> None: ...


def test_declaring_the_same_function_again_takes_its_place() -> None:
    """A module that is loaded again, or a notebook's cell run twice."""
    other = Queue("other")
    first, second = other.task(plain), other.task(plain)
    assert other.tasks["plain"] is second is not first


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 129, "a\n", 5])
def test_a_queue_has_a_name_that_can_be_typed(name: Any) -> None:
    with pytest.raises(ConfigError, match="the name of a queue"):
        Queue(name)


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"delay": 1, "run_at": datetime.now(UTC)}, ArgumentError, "a delay or a run_at, not both"),
    ({"delay": -1}, ArgumentError, "a delay lies between"),
    ({"delay": float("nan")}, ArgumentError, "a delay lies between"),
    ({"run_at": datetime(2030, 1, 1)}, ArgumentError, "run_at needs a time zone"),
    ({"max_attempts": 0}, ArgumentError, "max_attempts is at least 1"),
    ({"timeout": 0}, ArgumentError, "a timeout is above 0"),
    ({"priority": 2**40}, ArgumentError, "a priority fits 32 bits"),
    ({"unique_key": ""}, ArgumentError, "unique_key is a text"),
    ({"unique_key": "k" * 513}, ArgumentError, "unique_key is a text"),
    ({"title": "a\x1b[31m"}, ArgumentError, "can't be shown"),
    ({"title": "\ud800"}, ArgumentError, "can't be shown"),
    ({"delay": "1h"}, ArgumentError, "delay takes a number of seconds or a timedelta, not '1h'"),
    ({"timeout": "2h"}, ArgumentError, "timeout takes a number of seconds or a timedelta, not '2h'"),
    ({"priority": "x"}, ArgumentError, "priority takes a whole number, not 'x'"),
    ({"max_attempts": True}, ArgumentError, "max_attempts takes a whole number, not True"),
    ({"run_at": "tomorrow"}, ArgumentError, "run_at takes a datetime with its time zone, not 'tomorrow'"),
    ({"title": 5}, ArgumentError, "title is a text"),
    ({"after": []}, TypeError, "there is no option 'after'"),
    ({"on": "studio"}, TypeError, "there is no option 'on'"),
]


@pytest.mark.parametrize(("options", "error", "words"), OPTIONS, ids=[words[:40] for _, _, words in OPTIONS])
def test_an_option_that_cant_be_is_refused_in_words(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        wordcount.options(**options)


def test_options_leave_the_task_as_it_is_and_add_up() -> None:
    urgent = wordcount.options(priority=5).options(title="now")
    assert urgent is not wordcount
    assert type(urgent) is type(wordcount)
    assert urgent("a b") == 2
    assert wordcount.asked == EnqueueOptions()
    assert urgent.asked == EnqueueOptions(priority=5, title="now")


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, None),
        ({"delay": 1.5}, 1_000_001_500),
        ({"delay": timedelta(minutes=1)}, 1_000_060_000),
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC)}, 1_893_456_000_000),
    ],
)
def test_a_delay_counts_from_now_and_a_moment_from_nothing(options: dict[str, Any], due: int | None) -> None:
    assert EnqueueOptions().changed(options).due_ms(1_000_000_000) == due
