"""What passes between replicas: one register's write, and how far an author's writes are counted. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from p2pqueue.replica.stamp import Stamp


class Head(NamedTuple):
    """The last counted number of an author, and the tag of the commit that it ends."""

    seq: int
    tag: bytes


class Write(NamedTuple):
    """One write of one register.

    `values` stand in the declared order of the register's columns. A signed write carries the signed `body`
    and its `signature`; a write of a register that this version doesn't know carries its packed values as
    `body` alone, and `values` is empty. `checked`: whoever took it in has read it
    from the body and found that the signature fits that.
    """

    table: str
    key: str
    register: str
    stamp: Stamp
    seq: int
    values: tuple[Any, ...]
    body: bytes | None = None
    signature: bytes | None = None
    checked: bool = False
