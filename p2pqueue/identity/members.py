"""Which devices belong to this space, in which role, and which of them may be linked?

What stands in the rows of `devices` and `standings` is read with a plain connection; `Members` keeps it in memory for
the link, which can't wait. A device whose row isn't here yet is taken by its chain of certificates.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from p2pqueue.clock import COUNTER_BITS
from p2pqueue.errors import AmbiguousId, BadSignature, MalformedMessage, NoSuchDevice
from p2pqueue.identity.chain import follow
from p2pqueue.identity.roles import allows, lower

FORGOTTEN = "forgotten/"  # begins the names of rows of `space` that say which devices are left out
SHORTEST_PREFIX = 3  # digits of an id that are taken for one

_DEVICES = "SELECT id, label, role, public_key, certificate FROM devices WHERE public_key IS NOT NULL ORDER BY id"
# A standing counts where the device that it names as its issuer wrote it, by key `changes` (tbl, key, register).
_STANDINGS = """
    SELECT standings.device, standings.issuer, standings.role FROM standings
    JOIN changes ON tbl = 'standings' AND key = standings.id AND register = 'standing' AND verified = 1
    JOIN authors ON authors.author = lower(hex(changes.author)) AND authors.device = standings.issuer
    WHERE standings.id = standings.device || '/' || standings.issuer
"""
_FORGOTTEN = f"SELECT name, value FROM space WHERE name GLOB '{FORGOTTEN}*' AND value IS NOT NULL"
_AUTHORS = "SELECT device, author_author FROM authors WHERE device IS NOT NULL AND lower(hex(author_author)) = author"
_LAST_WRITE = "SELECT abs(hlc) FROM changes INDEXED BY changes_by_author WHERE author = ? ORDER BY seq DESC LIMIT 1"


class Anchor(Protocol):
    """What a chain is followed to: `identity.keys.Identity` is one."""

    @property
    def space_id(self) -> str: ...  # noqa: D102
    @property
    def root_public(self) -> bytes: ...  # noqa: D102
    @property
    def device_id(self) -> str: ...  # noqa: D102
    @property
    def inviter(self) -> tuple[str, str] | None: ...  # noqa: D102


@dataclass(frozen=True)
class Member:
    """A device of the space."""

    device_id: str
    label: str
    role: str  # the lower of what its certificate and its standings say
    public_key: bytes = field(repr=False)
    certificate: bytes | None = field(repr=False, default=None)
    revoked: bool = False
    wrote_at: int | None = None  # milliseconds UTC of the newest of its writes here
    forgotten_at: int | None = None  # when somebody said that it won't come back

    @property
    def hidden(self) -> bool:
        """Says whether it is left out of lists: forgotten, and nothing was heard of it since."""
        return self.forgotten_at is not None and (self.wrote_at or 0) <= self.forgotten_at


@dataclass(frozen=True)
class Refusal:
    """Why a device may not be linked, in words for this device's own log."""

    words: str


def read(connection: sqlite3.Connection) -> tuple[Member, ...]:
    """All members, by their ids; each with what its standings leave of its role."""
    rows = connection.execute(_DEVICES).fetchall()
    roles = {device: str(role) for device, _, role, _, _ in rows}
    standings = [each for each in connection.execute(_STANDINGS).fetchall() if allows(roles.get(each[1], ""), "revoke")]
    forgotten = {name.removeprefix(FORGOTTEN): int.from_bytes(value[:8], "big") for name, value in connection.execute(_FORGOTTEN)}
    wrote = _last_writes(connection)
    found = []
    for device, label, role, key, certificate in rows:
        limits = [limit for named, _, limit in standings if named == device]
        for limit in limits:
            role = role if limit is None else lower(role, limit)
        found.append(Member(device, label or device[:8], role, key, certificate, None in limits, wrote.get(device), forgotten.get(device)))
    return tuple(found)


def find(members: Iterable[Member], typed: str) -> Member:
    """The member with that id, label or beginning of an id. Raises `NoSuchDevice` and `AmbiguousId`."""
    known = list(members)
    for fits in (
        [each for each in known if each.device_id == typed.lower()],
        [each for each in known if each.label == typed],
        [each for each in known if each.label.casefold() == typed.casefold()],
        [each for each in known if len(typed) >= SHORTEST_PREFIX and each.device_id.startswith(typed.lower())],
    ):
        if len(fits) > 1:
            names = ", ".join(f"{each.label} ({each.device_id[:8]})" for each in fits[:5])
            raise AmbiguousId(f"{typed!r} names {len(fits)} devices: {names}; type one's id")
        if fits:
            return fits[0]
    raise NoSuchDevice(f"No device of this space is called {typed!r}; `p2pqueue devices` lists them")


class Members:
    """The members in memory, as the node last read them."""

    def __init__(self, anchor: Anchor, members: Sequence[Member] = ()) -> None:
        self._anchor = anchor
        self._by_id: dict[str, Member] = {}
        self.refresh(members)

    def refresh(self, members: Sequence[Member]) -> None:
        """Takes over what `read` gave, whenever rows of `devices`, `standings` or `space` have changed."""
        self._by_id = {each.device_id: each for each in members}

    def get(self, device_id: str) -> Member | None:
        """A member, None where no row tells of it."""
        return self._by_id.get(device_id)

    def known(self) -> Mapping[str, str]:
        """The labels of all other devices that are worth looking for, by their ids: neither revoked nor forgotten."""
        others = [each for each in self._by_id.values() if each.device_id != self._anchor.device_id]
        found = {each.device_id: each.label for each in others if not (each.revoked or each.hidden)}
        if not others and self._anchor.inviter is not None:  # this device has just joined, and no row came yet
            found.update([self._anchor.inviter])
        return found

    def admit(self, chain: list[bytes]) -> Member | Refusal:
        """The device that a chain of certificates proves, the first its own; or why it may not be linked. Never raises."""
        try:
            certificate = follow(chain, space_id=self._anchor.space_id, root_public=self._anchor.root_public)
        except (BadSignature, MalformedMessage) as error:
            return Refusal(str(error))
        device = certificate.device_id
        if device == self._anchor.device_id:
            return Refusal("it has the key of this device: a copy of its disk? `p2pqueue identity renew` gives one of them a new key")
        known = self._by_id.get(device)
        if known is None:
            return Member(device, "", certificate.role, certificate.public_key, chain[0])
        if known.revoked:
            return Refusal(f"{known.label} ({device[:8]}) was revoked")
        return dataclasses.replace(known, role=lower(known.role, certificate.role))


def _last_writes(connection: sqlite3.Connection) -> dict[str, int]:
    """When each device last wrote something that is here, in milliseconds."""
    wrote: dict[str, int] = {}
    for device, author in connection.execute(_AUTHORS).fetchall():
        row = connection.execute(_LAST_WRITE, (author,)).fetchone()
        if row is not None:
            wrote[device] = max(wrote.get(device, 0), row[0] >> COUNTER_BITS)
    return wrote
