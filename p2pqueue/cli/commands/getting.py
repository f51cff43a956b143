"""How do people get what others shared, and where does it go?"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import edge
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.meter import Meter
from p2pqueue.cli.opening import check_initialised, open_shelf, remember_shared
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.payload.publish import Stored
    from p2pqueue.payload.shelf import Shelf

STDOUT = "-"


@click.command(
    "get",
    cls=Command,
    help="""Get what another device shared, or what is here, by its manifest.

    A file or folder is written under its own name into this folder, or where -o says: to that path, or into a folder that
    is there. What is there already stays, unless --force says otherwise; where it has exactly that content, all is well.
    What is not here is fetched by the running node; when it is cut short, run it again, and it goes on from there.
    """,
    examples="""
    p2pqueue get p2pq1-aeaaa…
    p2pqueue get p2pq1-aeaaa… -o /media/disk/
    p2pqueue get p2pq1-aeaaa… -o - | tar -t
    """,
)
@click.argument("manifest")
@click.option("-o", "--output", "target", metavar="PATH", help="Write it there; - is stdout, for a single file.")
@click.option("--force", is_flag=True, help="Replace a file that is there. A folder is never replaced.")
@pass_invocation
def get_command(invocation: Invocation, manifest: str, target: str | None, force: bool) -> None:
    """Gets what a manifest stands for."""
    from p2pqueue.payload.capability import parse_capability

    check_initialised(invocation.home)
    capability = parse_capability(manifest).text
    with closing(open_shelf(invocation.home, fetches=False)) as shelf:
        place = _Place(invocation, os.curdir if target is None else target, force)
        try:
            received = _bring(invocation, shelf, capability, place)
        except _AlreadyThere as there:
            _tell(invocation, capability, there.stored, [plain(there.path)], ())
            return
        stored = shelf.identify(capability)
        if target == STDOUT:
            _pour(shelf, stored)
            return
        getting = _Getting(invocation, shelf, place, is_new=received is not None)
        saved = [plain(path) for path in getting.save(stored, place.where)]
        if getting.moved:  # it is served on from where it lies now, as if it had been shared
            remember_shared(invocation.home, capability)
    _tell(invocation, capability, {"name": stored.name, "size": stored.size, "kind": stored.kind}, saved, received or ())


def _tell(invocation: Invocation, capability: str, stored: Mapping[str, Any], saved: list[str], received: Any) -> None:
    document = {"schema": 1, "manifest": capability, **stored, "saved": saved, "received": [list(each) for each in received]}
    invocation.result(document, lambda: saved)


def _bring(invocation: Invocation, shelf: Shelf, capability: str, place: _Place) -> list[tuple[str, str, int]] | None:
    """Has the node fetch what isn't here; tells from whom it came, and None where it was here."""
    from p2pqueue.errors import NodeNotRunning, PayloadUnavailable
    from p2pqueue.jobs.bringing import bring

    if shelf.holds(capability):
        return None
    place.check()
    try:
        with Meter(invocation, "fetching") as meter:

            def look(told: Mapping[str, Any]) -> None:
                meter.look(told)
                place.look(told)

            return bring(invocation.home, capability, on_look=look)
    except PayloadUnavailable as error:
        if isinstance(error.__cause__, NodeNotRunning):
            raise edge.Refusal(str(error), edge.NOT_RUNNING) from error
        raise
    except KeyboardInterrupt:
        invocation.say("interrupted; run it again and it goes on")
        raise


def _pour(shelf: Shelf, stored: Stored) -> None:
    if stored.kind != "file":
        raise edge.Refusal(f"this is a {stored.kind} of files, which can't go to stdout; name a place with -o", edge.USAGE)
    for block in shelf.open(stored.capability):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


class _AlreadyThere(Exception):
    """What is asked for lies where it was to go."""

    def __init__(self, path: Path, stored: Mapping[str, Any]) -> None:
        super().__init__(str(path))
        self.path = path
        self.stored = stored


@dataclass
class _Place:
    """Where it is to go, as far as that can be looked at before it is here."""

    invocation: Invocation
    where: str
    force: bool
    _looked: bool = field(default=False, init=False)
    _folder: Path | None = field(default=None, init=False)

    def check(self) -> None:
        """Tries whether anything can be written there. Raises `DiskFull` and `WorldError`."""
        from p2pqueue.payload import saving

        if self.where != STDOUT:
            self._folder = saving.check_place(self.where)

    def look(self, told: Mapping[str, Any]) -> None:
        """Looks whether a file of that name, size and content may go there, as soon as those are told.

        Raises `Refusal` and `DiskFull`, and `_AlreadyThere` where it needs not even be fetched.
        """
        from p2pqueue.payload import comparing, saving

        if self._looked or not told["name"] or self.where == STDOUT:
            return
        self._looked = True
        assert self._folder is not None
        if os.stat(self._folder).st_dev != os.stat(self.invocation.home.path).st_dev:
            saving.check_free(self._folder, told["size"])
        if not told["content"]:  # a folder: whether it is the same is seen when its manifest is here
            return
        there = saving.target_of(self.where, told["name"])
        if not os.path.lexists(there):
            return
        if comparing.holds_file(there, told["size"], bytes.fromhex(told["content"])):
            say_same(self.invocation, there)
            raise _AlreadyThere(there, {"name": told["name"], "size": told["size"], "kind": "file"})
        if not self.force:
            raise is_taken(there)


@dataclass
class _Getting:
    """Writes what a manifest stands for. What has just been fetched is moved where that can be, else copied."""

    invocation: Invocation
    shelf: Shelf
    place: _Place
    is_new: bool
    moved: bool = False

    def save(self, stored: Stored, where: str) -> list[str]:
        """The paths that are there then."""
        if stored.kind == "set":
            return self._save_all(stored, where)
        there = self._target(stored, where)
        if os.path.lexists(there):
            if self._is_same(stored, there):
                say_same(self.invocation, there)
                return [str(there)]
            if stored.kind == "folder" or not self.place.force:
                raise is_taken(there, is_folder=stored.kind == "folder")
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

    def _target(self, stored: Stored, where: str) -> Path:
        from p2pqueue.payload import saving
        from p2pqueue.payload.names import safe_name

        if stored.kind != "folder":
            return saving.target_of(where, stored.name)
        within = saving.parent_of(where)
        return Path(os.path.realpath(where)) if within is None else self._own_folder(stored, within, within / safe_name(stored.name))

    def _own_folder(self, stored: Stored, within: Path, there: Path) -> Path:
        """The folder itself where that was named, having got it there before: `get -o NAME` may be said twice."""
        return within if not os.path.lexists(there) and self._is_same(stored, within) else there

    def _is_same(self, stored: Stored, there: Path) -> bool:
        from p2pqueue.payload import comparing
        from p2pqueue.payload.capability import parse_capability

        with Meter(self.invocation, f"comparing {plain(stored.name)}") as meter, self.shelf.reader() as reader:
            return comparing.is_at(reader, parse_capability(stored.capability), there, meter)


def say_same(invocation: Invocation, there: Path) -> None:
    """Says that nothing needed to be written."""
    invocation.say(f"{plain(there)} is there already, and has exactly that content")


def is_taken(there: Path, *, is_folder: bool = False) -> edge.Refusal:
    """Something else is there."""
    ways = "name another place with -o, or take it away" if is_folder else "name another place with -o, take it away, or add --force"
    return edge.Refusal(f"{plain(there)} is there already; {ways}")
