"""Which files does this device know of, who keeps them, and how are they told?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.cli import edge, output, quantities
from p2pqueue.cli.invocation import Invocation
from p2pqueue.cli.opening import reading
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.payload.inventory import Held
    from p2pqueue.payload.shelf import Shelf

SHOWN: Final = 18  # characters of a manifest that are shown; as many tell any two apart
FEWEST: Final = 8  # characters of one that are to be typed


@dataclass(frozen=True)
class Known:
    """A file of this device, and who keeps it."""

    held: Held
    shared: bool
    pinned_at: int | None  # milliseconds since 1970
    jobs: Sequence[tuple[str, str]]  # id and status

    @property
    def first_needing(self) -> str | None:
        """The job that needs it, since it has not ended; None where there is none."""
        from p2pqueue.jobs.filed import ENDED

        return next((job_id for job_id, status in self.jobs if status not in ENDED), None)


def known_files(invocation: Invocation, shelf: Shelf) -> list[Known]:
    """All files of this device."""
    from p2pqueue.jobs import filed

    with reading(invocation.home) as connection:
        jobs, shared, pins = filed.named_by_jobs(connection), filed.shared(connection), filed.pinned(connection)
    return [Known(held, held.capability in shared, pins.get(held.capability), jobs.get(held.capability, ())) for held in shelf.inventory()]


def find_file(known: Iterable[Known], text: str) -> Known:
    """The file of a manifest, of the beginning of one, or of that name."""
    wanted = text.strip()
    found = [each for each in known if each.held.capability.startswith(wanted.lower())] if len(wanted) >= FEWEST else []
    found = found or [each for each in known if each.held.name == wanted]
    if not found:
        raise edge.Refusal(
            f"no file of this device has the manifest or name {plain(text[:80])}; `p2pqueue files` lists them", edge.NOT_FOUND
        )
    if len(found) > 1:
        raise edge.Refusal(f"{len(found)} files are called {plain(text[:80])}; name one by its manifest", edge.USAGE)
    return found[0]


def document_of(each: Known) -> dict[str, Any]:
    """A file as `--json` tells it."""
    held = each.held
    told = {"manifest": held.capability, "name": held.name, "size": held.size, "kind": held.kind, "state": held.state}
    told |= {"where": held.where, "in_home": held.is_own, "takes": held.takes, "fetched": held.fetched, "shared": each.shared}
    return {
        **told,
        "since": quantities.rfc3339(int(held.since * 1000)) if held.since else None,
        "pinned": each.pinned_at is not None,
        "pinned_at": quantities.rfc3339(each.pinned_at),
        "jobs": [job_id for job_id, _ in each.jobs],
    }


def table_of(known: list[Known]) -> list[str]:
    """The lines of a table of those that are of interest by themselves."""
    shown = [each for each in known if not each.held.listed or each.shared or each.jobs or each.pinned_at is not None]
    if not shown:
        return []
    rows = []
    for each in shown:
        held = each.held
        where = plain(held.where) if held.where is not None and not held.is_own else "home"
        jobs = " ".join(job_id[:13] for job_id, _ in each.jobs[:2]) + (f" +{len(each.jobs) - 2}" if len(each.jobs) > 2 else "")
        name = plain(held.name) or f"{held.kind} of files"
        marks = " ".join(word for word, holds in (("pinned", each.pinned_at is not None), ("shared", each.shared)) if holds)
        state = "" if held.state == "here" else held.state
        since = quantities.local_time(int(held.since * 1000)) if held.since else ""
        rows.append([held.capability[:SHOWN], f"{name}/" if held.kind == "folder" else name, quantities.bytes_text(held.size), since,
                     " ".join(filter(None, (marks, state))), where, jobs])  # fmt: skip
    return output.table(["MANIFEST", "NAME", "SIZE", "SINCE", "KEPT", "WHERE", "JOBS"], rows, painted=False)


def why_kept(each: Known) -> str | None:
    """Why a file isn't removed without force, in words; None where it may go."""
    held, needing = each.held, each.first_needing
    if each.pinned_at is not None:
        return f"it is pinned since {quantities.local_time(each.pinned_at)}; `p2pqueue files unpin` it first, or add --force"
    if held.fetched:
        return None  # it came from another device, and can come again
    if needing is not None:
        return f"job {needing} needs it, and nobody else is known to have it; add --force if that may be"
    if held.is_own and held.kind != "set":
        return "it was made or shared here, and no other copy is known of; add --force if there is one, or if it may be lost"
    return None
