"""How is a change durable long before it is made?

A change that needs to see nothing of the rows may be deferred: it becomes one row in one local tree, which costs a
commit little more than the disk. Whoever writes or reads next, in whatever process, carries out first what was
deferred, all of it in one batch and before anything of its own: so nobody ever sees rows without it. The change gets
its number, its time and its signature only then, which is why nothing of it can be half known to a peer.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from p2pqueue import __version__

if TYPE_CHECKING:
    from p2pqueue.replica.writer import Writer

CarryOut = Callable[["Writer", Sequence[bytes]], object]

TABLE: Final = "CREATE TABLE IF NOT EXISTS deferred (id INTEGER PRIMARY KEY, change BLOB NOT NULL, problem TEXT)"
MOST_DEFERRED: Final = 512  # by one program; then it carries them out itself: some 20 ms of work, twice that on a Pi

INSERT: Final = "INSERT INTO deferred (change) VALUES (?)"
_TELLER: Final = f"p2pqueue {__version__}: "  # begins every problem: what one version can't make, another may
_OPEN = f"(problem IS NULL OR substr(problem, 1, {len(_TELLER)}) <> '{_TELLER}')"
_WAITING = f"SELECT id, change FROM deferred WHERE {_OPEN} ORDER BY id"
_WAITS = f"SELECT 1 FROM deferred WHERE {_OPEN} LIMIT 1"

_log = logging.getLogger(__name__)


def waits(connection: sqlite3.Connection) -> bool:
    """Says whether changes are deferred that are still to be carried out, or that another version could not make."""
    return connection.execute(_WAITS).fetchone() is not None


def carry_out(writer: Writer, make: CarryOut) -> bool:
    """Makes all deferred changes at once, at the beginning of a transaction; says whether there were any.

    Raises what `make` raises: then the transaction has to be undone.
    """
    connection = writer.connection
    waiting = connection.execute(_WAITING).fetchall()
    if not waiting:
        return False
    make(writer, [change for _, change in waiting])
    connection.execute(f"DELETE FROM deferred WHERE id <= ? AND {_OPEN}", (waiting[-1][0],))
    return True


def carry_out_singly(writer: Writer, make: CarryOut) -> None:
    """As `carry_out`, each for itself: one that can't be made stays, with its problem, and keeps nothing else up.

    Another version tries it again, and so does this one again after an upgrade.

    Raises what is the disk's fault and not a change's.
    """
    for place, change in writer.connection.execute(_WAITING).fetchall():
        done = writer.alone(place, _only(make, change))
        if done.error is not None and is_of_the_disk(done.error):
            raise done.error
        if done.error is None:
            writer.connection.execute("DELETE FROM deferred WHERE id = ?", (place,))
        else:
            _log.error("a deferred change can't be made, and is kept aside: %s", done.error)
            writer.connection.execute(
                "UPDATE deferred SET problem = ? WHERE id = ?", (_TELLER + (str(done.error) or repr(done.error)), place)
            )


def is_of_the_disk(error: BaseException) -> bool:
    """Says whether disk or file are at fault: full, busy, damaged. What else SQLite raises is about a change's values."""
    return type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError)


def nothing(_: Writer) -> None:
    """The change of whoever only wants what was deferred to be carried out."""


def _only(make: CarryOut, change: bytes) -> Callable[[Writer], object]:
    return lambda writer: make(writer, [change])
