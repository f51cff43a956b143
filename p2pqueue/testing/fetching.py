"""How does a file get from one device of a test to another?

What has the same content and name has the same manifest in all of a space, so it is taken out there and taken in here.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from p2pqueue.errors import PayloadUnavailable

if TYPE_CHECKING:
    from p2pqueue.payload.shelf import Shelf


def fetch(capability: str, there: Shelf, here: Shelf) -> None:
    """Brings the file, folder or several files of a manifest from one shelf to another. Raises `PayloadUnavailable`."""
    parts = there.unbundle(capability)
    for part in parts.values():
        _fetch_one(part.capability, there, here)
    if [part.capability for part in parts.values()] != [capability]:
        here.bundle({name: part.capability for name, part in parts.items()})
    if not here.holds(capability):
        raise PayloadUnavailable("the file can't be had from the other device of the test: it was sealed in another way there")


def _fetch_one(capability: str, there: Shelf, here: Shelf) -> None:
    with tempfile.TemporaryDirectory(prefix="p2pqueue-test-") as folder:
        name = there.identify(capability).name
        here.ingest(there.fetch_to(capability, folder, private=True), copy=True, name=name)
