"""How do people share files and folders without a job, and get those that others shared?"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from p2pqueue.cli import edge, quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.meter import Meter
from p2pqueue.cli.opening import check_initialised, open_shelf, writing
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.payload.publish import Stored
    from p2pqueue.payload.shelf import Shelf


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
        _remember(invocation, whole.capability)
    left_out = [words for each in taken for words in each.left_out]
    for words in left_out:
        invocation.warn(f"{plain(words)}: left out")
    files = [{"name": each.name, "size": each.size, "kind": each.kind, "by_reference": each.by_reference} for each in taken]
    document = {"schema": 1, "manifest": whole.capability, "name": whole.name, "size": whole.size, "kind": whole.kind}
    invocation.result({**document, "files": files, "left_out": left_out}, lambda: [whole.capability])
    if not invocation.json:
        for each in taken:
            kept = "is served from where it lies, and must stay as it is" if each.by_reference else "is kept sealed in the home"
            invocation.say(f"{plain(each.name)} ({quantities.bytes_text(each.size)}) {kept}")


@click.command(
    "get",
    cls=Command,
    help="""Get what another device shared, or what is here, by its manifest.

    A file or folder is written under its own name into this folder, or where -o says: to that path, or into a folder that
    is there. What is not here is fetched by the running node; when it is cut short, run it again, and it goes on from there.
    """,
    examples="""
    p2pqueue get p2pq1-aeaaa…
    p2pqueue get p2pq1-aeaaa… -o /media/disk/
    p2pqueue get p2pq1-aeaaa… -o - | tar -t
    """,
)
@click.argument("manifest")
@click.option("-o", "--output", "target", metavar="PATH", help="Write it there; - is stdout, for a single file.")
@pass_invocation
def get_command(invocation: Invocation, manifest: str, target: str | None) -> None:
    """Gets what a manifest stands for."""
    from p2pqueue.payload.capability import parse_capability

    check_initialised(invocation.home)
    capability = parse_capability(manifest).text
    with closing(open_shelf(invocation.home, fetches=False)) as shelf:
        received = _bring(invocation, shelf, capability)
        stored = shelf.identify(capability)
        if target == "-":
            _pour(shelf, stored)
            return
        getting = _Getting(invocation, shelf, is_new=received is not None)
        saved = [plain(path) for path in getting.save(stored, target)]
        if getting.moved:  # it is served on from where it lies now, as if it had been shared
            _remember(invocation, capability)
    document = {"schema": 1, "manifest": capability, "name": stored.name, "size": stored.size, "kind": stored.kind, "saved": saved}
    invocation.result({**document, "received": [list(each) for each in received or ()]}, lambda: saved)


def _take_in(invocation: Invocation, shelf: Shelf, path: str, copy: bool) -> Stored:
    with Meter(invocation, f"reading {plain(os.path.basename(os.path.abspath(path)))}") as meter:
        return shelf.ingest(path, copy=True if copy else None, on_progress=meter)


def _together(shelf: Shelf, taken: list[Stored]) -> Stored:
    """Several as one, by their names; of equal names the second has a number."""
    named: dict[str, str] = {}
    for each in taken:
        name, number = each.name, 2
        while name in named:
            name, number = f"{each.name} ({number})", number + 1
        named[name] = each.capability
    return shelf.identify(shelf.bundle(named))


def _bring(invocation: Invocation, shelf: Shelf, capability: str) -> list[tuple[str, str, int]] | None:
    """Has the node fetch what isn't here; tells from whom it came, and None where it was here."""
    from p2pqueue.errors import NodeNotRunning, PayloadUnavailable
    from p2pqueue.jobs.bringing import bring

    if shelf.holds(capability):
        return None
    try:
        with Meter(invocation, "fetching") as meter:
            return bring(invocation.home, capability, on_progress=meter)
    except PayloadUnavailable as error:
        if isinstance(error.__cause__, NodeNotRunning):
            raise edge.Refusal(str(error), edge.NOT_RUNNING) from error
        raise


def _pour(shelf: Shelf, stored: Stored) -> None:
    if stored.kind != "file":
        raise edge.Refusal(f"this is a {stored.kind} of files, which can't go to stdout; name a place with -o", edge.USAGE)
    for block in shelf.open(stored.capability):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


@dataclass
class _Getting:
    """Writes what a manifest stands for. What has just been fetched is moved where that can be, else copied."""

    invocation: Invocation
    shelf: Shelf
    is_new: bool
    moved: bool = False

    def save(self, stored: Stored, target: str | None) -> list[str]:
        """The paths that were written."""
        where = target if target is not None else os.curdir
        if stored.kind == "set":
            return self._save_all(stored, where)
        self._check_free(stored, where)
        with Meter(self.invocation, f"writing {plain(stored.name)}") as meter:
            if self.is_new and (moved := self.shelf.hand_over(stored.capability, where, meter)) is not None:
                self.moved = True
                return [str(moved)]
            return [str(self.shelf.fetch_to(stored.capability, where, on_progress=meter))]

    def _save_all(self, stored: Stored, folder: str) -> list[str]:
        from p2pqueue.payload.names import distinct_names

        os.makedirs(folder, exist_ok=True)
        members = self.shelf.unbundle(stored.capability)
        saved = []
        for name, each in zip(distinct_names(members), members.values(), strict=True):
            member = self.shelf.identify(each.capability)
            if member.kind == "set":  # nobody shares such a thing; unfolded it could be endless
                raise edge.Refusal(f"{plain(name)} is several files within several, which is not written out")
            saved += self.save(member, os.path.join(folder, name))
        return saved

    def _check_free(self, stored: Stored, where: str) -> None:
        """A name that somebody else chose never replaces a file of the user's; one that the user typed does."""
        from p2pqueue.payload.names import safe_name

        if os.path.isdir(where) and os.path.lexists(there := os.path.join(where, safe_name(stored.name))):
            raise edge.Refusal(f"{plain(there)} is there already; name another place with -o, or take it away")


def _remember(invocation: Invocation, capability: str) -> None:
    from p2pqueue.jobs.local import remember_shared

    with writing(invocation.home) as replica:
        replica.write(lambda writer: remember_shared(writer.connection, capability, writer.now))
