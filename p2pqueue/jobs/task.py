"""What is a task, and how is a job of it asked for?

`@queue.task` makes one from a function. Called, it runs here and now, as the function would; `enqueue` takes the
same arguments and makes a job, which some able device runs later.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from p2pqueue.errors import ConfigError
from p2pqueue.jobs.options import EnqueueOption, EnqueueOptions, TaskOptions
from p2pqueue.jobs.signature import Signature

if TYPE_CHECKING:
    from typing import Self

    from p2pqueue.jobs.enqueueing import Mould
    from p2pqueue.jobs.handle import Job
    from p2pqueue.jobs.ledger import NewJob
    from p2pqueue.jobs.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Arguments = Mapping[str, Any] | tuple[Any, ...]


class Task(Generic[P, R]):
    """A function that can be run as a job.

    :ivar name: what jobs call it; the function's name unless given.
    :ivar function: the function itself.
    :ivar declared: how its jobs are run.
    :ivar asked: what `.options(…)` asked for its next jobs.
    """

    def __init__(self, queue: Queue, function: Callable[..., Any], *, name: str, options: TaskOptions) -> None:
        if options.inline and not inspect.iscoroutinefunction(function):
            raise ConfigError(f"the task {name!r} can't be inline: it is no `async def`, and would block the node's loop")
        self.queue = queue
        self.function = function
        self.name = name
        self.declared = options
        self.signature = Signature(name, function)
        self.asked = EnqueueOptions()
        self._made_mould: Mould | None = None
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of queue {self.declared.queue!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Runs the function here and now; no job is made."""
        return self.function(*args, **kwargs)

    def options(self, **changes: Unpack[EnqueueOption]) -> Self:
        """The same task with options for its next jobs; see `EnqueueOptions`. The task itself stays as it is."""
        changed = copy.copy(self)
        changed.asked = self.asked.changed(changes)
        changed._made_mould = None
        return changed

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Makes a job; durable on return. One local write: it waits for no network.

        Raises `ArgumentError` where the arguments don't fit, `InputUnreadable`, `NotInitialised`.
        """
        arguments = self.signature.bind(args, kwargs)  # what is wrong with a call is told first
        return self._mould().enqueue(arguments)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As `enqueue`, without blocking the loop."""
        if self.queue.access.is_open and not self.signature.file_parameters:
            arguments, mould = self.signature.bind(args, kwargs), self._mould()
            return await mould.aenqueue(mould.fill(arguments))  # nothing to wait for before
        import asyncio

        new = await asyncio.to_thread(self._prepare, args, kwargs)
        return await self._mould().aenqueue(new)

    def enqueue_many(self, calls: Iterable[Arguments]) -> list[Job[R]]:
        """Makes a job of each call: a map of parameters, or a tuple of arguments by position.

        All arguments are checked before the first job is written; then each thousand is one transaction.
        """
        from p2pqueue.jobs import enqueueing

        access = self.queue.access
        made: list[Job[R]] = []
        for batch in enqueueing.batches(access, self._prepare_all(calls)):
            made += [enqueueing.job(access, each) for each in access.write(batch)]
        return made

    async def aenqueue_many(self, calls: Iterable[Arguments]) -> list[Job[R]]:
        """As `enqueue_many`, without blocking the loop."""
        import asyncio

        from p2pqueue.jobs import enqueueing

        access = self.queue.access
        made: list[Job[R]] = []
        for batch in enqueueing.batches(access, await asyncio.to_thread(self._prepare_all, calls)):
            made += [enqueueing.job(access, each) for each in await access.awrite(batch)]
        return made

    def describe(self) -> dict[str, Any]:
        """What a node must know of the task without importing it: a plain map, as JSON and MessagePack carry it."""
        options = self.declared
        return {
            "name": self.name,
            "queue": options.queue,
            "inline": options.inline,
            "max_attempts": options.max_attempts,
            "timeout": options.timeout,
            "stall_timeout": options.stall_timeout,
            "backoff": options.backoff.to_json(),
            "retry_on": None if options.retry_on is None else list(options.retry_on),
            "needs": sorted(options.needs),
            "concurrency": None,
            "max_input": options.max_input,
            "memory_limit": options.memory_limit,
            "parameters": [parameter.describe() for parameter in self.signature.parameters],
            "command": None,
            "doc": inspect.getdoc(self.function) or "",
            "title": options.title,
            "priority": options.priority,
        }

    def _mould(self) -> Mould:
        access, mould = self.queue.access, self._made_mould
        if mould is None or mould.opened is not access.opened:
            from p2pqueue.jobs.enqueueing import Mould

            mould = self._made_mould = Mould(access, self.name, options=self.asked, declared=self.declared)
        return mould

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        arguments = self.signature.bind(args, kwargs)
        return self._mould().fill(arguments)

    def _prepare_all(self, calls: Iterable[Arguments]) -> list[NewJob]:
        bound = [self.signature.bind(*_call(call)) for call in calls]
        fill = self._mould().fill
        return [fill(arguments) for arguments in bound]


class SyncTask(Task[P, R]):
    """A task made from a `def`: called, it returns what the function returns."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the function here and now; no job is made."""
        result: R = self.function(*args, **kwargs)
        return result


class AsyncTask(Task[P, R]):
    """A task made from an `async def`: called, it returns a coroutine."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Runs the function here and now, when awaited; no job is made."""
        coroutine: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return coroutine


class TaskDecorator(Protocol):
    """What `@queue.task(…)` gives: it makes a task of the function below it."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


def make_task(queue: Queue, function: Callable[..., Any], *, name: str, options: TaskOptions) -> Task[..., Any]:
    """A task of the kind that fits the function."""
    kind = AsyncTask if inspect.iscoroutinefunction(function) else SyncTask
    return kind(queue, function, name=name, options=options)


def _call(call: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(call, Mapping):
        return (), call
    if isinstance(call, tuple):
        return call, {}
    raise ConfigError(f"enqueue_many takes maps of parameters or tuples of arguments, not {call!r}")
