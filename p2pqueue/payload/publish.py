"""How does a manifest become a capability that somebody may be told?

It is sealed into shards of its own, checked as a stranger would check it, and written to the catalogue with what it
needs, in one transaction. Before that nobody knows it; afterwards everything that it names is durable or lies in a
plain file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from p2pqueue.errors import BadShard, MisuseError
from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.format import INLINE_REFERENCES, PART_SIZE, ROOT_LIMIT, TAG_SIZES
from p2pqueue.payload.manifest import FileManifest, FolderManifest, Manifest, PartedManifest, TreeManifest, decode, encode
from p2pqueue.payload.plain import FileIdentity
from p2pqueue.payload.seal import Sealer, Shard

ADD_FILE = """
INSERT INTO files (address, capability, name, size, source, copied, folder, kind, fetched, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (address) DO UPDATE SET
    source = coalesce(excluded.source, source), copied = max(excluded.copied, copied), folder = coalesce(excluded.folder, folder),
    fetched = min(excluded.fetched, fetched), since = excluded.since
"""
ADD_PLAIN = """
INSERT INTO plain (address, source, offset, length, algorithm, key, tag) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET tag = coalesce(tag, excluded.tag)
"""
UNUSE_MISSING = "DELETE FROM uses WHERE root = ? AND address NOT IN (SELECT address FROM stored)"


@dataclass(frozen=True)
class Stored:
    """A file, or several, that can be read by this capability from now on."""

    capability: str
    name: str
    size: int
    by_reference: bool  # served from where it lies
    kind: str = "file"  # or "folder", or "set": several by their names
    left_out: tuple[str, ...] = ()  # of a folder, in words

    def one(self) -> Stored:
        """Itself, if it is a file or a folder. Raises `MisuseError` for several by their names."""
        if self.kind == "set":
            raise MisuseError("This manifest lists several files; take one of them by its name")
        return self


def publish(
    batch: Batch, manifest: FileManifest, space_key: bytes, *, source: FileIdentity | None = None, owned: bool = False,
    tags: bytes | bytearray = b"", also: Callable[[sqlite3.Connection, Capability], None] | None = None,
) -> Stored:  # fmt: skip
    """Ends a batch with the manifest of a file, whose chunks are in the batch, or in the plain file `source`.

    `tags` are those of its sealed chunks, one after the other.
    What `also` writes is written in the same transaction.
    """
    root = seal_manifest(manifest, Sealer(space_key, algorithm=manifest.algorithm, capacity=ROOT_LIMIT), batch.add)

    def finish(connection: sqlite3.Connection) -> None:
        number = None if source is None else _add_source(connection, source, manifest, owned, tags)
        add_file(connection, root, manifest.name, manifest.size, source=number, copied=source is None)
        add_uses(connection, root, batch.addresses)
        if also is not None:
            also(connection, root)

    batch.end(finish, keep=root.address)
    return Stored(root.text, manifest.name, manifest.size, source is not None)


def publish_folder(batch: Batch, manifest: FolderManifest, space_key: bytes, algorithm: int) -> Stored:
    """Ends a batch with a manifest that lists manifests, which may be here or elsewhere."""
    root = seal_manifest(manifest, Sealer(space_key, algorithm=algorithm, capacity=ROOT_LIMIT), batch.add)

    def finish(connection: sqlite3.Connection) -> None:
        add_file(connection, root, manifest.name, manifest.size, copied=True, kind="set")
        add_uses(connection, root, batch.addresses | {entry.capability.address for entry in manifest.entries})

    batch.end(finish, keep=root.address)
    return Stored(root.text, manifest.name, manifest.size, False)


def enter_fetched(
    connection: sqlite3.Connection, root: Capability, manifest: FileManifest, source: FileIdentity, addresses: set[bytes], *,
    tags: bytes | bytearray = b"",
) -> None:  # fmt: skip
    """Enters a file that came from elsewhere and now lies, whole, in a plain file of this home; `addresses` are its manifest's.

    `tags` are those of its chunks, one after the other; nothing but zeros where one isn't known.
    """
    number = _add_source(connection, source, manifest, True, tags)
    add_file(connection, root, manifest.name, manifest.size, source=number, fetched=True)
    add_uses(connection, root, addresses)
    go_on_plain(connection, root)


def enter_folder(connection: sqlite3.Connection, root: Capability, manifest: FolderManifest, addresses: set[bytes]) -> None:
    """Enters a manifest of manifests that came from elsewhere."""
    add_file(connection, root, manifest.name, manifest.size, copied=True, kind="set", fetched=True)
    add_uses(connection, root, addresses | {entry.capability.address for entry in manifest.entries})


def go_on_plain(connection: sqlite3.Connection, root: Capability) -> None:
    """What lies whole in the plain from now on doesn't need sealed shards any more that were damaged and dropped."""
    if connection.execute(UNUSE_MISSING, (root.address,)).rowcount:
        connection.execute("UPDATE files SET copied = 0 WHERE address = ?", (root.address,))


def add_file(
    connection: sqlite3.Connection, root: Capability, name: str, size: int, *, source: int | None = None, copied: bool = False,
    folder: int | None = None, kind: str = "file", fetched: bool = False,
) -> None:  # fmt: skip
    """Enters what a capability stands for, or what is new of it."""
    values = (root.address, root.text, name, size, source, copied, folder, kind, fetched, time.time())
    connection.execute(ADD_FILE, values)


def seal_manifest(manifest: FileManifest | FolderManifest | TreeManifest, sealer: Sealer, add: Callable[[Shard], None]) -> Capability:
    """Seals a manifest into shards, which go to `add`, and gives the capability to read it."""
    whole: Manifest = manifest
    if isinstance(manifest, FileManifest) and len(manifest.references) > INLINE_REFERENCES:
        parts = bytearray()
        for start in range(0, len(manifest.references), PART_SIZE):
            shard = sealer.seal(manifest.references[start : start + PART_SIZE])
            parts += shard.address + shard.key
            add(shard)
        whole = PartedManifest(replace(manifest, references=b""), bytes(parts))
    data = encode(whole)
    if decode(data) != whole:
        raise BadShard("A manifest that was just made doesn't pass its own check; nothing was published")
    root = sealer.seal(data)
    add(root)
    return Capability(sealer.algorithm, root.address, root.key, len(data))


def _add_source(
    connection: sqlite3.Connection, source: FileIdentity, manifest: FileManifest, owned: bool, tags: bytes | bytearray
) -> int:  # fmt: skip
    path = os.fsencode(source.path)
    row = connection.execute(
        "SELECT id FROM sources WHERE path = ? AND marks = ?",  # sources_path
        (path, source.marks),
    ).fetchone()
    number: int | None = row[0] if row is not None else None
    if number is None:
        values = (path, source.marks, str(source.device), owned)
        number = connection.execute("INSERT INTO sources (path, marks, device, owned) VALUES (?, ?, ?, ?)", values).lastrowid
        assert number is not None
    size = TAG_SIZES.get(manifest.algorithm, 0)
    found = (tags[size * place : size * (place + 1)] for place in range(manifest.chunk_count))
    rows = (
        (chunk.address, number, chunk.offset, chunk.size, manifest.algorithm, chunk.key, bytes(tag) if any(tag) else None)
        for chunk, tag in zip(manifest.chunks(), found, strict=True)
    )
    connection.executemany(ADD_PLAIN, rows)
    return number


def add_uses(connection: sqlite3.Connection, root: Capability, addresses: set[bytes]) -> None:
    """Enters which shards and manifests a manifest needs here."""
    connection.executemany("INSERT INTO uses VALUES (?, ?) ON CONFLICT DO NOTHING", ((root.address, address) for address in addresses))
