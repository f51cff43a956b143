"""How does a handler's follow-up become a request to its node?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import ArgumentError
from p2pqueue.jobs.arguments import encode

if TYPE_CHECKING:
    from p2pqueue.jobs.task import Task


def fields_of(task: Task[..., Any] | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request `enqueue`: task, queue, args (packed), files by parameter, and the options given.

    A file is a map with `path` or `capability`. Times are in seconds. Raises `ArgumentError`.
    """
    if isinstance(task, str):
        if args:
            raise ArgumentError(f"name the arguments of {task!r}: by its name alone their order is not known here")
        bound, queue, options = dict(kwargs), None, {}
    else:
        bound, queue, options = task.signature.bind(args, kwargs), task.declared.queue, _options(task)
    encoded = encode(bound)
    files = {name: _source(file) for name, file in encoded.files.items()}
    name = task if isinstance(task, str) else task.name
    return {"task": name, "queue": queue, "args": encoded.data, "files": files, "options": options}


def _options(task: Task[..., Any]) -> dict[str, Any]:
    asked = {name: value for name, value in vars(task.asked).items() if value is not None}
    declared = {"title": task.declared.title, "priority": task.declared.priority}
    return {name: value for name, value in declared.items() if value} | asked


def _source(file: Any) -> dict[str, Any]:
    if file.manifest is not None:
        return {"capability": file.manifest}
    return {"path": str(file.original), "copy": bool(file.copy)}
