"""What happens to writes that were kept unread, once their register is declared here?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from p2pqueue import wire
from p2pqueue.replica.signing import write_from_body
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.write import Write

if TYPE_CHECKING:
    from p2pqueue.replica.writer import Writer

_SELECT = (
    "SELECT key, generation, rank, claim, hlc, author, seq, body, signature FROM changes "
    "WHERE tbl = ? AND register = ? AND body IS NOT NULL"
)


def apply_known(writer: Writer, declared: Iterable[tuple[str, str]]) -> None:
    """Merges what was kept for registers that are newly declared, as if it came from a peer just now."""
    from p2pqueue.replica.merge import merge

    kept: list[Write] = []
    for table, register in declared:
        for key, *stamp, seq, body, signature in writer.connection.execute(_SELECT, (table, register)).fetchall():
            if signature is not None:
                kept.append(write_from_body(body, signature))
            else:
                values = tuple(wire.unpack(body, limit=1 << 20))
                kept.append(Write(table, key, register, Stamp(*stamp), seq, values))
        writer.connection.execute("DELETE FROM changes WHERE tbl = ? AND register = ?", (table, register))
    if kept:
        merge(writer, kept, repair=True)
