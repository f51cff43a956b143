"""What does a program see of a queue: its tasks, its jobs, and a node to run them?"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack, overload

from p2pqueue.errors import ArgumentError, ConfigError
from p2pqueue.jobs.options import EnqueueOption, EnqueueOptions, TaskOption, declared
from p2pqueue.jobs.task import AsyncTask, SyncTask, Task, TaskDecorator, make_task

if TYPE_CHECKING:
    from p2pqueue.home import Home
    from p2pqueue.jobs.access import Access
    from p2pqueue.jobs.handle import Job
    from p2pqueue.node import Node
    from p2pqueue.payload.file import File

# What opens a home, and asyncio, are imported where they are used: a worker process only declares tasks.

P = ParamSpec("P")
R = TypeVar("R")

Duration = float | timedelta

_NAME: Final = re.compile(r"[\w.:-]{1,128}")
_EXEC: Final = "exec"  # the task of `p2pqueue exec`


class Queue:
    """A named set of jobs in a space, as one program sees it.

    The home is opened at the first use, works with no node running, and may be used from any thread, from
    coroutines, and after a fork.

    :param name: of the queue; default "default".
    :param home: folder of the device; default `P2PQUEUE_HOME`, else the user's own.
    :ivar tasks: its tasks by their names.
    """

    def __init__(self, name: str = "default", *, home: str | os.PathLike[str] | Home | None = None) -> None:
        self.name = _checked("queue", name)
        self.tasks: dict[str, Task[..., Any]] = {}
        self._home = home
        self._access: Access | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @property
    def access(self) -> Access:
        """The program's way to the home."""
        if self._access is None:
            from p2pqueue.jobs.access import Access

            with self._lock:
                if self._access is None:
                    self._access = Access(self._home)
        return self._access

    # -- tasks ------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[TaskOption]) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Makes a task of a function: `@queue.task`, or `@queue.task(…)` with options; see `TaskOptions`.

        :param name: what jobs call it; default the function's name.
        """
        described = declared({"queue": self.name} | options)
        _checked("queue", described.queue)

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            return self._register(make_task(self, function, name=_task_name(name, function), options=described))

        return declare if function is None else declare(function)

    def _register(self, task: Task[..., Any]) -> Task[..., Any]:
        known = self.tasks.get(task.name)
        if known is not None and (known.__module__, known.__qualname__) != (task.__module__, task.__qualname__):
            raise ConfigError(
                f"two functions want the task name {task.name!r}: {known.__module__}.{known.__qualname__} and "
                f"{task.__module__}.{task.__qualname__}; give one another, as in @queue.task(name=…)"
            )
        self.tasks[task.name] = task
        return task

    # -- jobs -------------------------------------------------------------------------------------------------

    def enqueue(self, task: str, args: Mapping[str, Any] | None = None, /, **options: Unpack[EnqueueOption]) -> Job[Any]:
        """Makes a job of a task by its name, known here or not; see `EnqueueOptions`.

        A job whose task no device has waits for one, and a warning is logged.
        """
        if task in self.tasks:
            return self.tasks[task].options(**options).enqueue(**_by_name(args))
        from p2pqueue.jobs.enqueueing import enqueue_unknown

        return enqueue_unknown(self.access, task, _by_name(args), queue=self.name, options=EnqueueOptions().changed(options))

    async def aenqueue(self, task: str, args: Mapping[str, Any] | None = None, /, **options: Unpack[EnqueueOption]) -> Job[Any]:
        """As `enqueue`, without blocking the loop."""
        if task in self.tasks:
            return await self.tasks[task].options(**options).aenqueue(**_by_name(args))
        return await _in_thread(lambda: self.enqueue(task, args, **options))

    def get(self, job_id: str) -> Job[Any]:
        """The job of that id, or whose id alone begins so. Raises `NoSuchJob` and `AmbiguousId`."""
        from p2pqueue.jobs import finding

        return finding.find(self.access, job_id)

    async def aget(self, job_id: str) -> Job[Any]:
        """As `get`, without blocking the loop."""
        from p2pqueue.jobs import finding

        return await finding.afind(self.access, job_id)

    def jobs(
        self, *, status: str | None = None, task: str | Task[..., Any] | None = None, device: str | None = None,
        since: datetime | Duration | None = None, limit: int | None = 50,
    ) -> list[Job[Any]]:  # fmt: skip
        """The jobs of this queue, live ones first, then the newest.

        :param status: queued, running, paused, succeeded, failed or cancelled; default all.
        :param task: a task or its name; default all.
        :param device: id or label of the device that runs or ran them; default all.
        :param since: moment, or seconds ago, after which they were enqueued; default all.
        :param limit: most to give; default 50; None for all.
        """
        from p2pqueue.jobs import finding

        name = task.name if isinstance(task, Task) else task
        wanted = finding.asked(self.name, status=status, task=name, device=device, since=since, limit=limit)
        return finding.select(self.access, wanted)

    async def ajobs(
        self, *, status: str | None = None, task: str | Task[..., Any] | None = None, device: str | None = None,
        since: datetime | Duration | None = None, limit: int | None = 50,
    ) -> list[Job[Any]]:  # fmt: skip
        """As `jobs`, without blocking the loop."""
        from p2pqueue.jobs import finding

        name = task.name if isinstance(task, Task) else task
        wanted = finding.asked(self.name, status=status, task=name, device=device, since=since, limit=limit)
        return await finding.aselect(self.access, wanted)

    def counts(self) -> dict[str, int]:
        """How many jobs of the whole space have each status."""
        from p2pqueue.jobs import finding

        return finding.counts(self.access)

    def cancel(self, job_id: str) -> None:
        """Ends a job; see `Job.cancel`."""
        self.get(job_id).cancel()

    def pause(self, job_id: str) -> None:
        """Keeps a job from running; see `Job.pause`."""
        self.get(job_id).pause()

    def resume(self, job_id: str) -> None:
        """Lets a paused job run; see `Job.resume`."""
        self.get(job_id).resume()

    def retry(self, job_id: str, *, fresh: bool = False) -> Job[Any]:
        """Makes a job that has ended run again; see `Job.retry`."""
        return self.get(job_id).retry(fresh=fresh)

    def delete(self, job_id: str) -> None:
        """Deletes a job; see `Job.delete`."""
        self.get(job_id).delete()

    async def acancel(self, job_id: str) -> None:
        """As `cancel`, without blocking the loop."""
        await (await self.aget(job_id)).acancel()

    async def apause(self, job_id: str) -> None:
        """As `pause`, without blocking the loop."""
        await (await self.aget(job_id)).apause()

    async def aresume(self, job_id: str) -> None:
        """As `resume`, without blocking the loop."""
        await (await self.aget(job_id)).aresume()

    async def aretry(self, job_id: str, *, fresh: bool = False) -> Job[Any]:
        """As `retry`, without blocking the loop."""
        return await (await self.aget(job_id)).aretry(fresh=fresh)

    async def adelete(self, job_id: str) -> None:
        """As `delete`, without blocking the loop."""
        await (await self.aget(job_id)).adelete()

    # -- files and nodes --------------------------------------------------------------------------------------

    def share(self, path: str | os.PathLike[str], *, copy: bool | None = None, name: str | None = None) -> File:
        """Takes in a file or a folder without a job; its `.manifest` is what other devices of the space open it by.

        What has less than 64 MiB, or anything with `copy=True`, is kept sealed; what is larger is served from where it lies,
        and must stay as it is. A folder's content is had by `.save`, or as a folder by `.path`.
        """
        from p2pqueue.jobs.local import remember_shared
        from p2pqueue.jobs.outcome import open_file

        stored = self.access.shelf.ingest(path, copy=copy, name=name)
        self.access.write(lambda writer: remember_shared(writer.connection, stored.capability, writer.now))
        return open_file(self.access.shelf, stored.capability)

    async def ashare(self, path: str | os.PathLike[str], *, copy: bool | None = None, name: str | None = None) -> File:
        """As `share`, without blocking the loop."""
        return await _in_thread(lambda: self.share(path, copy=copy, name=name))

    def node(self, **settings: Any) -> Node:
        """The node of this home inside the program, with this queue's tasks: `async with queue.node(slots=2): …`.

        Takes the settings of `p2pqueue run`, such as `slots` or `allow_exec`. Worker processes import the module
        in which the queue stands, so a program's own doings belong under `if __name__ == "__main__":`.
        Raises `ConfigError` where the queue stands in no module.
        """
        from p2pqueue.node import Node

        return Node(self.access.home, application=find_application(self), overrides=settings, queue=self)

    def close(self) -> None:
        """Closes what the program has open of the home; the next use opens it again. `with queue:` does so at its end."""
        if self._access is not None:
            self._access.close()

    async def aclose(self) -> None:
        """As `close`, without blocking the loop."""
        await _in_thread(self.close)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_application(queue: Queue) -> str:
    """Where worker processes find a queue: `module:name`, or the path of the program's main file."""
    # The module that declares it rather than the program that imported it: a child need not run the program again.
    for module_name, module in sorted(sys.modules.items(), key=lambda each: each[0] == "__main__"):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is queue and (found := _place(module_name, module, name)):
                return found
    raise ConfigError(f"the queue {queue.name!r} stands in no module, so worker processes can't find its tasks: make it a global of a file")


def _place(module_name: str, module: ModuleType, name: str) -> str | None:
    if module_name != "__main__":
        return f"{module_name}:{name}"
    if module.__spec__ is not None:  # started as `python -m …`
        return f"{module.__spec__.name}:{name}"
    path: str | None = getattr(module, "__file__", None)
    return None if path is None else os.path.abspath(path)


async def _in_thread(fn: Callable[[], R]) -> R:
    import asyncio

    return await asyncio.to_thread(fn)


def _by_name(args: Any) -> Mapping[str, Any]:
    if args is not None and not isinstance(args, Mapping):
        raise ArgumentError(f"the arguments of a task that is called by its name are a map, as {{'parameter': value}}, not {args!r:.80}")
    return args or {}


def _task_name(name: str | None, function: Callable[..., Any]) -> str:
    if not callable(function):
        raise ConfigError(f"@queue.task goes above a function, not above {function!r}")
    found = name if name is not None else getattr(function, "__name__", "")
    if found == "<lambda>":
        raise ConfigError("a lambda has no name that a worker could know it by; give it one, as in queue.task(name=…)")
    if found == _EXEC:
        raise ConfigError(f"the task name {_EXEC!r} is taken by `p2pqueue exec`")
    return _checked("task", found)


def _checked(what: str, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"the name of a {what} is 1 to 128 letters, digits, or any of . : _ -, not {name!r}")
    return name
