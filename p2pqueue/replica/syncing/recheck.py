"""What do we do about a write of ours that a peer refused? We check it ourselves.

If its signature doesn't hold here either, a foreign write is set aside, and one of our own is written anew: the
same values under the same stamp, with the next number and a fresh signature.
"""

from __future__ import annotations

from collections.abc import Iterable

from p2pqueue.replica.merging.aside import remove, set_aside
from p2pqueue.replica.merging.forks import issue
from p2pqueue.replica.reading import with_values
from p2pqueue.replica.writer import Writer

_CHANGE = "tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature"


def recheck(writer: Writer, numbers: Iterable[tuple[bytes, int]]) -> int:
    """Checks the live writes with these authors and numbers; gives how many didn't hold."""
    failed = 0
    for author, seq in numbers:
        rows = writer.connection.execute(f"SELECT {_CHANGE} FROM changes WHERE author = ? AND seq = ?", (author, seq)).fetchall()
        for write in with_values(writer.connection, writer.shapes, rows):
            if write.signature is None:
                continue
            problem = writer.keyring.problem(writer.connection, write)
            if problem is None:
                continue
            failed += 1
            if author == writer.author:
                issue(writer, write, author, {})
            else:
                remove(writer.connection, writer.shapes.get(write.table), write.table, write.key, write.register)
                writer.note(write.table, (write.key,))
                set_aside(writer.connection, write, problem, held=False, now=writer.now)
    return failed
