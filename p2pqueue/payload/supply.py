"""How does a shard leave this device without being copied about?

One of a plain file is read into a kept buffer, sealed there in place, and checked; who asks for one after the other gets
them looked up together, for the catalogue takes half as long as the sealing. A small one comes from the catalogue as it
is. A stored file is read and checked when it is first asked for, and then goes to the socket without passing through
this program; it is looked at again after an hour, so that a rotten one isn't offered for ever.
"""

from __future__ import annotations

import io
import os
import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import Final

from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.format import LARGEST_SHARD, TAG_SIZES
from p2pqueue.payload.reading import Place, Reader, missing, places_of
from p2pqueue.payload.seal import address_of, seal_into
from p2pqueue.payload.store import ShardStore

TRUSTED_FOR: Final = 3600.0  # seconds after its check in which a stored file is sent unread
_REMEMBERED: Final = 65_536  # checks; then all are forgotten
AHEAD: Final = 64  # chunks of a plain file that are looked up together
AHEAD_FOR: Final = 2.0  # seconds in which what was looked up ahead counts

_STORED: Final = "SELECT size, body FROM stored WHERE address = ?"
_BEHIND: Final = """
SELECT address, offset, length, algorithm, key, tag
FROM plain
WHERE source = ? AND offset > ?  -- plain_source
ORDER BY offset
LIMIT ?
"""


@dataclass(frozen=True)
class Held:
    """What the catalogue says of a shard."""

    address: bytes
    size: int  # bytes
    body: bytes | None = None  # a small one
    is_stored: bool = False
    places: tuple[Place, ...] = ()  # of plain files, where none is stored
    is_ahead: bool = False  # looked up a moment ago, and in one file alone


class Checks:
    """Which stored files were read and found right, and when? For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[bytes, tuple[tuple[int, int, int], float]] = {}

    def remember(self, address: bytes, file: io.FileIO) -> None:
        """It was read and fits its address."""
        with self._lock:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[address] = (_marks(file), time.monotonic())

    def counts(self, address: bytes, file: io.FileIO) -> bool:
        """Says whether a file may be sent unread."""
        with self._lock:
            found = self._found.get(address)
        return found is not None and time.monotonic() - found[1] < TRUSTED_FOR and found[0] == _marks(file)


class Supply(Reader):
    """Gives shards to one peer after the other. A context that closes the files it opened; not for two threads at once."""

    def __init__(self, store: ShardStore, catalogue: Catalogue, space_key: bytes, checks: Checks) -> None:
        super().__init__(store, catalogue, space_key)
        self._checks = checks
        self._last = 0  # the number of the plain file in which something was found last
        self._ahead: dict[bytes, Held] = {}
        self._ahead_until = 0.0

    def find(self, address: bytes) -> Held | None:
        """What is known of a shard, by the catalogue; None where it isn't here. Nothing is read."""
        held = self._ahead.pop(address, None)
        return held if held is not None and time.monotonic() < self._ahead_until else self._look_up(address)

    def file(self, held: Held) -> io.FileIO | None:
        """The file of a shard that may be sent as it lies; None where it is to be read. Whoever gets it closes it."""
        if held.body is not None or not held.is_stored:
            return None
        try:
            file = io.FileIO(self._store.path_of(held.address), "rb")
        except OSError:
            return None
        if os.fstat(file.fileno()).st_size == held.size and self._checks.counts(held.address, file):
            return file
        file.close()
        return None

    def fill(self, held: Held, buffer: memoryview) -> memoryview:
        """The shard, checked, in the beginning of a buffer of its size at least. Raises `PayloadUnavailable` and `InputChanged`."""
        if held.body is not None and len(held.body) == held.size and address_of(held.body) == held.address:
            buffer[: held.size] = held.body
            return buffer[: held.size]
        if held.is_stored:
            shard = self._store.load(held.address, buffer[: held.size])
            if shard is not None:
                self._remember(held)
                return shard
        changed = None
        for place in self._look_twice(held.address, held.places):
            plain, sealed = buffer[: place.length], buffer[: place.length + TAG_SIZES[place.algorithm]]
            if len(sealed) == held.size and self._read_range(place, plain):
                seal_into(place.algorithm, place.key, plain, sealed)
                if place.fits(sealed, held.address):
                    return sealed
            changed = self.changed_in(place)
        if held.is_ahead and (now := self._look_up(held.address)) is not None:
            return self.fill(now, buffer)
        raise missing(held.address, "a file", changed)

    def _look_up(self, address: bytes) -> Held | None:
        last = self._last
        stored, places, behind = self._catalogue.read(lambda connection: _look_up(connection, address, last))
        if stored is not None:
            return Held(address, stored[0], stored[1], True)
        if not places:
            return None
        self._last = places[0].source
        if behind:
            self._ahead = {each: _held(each, place, is_ahead=True) for each, place in behind}
            self._ahead_until = time.monotonic() + AHEAD_FOR
        return _held(address, *places)

    def _remember(self, held: Held) -> None:
        if held.body is None:
            try:
                with io.FileIO(self._store.path_of(held.address), "rb") as file:
                    self._checks.remember(held.address, file)
            except OSError:
                pass  # it went away meanwhile


def _held(address: bytes, *places: Place, is_ahead: bool = False) -> Held:
    return Held(address, places[0].length + TAG_SIZES[places[0].algorithm], places=places, is_ahead=is_ahead)


def _look_up(
    connection: sqlite3.Connection, address: bytes, last: int
) -> tuple[tuple[int, bytes | None] | None, tuple[Place, ...], list[tuple[bytes, Place]]]:
    """What is stored of a shard, else where it lies in plain files, and what lies behind it where that is the file `last`."""
    row = connection.execute(_STORED, (address,)).fetchone()
    if row is not None and 0 < row[0] <= LARGEST_SHARD:
        return row, (), []
    places = tuple(places_of(connection, address))
    if not places or not last or places[0].source != last:
        return None, places, []
    path, marks = places[0].path, places[0].marks
    behind = [
        (each, Place(path, marks, offset, length, algorithm, key, tag=tag, source=last))
        for each, offset, length, algorithm, key, tag in connection.execute(_BEHIND, (last, places[0].offset, AHEAD))
    ]
    return None, places, behind


def _marks(file: io.FileIO) -> tuple[int, int, int]:
    found = os.fstat(file.fileno())
    return found.st_ino, found.st_size, found.st_mtime_ns
