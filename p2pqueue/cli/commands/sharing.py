"""How do people share files and folders without a job?"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from p2pqueue.cli import quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.meter import Meter
from p2pqueue.cli.opening import check_initialised, open_shelf, remember_shared
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.payload.publish import Stored
    from p2pqueue.payload.shelf import Shelf


LARGE: Final = 5_000  # files of a folder from which on they aren't counted one by one


@click.command(
    "share",
    cls=Command,
    help="""Share files and folders with the devices of the space, without a job. Prints the manifest by which `get` has them.

    What has less than 64 MiB is kept sealed in the home; what is larger is read once and served from where it lies, and
    must stay as it is. Several paths are shared as one. Of a folder all files are shared, with whether they can be
    executed, and its empty folders; not times, owners and other modes. Symbolic links are followed.
    """,
    examples="""
    p2pqueue share clip.mov
    p2pqueue share drawings/ notes.txt
    p2pqueue share --copy drawings/
    """,
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(readable=False))
@click.option("--copy", is_flag=True, help="Keep a sealed copy, whatever the size: the original may go away.")
@pass_invocation
def share_command(invocation: Invocation, paths: tuple[str, ...], copy: bool) -> None:
    """Shares files and folders."""
    check_initialised(invocation.home)
    with closing(open_shelf(invocation.home)) as shelf:
        taken = [_take_in(invocation, shelf, path, copy) for path in paths]
        whole = taken[0] if len(taken) == 1 else _together(shelf, taken)
        remember_shared(invocation.home, whole.capability)
        counts = [_count(shelf, each) for each in taken]
    left_out = [words for each in taken for words in each.left_out]
    for words in left_out:
        invocation.warn(f"{plain(words)}: left out")
    files = [
        {"name": each.name, "size": each.size, "kind": each.kind, "by_reference": each.by_reference, "count": count}
        for each, count in zip(taken, counts, strict=True)
    ]
    document = {"schema": 1, "manifest": whole.capability, "name": whole.name, "size": whole.size, "kind": whole.kind}
    invocation.result({**document, "files": files, "left_out": left_out}, lambda: [whole.capability])
    if not invocation.json:
        for each, count in zip(taken, counts, strict=True):
            kept = "is served from where it lies, and must stay as it is" if each.by_reference else "is kept sealed in the home"
            several = f", {quantities.counted(count, 'file')}" if each.kind == "folder" else ""
            invocation.say(f"{plain(each.name)} ({quantities.bytes_text(each.size)}{several}) {kept}")


def _take_in(invocation: Invocation, shelf: Shelf, path: str, copy: bool) -> Stored:
    with Meter(invocation, f"reading {plain(os.path.basename(os.path.abspath(path)))}") as meter:
        return shelf.ingest(path, copy=True if copy else None, on_progress=meter)


def _count(shelf: Shelf, stored: Stored) -> int:
    """How many files one has; of very large folders the empty folders are counted too, since that takes no time."""
    from p2pqueue.payload.capability import parse_capability
    from p2pqueue.payload.manifest import TreeManifest

    if stored.kind != "folder":
        return 1
    with shelf.reader() as reader:
        manifest = reader.manifest(parse_capability(stored.capability))
        assert isinstance(manifest, TreeManifest)
        return manifest.count if manifest.count > LARGE else len(reader.layout(manifest).paths)


def _together(shelf: Shelf, taken: list[Stored]) -> Stored:
    """Several as one, by their names; of equal names the second has a number."""
    named: dict[str, str] = {}
    for each in taken:
        name, number = each.name, 2
        while name in named:
            name, number = f"{each.name} ({number})", number + 1
        named[name] = each.capability
    return shelf.identify(shelf.bundle(named))
