"""What was fetched in part and is not under way, and how is that told?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from p2pqueue.cli import quantities
from p2pqueue.cli.held import FEWEST, SHOWN
from p2pqueue.cli.invocation import Invocation
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.payload.fetching.halves import Half


def found(invocation: Invocation, transfers: Iterable[Mapping[str, Any]]) -> list[Half]:
    """All that the node, which has these transfers, does not fetch just now."""
    from p2pqueue.payload.fetching.halves import halves

    under_way = {each["root"] for each in transfers if not each["failed"]}
    return [each for each in halves(invocation.home.landings_dir) if each.capability not in under_way]


def named(invocation: Invocation, text: str) -> list[Half]:
    """Those of a manifest, of the beginning of one, or of that name, whether they are under way or not."""
    from p2pqueue.payload.fetching.halves import halves

    wanted = text.strip()
    all_ = [each for each in halves(invocation.home.landings_dir) if each.capability]
    by_manifest = [each for each in all_ if len(wanted) >= FEWEST and each.capability.startswith(wanted.lower())]
    return by_manifest or [each for each in all_ if each.name == wanted]


def document_of(each: Half) -> dict[str, Any]:
    """The part of a file as `--json` tells it."""
    told = {"manifest": each.capability, "name": each.name, "size": each.size, "kind": each.kind, "verified": each.verified}
    return {**told, "takes": each.takes, "since": quantities.rfc3339(int(each.since * 1000))}


def line_of(each: Half) -> str:
    """The same for people."""
    so_far = f"{quantities.bytes_text(each.verified)} of {quantities.bytes_text(each.size)}"
    return f"{each.capability[:SHOWN]}  {plain(each.name) or 'files'}  {so_far}  interrupted; get it again"
