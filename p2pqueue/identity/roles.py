"""What may a device of which role do?

One table, from which everything that asks is answered: the link, the merge, the queue, the invitation. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, cast

from p2pqueue.identity.certificate import Role

Right = Literal[
    "read",  # the space's rows
    "enqueue",  # jobs, and retry them
    "cancel",  # jobs, pause and resume them
    "work",  # take jobs and report on them
    "relay",  # rows that others wrote
    "invite",  # further devices
    "revoke",  # devices, or lower their roles
    "certify",  # its certificates count: what it signs belongs to the space
    "space key",  # is given the key that seals files
    "root key",  # is given the key that signs for the space
]

_MEMBER: Final[frozenset[Right]] = frozenset({"read", "enqueue", "cancel", "work", "relay", "space key"})
_ADMIN: Final[frozenset[Right]] = _MEMBER | {"invite", "revoke", "certify", "root key"}

RIGHTS: Final[Mapping[Role, frozenset[Right]]] = MappingProxyType(  # the highest role first
    {
        "owner": _ADMIN,
        "admin": _ADMIN,
        "member": _MEMBER,
        "worker": frozenset({"read", "work", "space key"}),
        "viewer": frozenset({"read", "space key"}),
        "store": frozenset(),
    }
)
ROLES: Final[tuple[Role, ...]] = tuple(RIGHTS)


def allows(role: str, right: Right) -> bool:
    """Says whether a device of that role has that right; a role that isn't known has none."""
    return right in RIGHTS.get(cast(Role, role), ())


def relays(role: str) -> bool:
    """Says whether rows of other authors may be taken from a device of that role."""
    return allows(role, "relay")


def may_give(giver: str, role: str) -> bool:
    """Says whether a device of one role may invite another into that role: none may give more than it has."""
    return allows(giver, "invite") and role in RIGHTS and _rank(role) >= _rank(giver)


def lower(one: str, other: str) -> str:
    """The one of two roles that may do less; a role that isn't known counts as the lowest."""
    return one if _rank(one) >= _rank(other) else other


def _rank(role: str) -> int:
    return ROLES.index(cast(Role, role)) if role in RIGHTS else len(ROLES)
