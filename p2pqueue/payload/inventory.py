"""Which files lie on this device, where, and may they go?

Plain values for whoever shows them, and the two things that people do with them: look whether they are sound, and make
room.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from p2pqueue.errors import InputChanged, P2PQueueError
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.format import LARGEST_SHARD
from p2pqueue.payload.holdings import find_place
from p2pqueue.payload.reading import Reader
from p2pqueue.payload.store import ShardStore
from p2pqueue.payload.sweep import remove_path

FILES: Final = """
SELECT f.address, f.capability, f.name, f.size, f.kind, f.copied, f.fetched, f.since, coalesce(s.path, d.path), coalesce(s.owned, d.owned),
    (SELECT sum(t.size) FROM uses u JOIN stored t ON t.address = u.address WHERE u.root = f.address),
    (SELECT count(*) FROM uses o WHERE o.address = f.address AND o.root <> f.address)  -- uses_address
FROM files f LEFT JOIN sources s ON s.id = f.source LEFT JOIN folders d ON d.id = f.folder
ORDER BY f.since, f.name
"""
PLAIN_ADDRESSES: Final = """
SELECT address FROM plain WHERE source = (SELECT source FROM files WHERE address = ?)    -- plain_source
UNION SELECT address FROM pieces WHERE folder = (SELECT folder FROM files WHERE address = ?)  -- pieces_folder
"""
USERS: Final = "SELECT DISTINCT root FROM uses WHERE address = ?"  # uses_address
PLACES_OF: Final = """
SELECT 'sources', s.id, s.path, s.owned FROM files f JOIN sources s ON s.id = f.source WHERE f.address = ?
UNION SELECT 'folders', d.id, d.path, d.owned FROM files f JOIN folders d ON d.id = f.folder WHERE f.address = ?
"""


@dataclass(frozen=True)
class Held:
    """A file or folder of which this device knows. `state` is "here", "changed" (its original is not what it was) or "incomplete"."""

    address: bytes
    capability: str
    name: str
    size: int
    kind: str
    where: str | None  # the plain file or folder; None where it lies sealed in the home alone
    is_own: bool  # it lies in the home, sealed or plain
    fetched: bool  # it came from another device
    since: float  # seconds since 1970
    takes: int  # bytes in the home
    listed: bool  # as one of several, or of a job's several files
    state: str


@dataclass(frozen=True)
class Damage:
    """A file that can't be given whole from here any more, and why, in words."""

    held: Held
    why: str
    is_rotten: bool  # its plain file looks as it was, and holds something else


def inventory(catalogue: Catalogue) -> list[Held]:
    """All files and folders, the oldest first."""
    found = []
    for row in catalogue.read(lambda c: c.execute(FILES).fetchall()):
        address, capability, name, size, kind, copied, fetched, since, path, owned, stored, listed = row
        where = None if path is None else os.fsdecode(path)
        plain = where is not None and find_place(catalogue, address) is not None
        state = "here" if copied or plain else "changed" if where is not None and not owned else "incomplete"
        takes = (stored or 0) + (size if owned and where is not None else 0)
        is_own = bool(copied or owned)
        found.append(Held(address, capability, name, size, kind, where, is_own, bool(fetched), since, takes, bool(listed), state))
    return found


def check(catalogue: Catalogue, store: ShardStore, reader: Reader, held: Held, on_bytes: Callable[[int], object]) -> Damage | None:
    """Reads all that lies here of a file, and says what is wrong with it. Sealed shards that are damaged are dropped."""
    why, buffer, plain_fails = None, memoryview(bytearray(LARGEST_SHARD)), False
    stored = catalogue.read(lambda c: c.execute("SELECT address FROM uses WHERE root = ?", (held.address,)).fetchall())
    for (address,) in stored:
        shard = store.load(address, buffer)
        if shard is not None:
            on_bytes(len(shard))
        elif why is None:
            why = f"shard {address.hex()} is damaged, or not here"
    for (address,) in catalogue.read(lambda c: c.execute(PLAIN_ADDRESSES, (held.address,) * 2).fetchall()):
        try:
            on_bytes(len(reader.sealed(address)))
        except P2PQueueError as error:
            plain_fails = True
            why = why or _plain_words(held, error)
    if why is None and held.state != "here":
        why = "its original changed, or is gone" if held.state == "changed" else "a part of it is not here"
    return None if why is None else Damage(held, why, plain_fails and find_place(catalogue, held.address) is not None)


def drop_rotten(catalogue: Catalogue, root: Capability) -> None:
    """Forgets a plain file that is damaged, and removes it if it lies in this home. What is the user's own is left alone."""

    def drop(connection: sqlite3.Connection) -> None:
        for table, number, path, owned in connection.execute(PLACES_OF, (root.address,) * 2).fetchall():
            if owned:
                remove_path(os.fsdecode(path))
            if table == "sources":
                connection.execute("DELETE FROM plain WHERE source = ?", (number,))
            connection.execute(f"DELETE FROM {table} WHERE id = ?", (number,))

    catalogue.free(drop)


def _plain_words(held: Held, error: P2PQueueError) -> str:
    if isinstance(error, InputChanged) and not held.is_own:
        return str(error).partition(", and nothing else")[0]
    return "the plain copy in this home is damaged" if isinstance(error, InputChanged) else str(error)
