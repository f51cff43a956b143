"""Which files are on this device, what is under way, what is damaged, and what may go?"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import carrying, edge, interrupted, output, quantities
from p2pqueue.cli.commands.evicting import Eviction
from p2pqueue.cli.group import Group
from p2pqueue.cli.held import document_of, find_file, known_files, table_of
from p2pqueue.cli.invocation import Invocation, pass_invocation
from p2pqueue.cli.meter import Meter
from p2pqueue.cli.opening import check_initialised, open_shelf, writing
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.payload.inventory import Damage, Held
    from p2pqueue.payload.shelf import Shelf


@click.group(
    "files",
    cls=Group,
    invoke_without_command=True,
    help="List the files of this device and the transfers that are under way; pin, verify and evict files.",
    examples="""
    p2pqueue files
    p2pqueue files --json | jq '.transfers[].why'
    p2pqueue files pin drawings
    p2pqueue files verify --refetch
    p2pqueue files evict --to 2GiB
    """,
)
@click.option("--watch", is_flag=True, help="Follow the transfers that are under way, until Ctrl-C.")
@click.pass_context
def files_command(context: click.Context, watch: bool) -> None:
    """Lists the files, where no command below was named."""
    if context.invoked_subcommand is not None:
        return
    invocation = context.find_object(Invocation) or Invocation()
    check_initialised(invocation.home)
    if watch:
        carrying.follow(invocation)
        return
    with closing(open_shelf(invocation.home, fetches=False)) as shelf:
        known, usage = known_files(invocation, shelf), shelf.usage()
    transfers = carrying.transfers(invocation)
    half = interrupted.found(invocation, transfers)
    took = {"stored": usage.stored, "quota": usage.quota, "plain": usage.outputs, "referenced": usage.referenced}
    took["interrupted"] = sum(each.takes for each in half)
    document = {"schema": 1, "files": [document_of(each) for each in known], "transfers": transfers}
    document |= {"interrupted": [interrupted.document_of(each) for each in half], "usage": took}
    told = {each["root"] for each in transfers}  # those that have failed are told as such

    def lines() -> list[str]:
        width = output.terminal_width()
        under_way = [carrying.line_of(each, width) for each in transfers]
        return [*table_of(known), *under_way, *(interrupted.line_of(each) for each in half if each.capability not in told)]

    invocation.result(document, lines)
    if not invocation.json:
        room = f"{quantities.bytes_text(usage.stored)} of {quantities.bytes_text(usage.quota)} sealed in the home"
        plain_part = f", {quantities.bytes_text(usage.outputs)} plain in it" if usage.outputs else ""
        where = f", {quantities.bytes_text(usage.referenced)} served from where they lie" if usage.referenced else ""
        half_part = f", {quantities.bytes_text(took['interrupted'])} half fetched" if took["interrupted"] else ""
        invocation.say(f"{room}{plain_part}{half_part}{where}")


@files_command.command(
    "pin", help="Keep files on this device, whatever becomes of the jobs that name them.", examples="p2pqueue files pin drawings"
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@pass_invocation
def pin_command(invocation: Invocation, files: tuple[str, ...]) -> None:
    """Pins files."""
    _set_pins(invocation, files, pinned=True)


@files_command.command(
    "unpin",
    help="Let pinned files go again when nothing needs them.",
    examples="""
    p2pqueue files unpin drawings
    """,
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@pass_invocation
def unpin_command(invocation: Invocation, files: tuple[str, ...]) -> None:
    """Takes pins back."""
    _set_pins(invocation, files, pinned=False)


@files_command.command(
    "verify",
    help="""Read all files of this device, or some, and check each against its hash. Exits 1 where one is damaged.

    Damaged shards are dropped, so that they are never given to anybody. --refetch gets sound ones from other devices.
    """,
    examples="""
    p2pqueue files verify
    p2pqueue files verify drawings --refetch
    """,
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--refetch", is_flag=True, help="Fetch what is damaged from other devices.")
@pass_invocation
def verify_command(invocation: Invocation, files: tuple[str, ...], refetch: bool) -> int:
    """Checks files."""
    check_initialised(invocation.home)
    with closing(open_shelf(invocation.home, fetches=False)) as shelf:
        known = known_files(invocation, shelf)
        chosen = [find_file(known, text) for text in files] if files else known
        damaged = _check(invocation, shelf, [each.held for each in chosen])
        documents = [_mend(invocation, shelf, each, refetch) for each in damaged]
    left = sum(not each["mended"] for each in documents)

    def lines() -> list[str]:
        words = [f"{plain(each['name'])}: {plain(each['why'])}{_mended_words(each)}" for each in documents]
        return [*words, f"{quantities.counted(len(chosen), 'file')} checked, {len(documents)} damaged"]

    invocation.result({"schema": 1, "checked": len(chosen), "damaged": documents}, lines)
    if left and not refetch:
        invocation.say("`p2pqueue files verify --refetch` gets sound copies from other devices; what changed can be shared again")
    return edge.ERROR if left else edge.DONE


@files_command.command(
    "evict",
    help="""Make room: remove files of this device, or the oldest ones down to a size. Other devices keep theirs.

    What is pinned stays. What was made or shared here, and lies nowhere else that is known of, stays unless --force says
    otherwise; so does what a job needs that has not ended. Originals outside the home are never touched. What was fetched
    in part and interrupted goes when it is named.
    """,
    examples="""
    p2pqueue files evict drawings
    p2pqueue files evict --to 2GiB
    """,
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--to", type=quantities.size, metavar="SIZE", help="Remove the oldest until the files in the home take no more than that.")
@click.option("--force", is_flag=True, help="Remove pinned files too, and only copies.")
@pass_invocation
def evict_command(invocation: Invocation, files: tuple[str, ...], to: int | None, force: bool) -> int:
    """Removes files."""
    if bool(files) == (to is not None):
        raise click.UsageError("name the files, or a size with --to.")
    check_initialised(invocation.home)
    with closing(open_shelf(invocation.home, fetches=False)) as shelf:
        known = known_files(invocation, shelf)
        eviction = Eviction(invocation, shelf, known, force)
        if to is None:
            left = [text for text in files if not eviction.evict_half(text)]
            eviction.evict([find_file(known, text) for text in left])
        else:
            eviction.evict_down_to(to)
    evicted, kept = eviction.evicted, eviction.kept
    document = {"schema": 1, "freed": eviction.freed, "evicted": [each.capability for each in evicted]}
    document["kept"] = [{"manifest": each.capability, "name": each.name, "why": why} for each, why in kept]
    counted = quantities.counted(len(evicted), "file")
    invocation.result(document, lambda: [f"freed {quantities.bytes_text(eviction.freed)}: {counted} evicted"])
    failed = bool(kept) if to is None else eviction.left > to
    for each, why in kept if failed else ():
        invocation.warn(f"{plain(each.name) or 'several files'} stays: {plain(why)}")
    return edge.ERROR if failed else edge.DONE


def _set_pins(invocation: Invocation, files: tuple[str, ...], *, pinned: bool) -> None:
    from p2pqueue.jobs import filed

    check_initialised(invocation.home)
    with closing(open_shelf(invocation.home, fetches=False)) as shelf:
        known = known_files(invocation, shelf)
    chosen = [find_file(known, text).held for text in files]
    capabilities = [each.capability for each in chosen]
    with writing(invocation.home) as replica:
        if pinned:
            replica.write(lambda writer: filed.pin(writer.connection, capabilities, writer.now))
        else:
            replica.write(lambda writer: filed.unpin(writer.connection, capabilities))
    done = "pinned" if pinned else "unpinned"
    invocation.result({"schema": 1, done: capabilities}, lambda: [f"{done} {plain(each.name)}" for each in chosen])


def _check(invocation: Invocation, shelf: Shelf, chosen: list[Held]) -> list[Damage]:
    done, whole = [0], sum(each.size for each in chosen)
    damaged = []
    with Meter(invocation, "checking") as meter:

        def count(size: int) -> None:
            done[0] += size
            meter(min(done[0], whole), whole)

        for each in chosen:
            damage = shelf.check(each, count)
            if damage is not None:
                damaged.append(damage)
    return damaged


def _mended_words(each: dict[str, Any]) -> str:
    """What was mended: what is the user's own is left as it is."""
    if not each["mended"]:
        return ""
    return f"; a sound copy is in the home, {plain(each['left'])} was left as it was" if each["left"] else "; mended"


def _mend(invocation: Invocation, shelf: Shelf, damage: Damage, refetch: bool) -> dict[str, Any]:
    from p2pqueue.errors import P2PQueueError
    from p2pqueue.jobs.bringing import bring

    held = damage.held
    document = {"manifest": held.capability, "name": held.name, "where": held.where, "why": damage.why, "mended": False}
    document["left"] = held.where if held.where is not None and not held.is_own and os.path.lexists(held.where) else None
    if damage.is_rotten:
        shelf.drop_rotten(held.capability)
    document["mended"] = shelf.holds(held.capability)  # a sealed copy was damaged, and the original is as it was
    if refetch and not document["mended"]:
        try:
            with Meter(invocation, f"fetching {plain(held.name)}") as meter:
                bring(invocation.home, held.capability, on_progress=meter)
            document["mended"] = shelf.holds(held.capability)
        except P2PQueueError as error:
            invocation.warn(f"{plain(held.name)} can't be fetched: {plain(error)}")
    return document
