"""How does a program get a file that is on another device? It asks the node of its home, which is linked to the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import NodeNotRunning, P2PQueueError, PayloadUnavailable

if TYPE_CHECKING:
    from p2pqueue.home import Home

Progress = Callable[[int, int], object]
Look = Callable[[Mapping[str, Any]], object]


def bring(
    home: Home, capability: str, *, on_progress: Progress = lambda done, size: None, on_look: Look = lambda told: None
) -> list[tuple[str, str, int]]:
    """Has the node fetch a file onto the shelf of a home; `on_progress` is told bytes done and bytes in all.

    `on_look` is told now and then how the transfer stands, as `Transfer.plain` has it; what it raises ends the fetch.
    Gives source, lane and bytes of all that came.

    Raises `PayloadUnavailable` in words where no node runs here, or no other device has the file now.
    """
    from p2pqueue.replica.door.doorbell import DoorbellClient

    try:
        for event in DoorbellClient(home.socket_path).stream("fetch", capability=capability):
            if event.get("fetched"):
                return [(str(source), str(lane), int(size)) for source, lane, size in event.get("received", ())]
            if "transfer" in event:
                on_look(event["transfer"])
            if "done" in event:
                on_progress(int(event["done"]), int(event.get("size", 0)))
    except NodeNotRunning as error:
        words = "The content is on another device, and no node runs here to fetch it: start one with `p2pqueue run`"
        raise PayloadUnavailable(words) from error
    raise PayloadUnavailable("The node stopped before the content was here")


def describe(home: Home, capability: str) -> list[tuple[str, str, int]] | None:
    """Name, manifest and size of each file that a manifest on another device names; None where nobody tells them now."""
    from p2pqueue.replica.door.doorbell import DoorbellClient

    try:
        told = DoorbellClient(home.socket_path).request("describe", capability=capability)
    except (P2PQueueError, OSError):
        return None
    return [(str(name), str(text), int(size)) for name, text, size in told["files"]]
