"""In which form do values enter a register?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from p2pqueue.errors import ArgumentError
from p2pqueue.replica.statements import Shape


def in_order(shape: Shape, register: str, values: Any) -> tuple[Any, ...]:
    """The values of a register in declared order, in the form in which they will be read back.

    SQLite keeps 1 in a REAL column as 1.0 and True as 1; what is signed and compared must say the same.
    """
    names = shape.names.get(register)
    if names is None:
        raise ArgumentError(f"the table {shape.name} has no register {register!r}")
    if isinstance(values, Mapping):
        unknown = values.keys() - set(names)
        if unknown:
            raise ArgumentError(f"the register {shape.name}.{register} has no column {sorted(unknown)[0]!r}")
        values = tuple(map(values.get, names))
    elif len(values) != len(names):
        raise ArgumentError(f"the register {shape.name}.{register} has {len(names)} columns, not {len(values)}")
    for index, kind in shape.numeric[register]:
        value = values[index]
        if value is not None and type(value) is not kind and isinstance(value, int):
            values = (*values[:index], kind(value), *values[index + 1 :])
    return tuple(values)
