"""Where are the tasks of a node?

In a module (`module:queue`), a Python file (`tasks.py`, `tasks.py:queue`) or a TOML file of command tasks. Code is
loaded by a worker process, and by the node itself only for inline tasks.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Protocol

from p2pqueue.errors import ConfigError
from p2pqueue.workers.children.protocol import TaskDescription

_WANTED = "name a Python file with a queue (tasks.py), a module with one (tasks:queue), or a TOML file of command tasks (media.toml)"


class TaskLike(Protocol):
    """A task as it is declared: a function, or a command."""

    @property
    def name(self) -> str:
        """What jobs call it."""

    @property
    def function(self) -> Any:
        """What is called; None for a command."""

    def describe(self) -> dict[str, Any]:
        """What a node must know of it, as a plain map."""


@dataclass(frozen=True)
class Application:
    """The tasks of a node by their names."""

    spec: str
    tasks: Mapping[str, TaskLike]


def load(spec: str) -> Application:
    """Loads an application. Raises `ConfigError` with the reason in one line; whatever its code raises is one."""
    path, attribute = _split(spec)
    if path.endswith(".toml"):
        from p2pqueue.workers.commandfile import read_commands

        return Application(spec, read_commands(Path(path)))
    try:
        module = _import_file(Path(path)) if path.endswith(".py") else _import_module(path)
    except ConfigError:
        raise
    except BaseException as error:
        raise ConfigError(f"{spec} can't be loaded: {_last_line(error)}") from error
    return Application(spec, _tasks_of(spec, module, attribute))


def descriptions(application: Application) -> list[TaskDescription]:
    """What a node must know of the tasks, by name."""
    found = []
    for name in sorted(application.tasks):
        try:
            found.append(TaskDescription.from_map(application.tasks[name].describe()))
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"{application.spec}: {name!r} is no task: {error}") from error
    return found


def _split(spec: str) -> tuple[str, str | None]:
    head, colon, tail = spec.rpartition(":")
    if not colon or "/" in tail or "\\" in tail or not tail:  # a drive letter is no module either
        return spec, None
    return head, tail


def _import_module(name: str) -> ModuleType:
    path, is_name = Path(name), all(part.isidentifier() for part in name.split("."))
    if path.is_file():
        kind = f"a {path.suffix} file" if path.suffix else "a file without an ending"
        raise ConfigError(f"{name!r} is {kind}, and no application; {_WANTED}")
    if path.is_dir() and not is_name:
        raise ConfigError(f"{name!r} is a folder, and no application; {_WANTED}")
    if not is_name:
        raise ConfigError(f"{name!r} is no application: there is no such file; {_WANTED}")
    add_folder(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that it imports itself
        raise ConfigError(f"{name!r} is no application: there is no such file, and no module named {error.name!r}; {_WANTED}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    add_folder(str(path.resolve().parent))
    name = path.stem
    if name in sys.stdlib_module_names or not name.isidentifier():  # queue.py is a likely name, and taken
        name = "p2pqueue_application"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def add_folder(folder: str) -> None:
    """Makes the application's neighbours importable: before installed packages, but after the standard library."""
    if not folder or folder in sys.path:
        return
    installed = [index for index, path in enumerate(sys.path) if path.rstrip("/\\").endswith(("site-packages", "dist-packages"))]
    sys.path.insert(installed[0] if installed else len(sys.path), folder)


def _tasks_of(spec: str, module: ModuleType, attribute: str | None) -> dict[str, TaskLike]:
    queues = list(_queues(module)) if attribute is None else [_attribute(spec, module, attribute)]
    if not queues:
        raise ConfigError(f"{spec} declares no queue; it needs a line such as: queue = Queue('name')")
    tasks: dict[str, TaskLike] = {}
    for queue in queues:
        for name, task in queue.tasks.items():
            if tasks.setdefault(name, task) is not task:
                raise ConfigError(f"{spec} declares two tasks with the name {name!r}")
    return tasks


def _attribute(spec: str, module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ConfigError(f"{spec} can't be loaded: {module.__name__} has no {attribute!r}")
    if not _is_queue(found):
        raise ConfigError(f"{spec} can't be loaded: {attribute!r} is no queue")
    return found


def _queues(module: ModuleType) -> Iterator[Any]:
    seen: set[int] = set()
    for value in vars(module).values():
        if _is_queue(value) and id(value) not in seen:
            seen.add(id(value))
            yield value


def _is_queue(value: Any) -> bool:
    if isinstance(value, (type, ModuleType)):
        return False
    try:
        return isinstance(getattr(value, "tasks", None), Mapping)
    except Exception:  # noqa: BLE001 - any object of any library may stand in a module
        return False


def _last_line(error: BaseException) -> str:
    name, text = type(error).__name__, str(error)
    where = _where(error.__traceback__)
    return (f"{name}: {text}" if text else name) + ("" if isinstance(error, SyntaxError) or where is None else f" ({where})")


def _where(trace: TracebackType | None) -> str | None:
    """The innermost line of the application, not of the import machinery."""
    found = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen") and file != __file__:
            found = f"{file}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found
