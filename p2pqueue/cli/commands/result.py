"""How does a person get a job's result: its value, or the files that it made?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import edge, output, quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_job
from p2pqueue.cli.opening import open_shelf, reading
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.jobs.rows import JobRow, RunRow
    from p2pqueue.payload.shelf import Shelf

_FILE_KEY = "__file__"  # a result names its files by maps of this one key


@dataclass(frozen=True)
class ResultFile:
    """A file or folder of a result: its name in the result, its own name, its size in bytes, its manifest, and whether it is here.

    Name and size are None where its manifest is on another device that isn't linked now.
    """

    key: str
    name: str | None
    size: int | None
    manifest: str
    here: bool = False
    is_folder: bool = False


@click.command(
    "result",
    cls=Command,
    help="""Print a job's result, or save its file.

    A value is printed as JSON, text as it is. Of a file the manifest is printed; -o saves its content. Exits 6 while
    the job has not ended, 1 where it failed, 7 where it was cancelled.
    """,
    examples="""
    p2pqueue result 0199a1b2-c3d4
    p2pqueue result 0199a1b2-c3d4 -o out.mp4
    p2pqueue result 0199a1b2-c3d4 -o - | mpv -
    p2pqueue result 0199a1b2-c3d4 -o thumbnails/
    """,
)
@click.argument("job", shell_complete=complete_job)
@click.option("-o", "--output", "target", metavar="PATH", help="Save it there: a file, a folder for several files, or - for stdout.")
@pass_invocation
def result_command(invocation: Invocation, job: str, target: str | None) -> None:
    """Prints or saves a job's result."""
    from p2pqueue.cli.job_shape import unpacked
    from p2pqueue.jobs import rows

    with reading(invocation.home) as connection:
        row = rows.find(connection, job)
        run = rows.run(connection, row.result_id) if row.result_id else None
    _check_ended(row)
    value = unpacked(run.result) if run is not None else None
    if run is None or run.output_manifest is None:
        _give_value(invocation, row, value, target)
        return
    if target is None:
        _print_files(invocation, row, run, value)
        return
    with closing(open_shelf(invocation.home)) as shelf, _whereabouts(invocation, run):
        _save(invocation, shelf, _files(shelf, run, value), target)


@contextmanager
def _whereabouts(invocation: Invocation, run: RunRow) -> Iterator[None]:
    """Tells of content that is not here where it is: on the device that made it."""
    from p2pqueue.errors import PayloadUnavailable
    from p2pqueue.identity.keys import load

    try:
        yield
    except PayloadUnavailable as error:
        if run.worker_id == load(invocation.home).device_id:
            raise
        made_on = run.worker_label or "the device"
        raise PayloadUnavailable(
            f"the content of what job {run.job_id} made is not on this device: it lies on {made_on}, which made it. "
            "Start the node there and here, and try again; a backup carries no files"
        ) from error


def save_as(invocation: Invocation, job_id: str, paths: dict[str, str]) -> None:
    """Saves the files of a job that succeeded, by their own names, to these paths."""
    from p2pqueue.cli.job_shape import unpacked
    from p2pqueue.jobs import rows

    with reading(invocation.home) as connection:
        row = rows.get(connection, job_id)
        run = rows.run(connection, row.result_id) if row is not None and row.result_id else None
    if run is None or run.output_manifest is None:
        return
    with closing(open_shelf(invocation.home)) as shelf, _whereabouts(invocation, run):
        for each in _files(shelf, run, unpacked(run.result)):
            if each.name in paths:
                _check_free(each, Path(paths[each.name]))
                shelf.fetch_to(each.manifest, paths[each.name])
                invocation.say(f"saved {plain(paths[each.name])}")


def _check_ended(row: JobRow) -> None:
    if not row.ended:
        raise edge.Refusal(f"job {row.id} is {row.status} and has no result yet; `p2pqueue watch {row.id}` follows it", edge.NOT_FINISHED)
    if row.status == "cancelled":
        raise edge.Refusal(f"job {row.id} was cancelled", edge.CANCELLED)
    if row.status == "failed":
        raise edge.Refusal(f"job {row.id} failed: {row.error or 'no reason told'}; `p2pqueue show {row.id}` tells more", edge.ERROR)


def _give_value(invocation: Invocation, row: JobRow, value: Any, target: str | None) -> None:
    if target is None:
        invocation.result(_document(row, value, []), lambda: [_shown(value)])
        return
    data = ((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) + "\n").encode("utf-8", "surrogateescape")
    if target == "-":
        sys.stdout.buffer.write(data)
        return
    Path(target).write_bytes(data)
    _tell_saved(invocation, [target])


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return plain(value, lines=True) if sys.stdout.isatty() else value
    return json.dumps(value, ensure_ascii=not sys.stdout.isatty())


def _document(row: JobRow, value: Any, files: list[ResultFile]) -> dict[str, Any]:
    listed = [{"key": each.key, "name": each.name, "size": each.size, "manifest": each.manifest, "here": each.here} for each in files]
    return {"schema": 1, "id": row.id, "status": row.status, "result": value, "files": listed}


def _files(shelf: Shelf, run: RunRow, value: Any) -> list[ResultFile]:
    manifest = run.output_manifest or ""
    keys = list(_keys(value))
    entries = {keys[0] if keys else "result": manifest}
    if len(keys) > 1:
        entries = {key: stored.capability for key, stored in shelf.unbundle(manifest).items()}
    found = []
    for key, capability in entries.items():
        known = shelf.identify(capability)
        found.append(ResultFile(key, known.name, known.size, capability, shelf.holds(capability), known.kind == "folder"))
    return found


def _known_files(invocation: Invocation, run: RunRow, value: Any) -> list[ResultFile]:
    """What is known of the files without fetching them: here, else by the device that has them, if it is linked."""
    from p2pqueue.errors import PayloadUnavailable
    from p2pqueue.jobs.bringing import describe

    with closing(open_shelf(invocation.home, fetches=False)) as shelf:
        try:
            return _files(shelf, run, value)
        except PayloadUnavailable:
            pass
    manifest, keys = run.output_manifest or "", _keys(value) or ["result"]
    told = describe(invocation.home, manifest)
    if told is None:
        return [ResultFile(key, None, None, manifest) for key in keys]
    if len(keys) == 1:
        return [ResultFile(keys[0], name, size, text) for name, text, size in told[:1]]
    return [ResultFile(key, key, size, text) for key, text, size in told]


def _keys(value: Any) -> list[str]:
    """The names of the files that a result names, anywhere in it."""
    if isinstance(value, dict):
        if list(value) == [_FILE_KEY]:
            return [str(value[_FILE_KEY])]
        return [key for inner in value.values() for key in _keys(inner)]
    if isinstance(value, list):
        return [key for inner in value for key in _keys(inner)]
    return []


def _print_files(invocation: Invocation, row: JobRow, run: RunRow, value: Any) -> None:
    files = _known_files(invocation, run, value)
    elsewhere = plain(run.worker_label or "another device")

    def lines() -> list[str]:
        if len(files) == 1 and _keys(value) == [files[0].key] and isinstance(value, dict) and len(value) == 1:
            return [files[0].manifest]
        return [_shown(value), *dict.fromkeys(each.manifest for each in files)]

    invocation.result(_document(row, value, files), lines)
    if not invocation.json:
        for each in files:
            what = "a file" if each.name is None else f"{plain(each.name)}, {quantities.bytes_text(each.size)}"
            invocation.say(f"{what}, {'here' if each.here else f'on {elsewhere}'}")
        them, where = ("it", "PATH") if len(files) == 1 else ("them", "FOLDER/")
        invocation.say(f"save {them} with: p2pqueue result {row.id} -o {where}")


def _save(invocation: Invocation, shelf: Shelf, files: list[ResultFile], target: str) -> None:
    if target == "-":
        if len(files) != 1:
            raise click.UsageError(f"the result has {len(files)} files; save them into a folder, with -o FOLDER/.")
        for block in shelf.open(files[0].manifest):
            sys.stdout.buffer.write(block)
        return
    paths = _paths(files, target)
    for each, path in zip(files, paths, strict=True):
        _check_free(each, path)
    for each, path in zip(files, paths, strict=True):
        shelf.fetch_to(each.manifest, path)
    _tell_saved(invocation, [str(path) for path in paths])


def _check_free(file: ResultFile, path: Path) -> None:
    """A folder is never mixed with another, nor put into one that only has its name."""
    if file.is_folder and os.path.lexists(path):
        raise edge.Refusal(f"{plain(path)} is there already, and the result is a folder; name another place, or take that one away")


def _paths(files: list[ResultFile], target: str) -> list[Path]:
    path = Path(target)
    if len(files) == 1 and not path.is_dir() and not target.endswith(os.sep):
        return [path]
    from p2pqueue.payload.names import distinct_names

    path.mkdir(parents=True, exist_ok=True)
    return [path / name for name in distinct_names(each.name or each.key for each in files)]


def _tell_saved(invocation: Invocation, paths: list[str]) -> None:
    if invocation.json:
        output.document({"schema": 1, "saved": paths})
    for path in paths:
        invocation.say(f"saved {plain(path)}")
