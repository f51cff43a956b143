"""Which tables does every replica have, whatever it is used for?

They say who writes here: devices and their certificates, the authors that each device has written under, and
what the space has settled. Pure.
"""

from __future__ import annotations

from p2pqueue.replica.tables import Column, Register, Table

AUTHORS = Table(
    "authors",
    "author",  # 32 hexadecimal digits
    (
        Register("author", (Column("device", "TEXT"),), signed=True, creating=True, kept=("generation", "author")),
        Register("closed", (Column("last", "INTEGER", "closed_last"),), signed=True),
    ),
)
DEVICES = Table(
    "devices",
    "id",
    (
        Register(
            "cert",
            (
                Column("key", "BLOB", "public_key"),
                Column("role", "TEXT"),
                Column("issuer", "TEXT"),  # device id of the key that signed it
                Column("certificate", "BLOB"),
            ),
            signed=True,
            creating=True,
        ),
        Register("about", (Column("label", "TEXT"),)),
    ),
)
STANDINGS = Table(
    "standings",
    "id",  # "<device>/<issuer>"
    (
        Register(
            "standing",
            (
                Column("device", "TEXT"),
                Column("issuer", "TEXT"),
                Column("role", "TEXT"),  # at most this one; null: revoked
                Column("last", "BLOB", "last_numbers"),  # MessagePack: a map of author to the last number that counts
            ),
            signed=True,
            creating=True,
        ),
    ),
)
SPACE = Table(
    "space",
    "name",
    (
        Register("setting", (Column("value", "BLOB"),), signed=True, creating=True),
        Register("secret", (Column("generation", "INTEGER", "key_generation"), Column("sealed", "BLOB")), signed=True),
    ),
)
KEYS = Table(
    "keys",
    "id",
    (
        Register("key", (Column("name", "TEXT"), Column("hash", "BLOB")), signed=True, creating=True),
        Register("revoked", (Column("revoked", "INTEGER"),), signed=True),
    ),
)

SYSTEM_TABLES = (DEVICES, AUTHORS, STANDINGS, SPACE, KEYS)
SYSTEM_NAMES = frozenset(table.name for table in SYSTEM_TABLES)
ALWAYS_VERIFIED = frozenset({("devices", "cert"), ("standings", "standing")})
