"""Which writes of new rows wait to go to SQLite together?

Functions that share a transaction mostly make new rows and read nothing. What they put is gathered and applied at
once, in a tenth of the statements; a function that fails takes its own back before SQLite has seen it. As soon as
somebody looks at the connection, everything that was put before is there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from p2pqueue.replica.merging.batch import Batch, Known
from p2pqueue.replica.statements import Shape

Rows = dict[str, dict[str, dict[str, Known]]]  # table, key, register
_OF_DATA = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError, OverflowError, UnicodeEncodeError)


def is_of_data(error: Exception) -> bool:
    """Says whether SQLite refused values, rather than failing at the disk or the file."""
    plain = isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_ERROR
    return plain or isinstance(error, _OF_DATA)


class Pending:
    """The writes that wait: of the function that runs now, and of those that ended well before it."""

    def __init__(self, connection: sqlite3.Connection, shapes: Mapping[str, Shape]) -> None:
        self._connection = connection
        self._shapes = shapes
        self.mine: Rows = {}
        self.owner = 0  # the function that runs now
        self.failures: dict[int, Exception] = {}  # by function: what SQLite said of its writes
        self._others: list[tuple[int, Rows]] = []

    def put(self, table: str, key: str, register: str, write: Known) -> None:
        """Gathers a write; the greater of two of one register stays."""
        registers = self.mine.setdefault(table, {}).setdefault(key, {})
        standing = registers.get(register)
        if standing is None or standing.stamp < write.stamp:
            registers[register] = write

    def stands(self, table: str, key: str, register: str) -> Known | None:
        """What was gathered for a register of a new row."""
        return self.mine.get(table, {}).get(key, {}).get(register)

    def keep(self) -> None:
        """The function that ran has ended well."""
        if self.mine:
            self._others.append((self.owner, self.mine))
            self.mine = {}

    def flush_others(self) -> None:
        """Applies what the earlier functions put; one whose values SQLite refuses fails alone."""
        others, self._others = self._others, []
        if not others:
            return
        if len(others) == 1:
            self._apply_alone(*others[0])
            return
        together: Rows = {}
        for _, rows in others:
            for table, found in rows.items():
                together.setdefault(table, {}).update(found)
        self._connection.execute("SAVEPOINT pending")
        try:
            self._apply(together)
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            if not is_of_data(error):
                raise
            self._connection.execute("ROLLBACK TO pending")
            self._connection.execute("RELEASE pending")
            for owner, rows in others:
                self._apply_alone(owner, rows)
            return
        self._connection.execute("RELEASE pending")

    def flush_mine(self) -> list[str]:
        """Applies what the function that runs now has put so far, and gives the keys; raises what SQLite says of it."""
        mine, self.mine = self.mine, {}
        self._apply(mine)
        return [key for rows in mine.values() for key in rows]

    def _apply_alone(self, owner: int, rows: Rows) -> None:
        self._connection.execute("SAVEPOINT pending")
        try:
            self._apply(rows)
        except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            if not is_of_data(error):
                raise
            self._connection.execute("ROLLBACK TO pending")
            self.failures[owner] = error
        self._connection.execute("RELEASE pending")

    def _apply(self, rows: Rows) -> None:
        for table, found in rows.items():
            Batch.of_new_rows(self._connection, self._shapes[table], found).apply()
