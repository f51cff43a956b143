"""What happens to writes that were kept unread, once their register is declared here?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from p2pqueue import wire
from p2pqueue.replica.signatures.bodies import BODY_LIMIT, write_from_body
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
    from p2pqueue.replica.merging.merge import merge_kept

    by_table: dict[str, list[str]] = {}
    for table, register in declared:
        by_table.setdefault(table, []).append(register)
    for table, registers in by_table.items():
        kept = [write for register in registers for write in _kept(writer, table, register)]
        if kept:
            writer.connection.executemany(
                "DELETE FROM changes WHERE tbl = ? AND register = ?", [(table, register) for register in registers]
            )
            merge_kept(writer, table, kept)


def _kept(writer: Writer, table: str, register: str) -> Iterator[Write]:
    for key, *stamp, seq, body, signature in writer.connection.execute(_SELECT, (table, register)).fetchall():
        if signature is not None:
            yield write_from_body(body, signature)
        else:
            yield Write(table, key, register, Stamp(*stamp), seq, tuple(wire.unpack(body, limit=BODY_LIMIT)))
