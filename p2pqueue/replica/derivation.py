"""How do derived columns follow the registers that they depend on? SQL texts go in, SQL texts come out. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from p2pqueue.replica.tables import Table

NEWEST = "updated_at"
_WORD = re.compile(r"'[^']*'|[A-Za-z_][A-Za-z0-9_]*")


class Derivation:
    """The stored derived columns of one table, each expressed by columns of registers alone."""

    def __init__(self, table: Table, columns: frozenset[str]) -> None:
        known: dict[str, str] = {}
        for derived in table.derived:
            known[derived.name] = f"({substitute(derived.sql, known)})"
        self._known = known
        self._columns = columns | {NEWEST}
        self._texts = {derived.name: known[derived.name] for derived in table.derived if derived.stored}
        self._uses = {name: columns & set(_WORD.findall(text)) for name, text in self._texts.items()}
        self._others = dict.fromkeys(columns, "NULL")

    def fresh(self, given: Mapping[str, str]) -> dict[str, str]:
        """The expressions for a new row of which only the `given` columns (and the newest time) have a value."""
        return {name: substitute(text, {**self._others, **given}) for name, text in self._texts.items()}

    def changed(self, given: Mapping[str, str]) -> dict[str, str]:
        """The expressions of those that depend on a `given` column, for a row whose other columns stay."""
        return {name: substitute(text, given) for name, text in self._texts.items() if not self._uses[name].isdisjoint(given)}

    def used_by(self, text: str) -> frozenset[str]:
        """The columns that an expression depends on, through derived ones too."""
        return frozenset(self._columns & set(_WORD.findall(substitute(text, self._known))))

    def of_new(self, text: str, given: Mapping[str, str]) -> str:
        """An expression for a new row of which only the `given` columns have a value."""
        return substitute(substitute(text, self._known), {**self._others, **given})

    def whole(self) -> dict[str, str]:
        """The expressions by the columns of a row as it stands."""
        return dict(self._texts)


def substitute(text: str, values: Mapping[str, str]) -> str:
    """The text with each name replaced by its value; what stands between quotes stays."""
    return _WORD.sub(lambda match: values.get(match[0], match[0]), text)
