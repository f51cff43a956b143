"""How does a handler run in a child, and what is reported of its end?"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import ArgumentError, Cancelled, Retry
from p2pqueue.jobs.arguments import decode, encode_result
from p2pqueue.jobs.backoff import kinds_of
from p2pqueue.workers.children.context import Continue
from p2pqueue.workers.children.interrupt import Interrupt
from p2pqueue.workers.children.protocol import (
    ERROR_LIMIT,
    TRACEBACK_LIMIT,
    Assignment,
    Continued,
    Failed,
    FileGrant,
    Outcome,
    OutputFile,
    RetryLater,
    Stopped,
    Succeeded,
)

if TYPE_CHECKING:
    from p2pqueue.payload.shelf import Shelf

STOPPED = Stopped("cancelled")  # the child knows only that it was stopped; its node knows why
_NOTHING = Succeeded(encode_result(None).data, ())  # what most handlers return


def call(function: Callable[..., Any], assignment: Assignment, interrupt: Interrupt, shelf: Shelf | None = None) -> Outcome:
    """Calls a handler with the arguments of an assignment and gives what became of it.

    Its files are opened from the shelf of this process's home where none is given.
    """

    def body() -> Outcome:
        args = decode(assignment.args, open_files(assignment.files, assignment.workdir, shelf))
        interrupt.open()
        try:
            value = function(**args)
        except TypeError as error:
            return misfit(error)
        interrupt.close()
        if inspect.iscoroutine(value):
            value = _run_async(value, interrupt)
        return reported(value)

    return guarded(body, interrupt)


def guarded(body: Callable[[], Outcome], interrupt: Interrupt) -> Outcome:
    """What a body returns, or what its exception means. Whatever it raises ends here."""
    own = os.getpid()
    try:
        try:
            outcome = body()
        finally:
            if os.getpid() != own:  # a fork that came back out of the handler: it has no business here
                os._exit(1)
            interrupt.close()
        return STOPPED if interrupt.delivered else outcome
    except Cancelled:
        return STOPPED
    except Continue as go_on:
        return STOPPED if interrupt.delivered else Continued(go_on.state)
    except Retry as retry:
        return STOPPED if interrupt.delivered else RetryLater(str(retry)[:ERROR_LIMIT], retry.delay)
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are failures of a handler as well
        return STOPPED if interrupt.delivered else failure(error)


def failure(error: BaseException) -> Failed:
    """A failure as text: nothing of the exception itself leaves the child."""
    if isinstance(error, MemoryError):
        _let_go(error)
    return Failed(describe(error), traceback_of(error), kinds_of(error))


def misfit(error: TypeError) -> Failed:
    """The failure of a call by its `TypeError`: for good where the handler never began, its arguments not being its parameters."""
    failed = failure(error)
    began = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    return failed if began else failed.changed(final=True)


def describe(error: BaseException) -> str:
    """An exception in one line: `ValueError: …`."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a handler's own exception class may do anything here
        text = "(its text can't be shown)"
    return clean(f"{name}: {text}" if text else name)[:ERROR_LIMIT]


def traceback_of(error: BaseException) -> str:
    """The traceback, from the handler's own frames on, its middle left out where it is long."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace, limit=-100))
    except Exception:  # noqa: BLE001 - as above
        text = describe(error)
    text = clean(text)
    if len(text) <= TRACEBACK_LIMIT:
        return text
    head = TRACEBACK_LIMIT // 4
    return f"{text[:head]}\n[…]\n{text[-(TRACEBACK_LIMIT - head - 8) :]}"


def clean(text: str) -> str:
    """Text without lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def open_files(grants: Mapping[str, FileGrant], scratch: str | os.PathLike[str], shelf: Shelf | None = None) -> dict[str, Any]:
    """The `File` of each grant; into the folder `scratch` those are unpacked that have no plain original here."""
    if not grants:
        return {}
    from p2pqueue.payload.file import File

    return {
        name: File.granted(grant.path, grant.capability, name=grant.name, size=grant.size, shelf=shelf, scratch=Path(scratch))
        for name, grant in grants.items()
    }


def reported(value: Any) -> Outcome:
    """The success of a handler that returned this; a failure for good where it can't be carried."""
    if value is None:
        return _NOTHING
    try:
        encoded = encode_result(value)
    except ArgumentError as error:
        return Failed(describe(error), None, kinds_of(error), final=True)
    files = encoded.files
    return Succeeded(encoded.data, tuple(_output(name, file) for name, file in files.items()) if files else ())


def _output(name: str, file: Any) -> OutputFile:
    if file.manifest is not None:
        return OutputFile(name, None, capability=file.manifest, label=file.name)
    return OutputFile(name, os.path.abspath(file.original), label=file.name)


def _run_async(coroutine: Coroutine[Any, Any, Any], interrupt: Interrupt) -> Any:
    import asyncio

    async def main() -> Any:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        interrupt.open(lambda: loop.call_soon_threadsafe(task.cancel))
        try:
            return await coroutine
        finally:
            interrupt.close()

    try:
        return asyncio.run(main())
    finally:
        coroutine.close()


def _let_go(error: BaseException) -> None:
    """Frees what the handler's frames hold: there may be no memory left to tell of the error."""
    trace = error.__traceback__
    while trace is not None:
        try:
            trace.tb_frame.clear()
        except RuntimeError:
            pass  # a frame of ours, still running
        trace = trace.tb_next


_HERE = os.path.dirname(os.path.abspath(__file__))
