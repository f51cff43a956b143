"""What can be done with the files of this device: take in, find, read, hand on, free?

A `Shelf` puts the parts of this room together. It may be used by any thread, and by the node, programs, the command
line and child processes at once. Nothing here waits for a network.
"""

from __future__ import annotations

import io
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from p2pqueue.errors import DiskFull, MalformedMessage, PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload import exporting, handing, holdings, inventory, outputs, saving
from p2pqueue.payload.batch import Batch
from p2pqueue.payload.capability import Capability, parse_capability
from p2pqueue.payload.catalogue import Catalogue
from p2pqueue.payload.expected import Claim
from p2pqueue.payload.fetching.folder_landing import FolderLanding
from p2pqueue.payload.fetching.landing import Landing, sweep_landings
from p2pqueue.payload.fetching.room import claim_room, half_fetched
from p2pqueue.payload.folders import Folders
from p2pqueue.payload.holdings import Usage
from p2pqueue.payload.ingest import Ingest, IngestStopped, seal_bytes, seal_file
from p2pqueue.payload.inventory import Damage, Held
from p2pqueue.payload.kinds import kind_of, label_of, single
from p2pqueue.payload.layout import Layout
from p2pqueue.payload.manifest import Entry, FileManifest, FolderManifest, TreeManifest
from p2pqueue.payload.names import wellformed_name
from p2pqueue.payload.original import look_at
from p2pqueue.payload.plain import FileIdentity, absolute, check_readable, default_name, open_plain, settle
from p2pqueue.payload.publish import Stored, publish, publish_folder
from p2pqueue.payload.reading import Reader
from p2pqueue.payload.scan import is_folder, scan
from p2pqueue.payload.seal import preferred_algorithm
from p2pqueue.payload.store import ShardStore
from p2pqueue.payload.supply import Checks, Supply
from p2pqueue.payload.sweep import clear_leftovers, sweep

__all__ = ["COPY_LIMIT", "IngestStopped", "Shelf", "Stored", "Usage", "check_readable"]

Progress = Callable[[int, int], None]  # bytes done, bytes in all

COPY_LIMIT: Final = 64 * 1024**2  # bytes: smaller files are copied when they are taken in, larger ones stay where they lie


class Shelf:
    """The files of one home.

    :param quota: and `reserve` are in bytes; without them the disk decides (page settings).
    :param bring: fetches a file that is not here, before it is read; without it that is an error.
    """

    def __init__(
        self, home: Home, space_key: bytes, *, quota: int = 0, reserve: int | None = None, algorithm: int | None = None,
        bring: Callable[[str], object] | None = None,
    ) -> None:  # fmt: skip
        self.home = home
        self._space_key = space_key
        self._algorithm = algorithm
        self._bring = bring
        self._outputs = home.path / "outputs"
        self._landings = home.path / "landings"
        self._catalogue = Catalogue(home.shelf_file)
        self._store = ShardStore(home.shards_dir, self._catalogue, quota=quota, reserve=reserve, plain=self._plain_size)
        self.expected = self._store.expected
        self.make_room: Callable[[], Awaitable[object]] | None = None  # frees what nothing needs; a node says how
        self._folders = Folders(self._store, self._catalogue, space_key)
        self._checks = Checks()

    def ingest(
        self,
        path: str | os.PathLike[str],
        *,
        copy: bool | None = None,
        name: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
        threads: int | None = None,
    ) -> Stored:
        """Takes a file or folder in: sealed into the store, or, from 64 MiB or with `copy=False`, read once and left where it lies.

        What is unchanged since it was taken in last isn't read again. `on_progress` is told the bytes done and the bytes
        in all; `stop` is asked before each chunk. On return everything is durable. Raises `InputUnreadable`,
        `InputChanged` (try again), `DiskFull`, `IngestStopped`.
        """
        ingest = Ingest(self._space_key, self._algorithm, threads, on_progress, stop)
        if is_folder(path):
            found = scan(path)
            called = wellformed_name(name if name is not None else default_name(found.base) or "folder")
            stored = self._folders.take_in(found, called, ingest, copying=found.size < COPY_LIMIT if copy is None else copy)
            return replace(stored, left_out=tuple(found.left_out))
        file, identity = open_plain(path)
        called = name if name is not None else default_name(identity.path)
        with file:
            copying = identity.size < COPY_LIMIT if copy is None else copy
            return self._copy(file, identity, called, ingest) if copying else self._refer(file, identity, called, ingest)

    def ingest_bytes(self, data: bytes | memoryview, name: str) -> Stored:
        """Takes in content that lies in memory."""
        self._store.check_room(len(data))
        with Batch(self._store, self._catalogue) as batch:
            return publish(batch, seal_bytes(data, name, Ingest(self._space_key, self._algorithm), batch.add), self._space_key)

    def adopt(self, path: str | os.PathLike[str], name: str | None = None, *, workdir: Path | None = None) -> Stored:
        """Takes in an output whose folder will be removed: small ones are copied, large ones in `workdir` moved into the home."""
        named = name if name is not None else default_name(absolute(path))
        real = Path(os.path.realpath(absolute(path)))
        size = look_at(real).size
        ours, ingest = outputs.lies_within(real, workdir or self.home.work_dir), Ingest(self._space_key, self._algorithm)
        movable = ours and outputs.can_be_moved(real)
        if size < COPY_LIMIT or not movable:
            try:
                return self.ingest(real, name=named, copy=None if movable or not ours else True)
            except DiskFull:
                if not movable:
                    raise  # moving takes no more room than it has already: the work of a job isn't lost for a quota
        with outputs.moved(real, self._outputs, named, check_room=self._store.check_room) as target:
            if target.is_dir():
                return self._folders.take_in(scan(target), wellformed_name(named), ingest, copying=False, owned=True)
            file, identity = open_plain(target)
            with file:
                return self._refer(file, identity, named, ingest, owned=True)

    def bundle(self, files: Mapping[str, str]) -> str:
        """The capability of a manifest that lists the given capabilities by their names."""
        capabilities = {name: parse_capability(text) for name, text in files.items()}
        with self.reader() as reader:
            entries = tuple(Entry(wellformed_name(n), c, reader.manifest(c).size) for n, c in sorted(capabilities.items()))
        with Batch(self._store, self._catalogue, limited=False) as batch:
            algorithm = self._algorithm or preferred_algorithm()
            return publish_folder(batch, FolderManifest("", entries), self._space_key, algorithm).capability

    def unbundle(self, capability: str) -> dict[str, Stored]:
        """What a manifest of several names, by its names; a single file or folder under its own name."""
        manifest = self._manifest(capability)
        if isinstance(manifest, FolderManifest):
            return {entry.name: Stored(entry.capability.text, entry.name, entry.size, False) for entry in manifest.entries}
        return {manifest.name: Stored(capability, manifest.name, manifest.size, False, kind_of(manifest))}

    def describe(self, capability: str) -> FileManifest:
        """The manifest of one file. Raises `PayloadUnavailable`, `BadShard`, `MalformedMessage`; `MisuseError` for several."""
        return single(self._manifest(capability))

    def identify(self, capability: str) -> Stored:
        """Name, size and kind of what a capability stands for. Raises as `describe` does, but not for several."""
        manifest = self._manifest(capability)
        return Stored(parse_capability(capability).text, manifest.name, manifest.size, False, kind_of(manifest))

    def holds(self, capability: str) -> bool:
        """Says whether this device can give the whole content, by what its catalogue and the files' marks tell."""
        return holdings.holds(self._catalogue, parse_capability(capability))

    def locate(self, capability: str) -> Path | None:
        """A plain file that holds the content and is, by its marks, unchanged; None where there is none."""
        return holdings.locate(self._catalogue, parse_capability(capability))

    def open(self, capability: str) -> Iterator[bytes]:
        """The content in pieces of up to 1 MiB, each checked before it is given.

        Raises `PayloadUnavailable` naming the shard that is missing or damaged, and `InputChanged`.
        """
        self._have(capability)
        with self.reader() as reader:
            manifest = single(reader.manifest(parse_capability(capability)))
            for piece in reader.pieces(manifest, label_of(manifest)):
                yield bytes(piece)

    def fetch_to(
        self, capability: str, path: str | os.PathLike[str], *, private: bool = False, on_progress: Progress | None = None
    ) -> Path:  # fmt: skip
        """Writes a file or folder to a path, or into a folder under its own name; whole and checked, or not at all."""
        self._have(capability)
        with self.reader() as reader:
            manifest = reader.manifest(parse_capability(capability))
            if isinstance(manifest, TreeManifest):
                target = saving.folder_of(path, manifest.name)
                self._store.check_disk(manifest.size)
                exporting.export_folder(reader, manifest, target, private=private, on_progress=on_progress)
                return target
            manifest = single(manifest)
            target = saving.target_of(path, manifest.name)
            pieces = reader.pieces(manifest, label_of(manifest))
            saving.save(pieces, target, content=manifest.content, mode=0o600 if private else 0o666)
        return target

    def hand_over(self, capability: str, path: str | os.PathLike[str], on_progress: Progress | None = None) -> Path | None:
        """Brings what was fetched into this home to where `fetch_to` would write it, and serves it on from there.

        None where it doesn't lie in the home, or lies there for somebody else too.
        """
        root = parse_capability(capability)
        place = handing.own_place(self._catalogue, root)
        if place is None:
            return None
        stored = self.identify(capability)
        target = saving.folder_of(path, stored.name) if stored.kind == "folder" else saving.target_of(path, stored.name)
        if not handing.move(self._catalogue, root, place, target):
            if handing.own_place(self._catalogue, root) != place:
                return None  # another process had it moved
            self.fetch_to(capability, target, on_progress=on_progress)
            handing.settle_at(self._catalogue, place, target)
        return target

    def addresses(self, capability: str) -> list[bytes]:
        """The shards of a file, its manifest's first shard the last. Raises `PayloadUnavailable` where its manifest isn't here."""
        with self.reader() as reader:
            return list(reader.addresses(parse_capability(capability)))

    def shard(self, address: bytes) -> bytes:
        """A sealed shard for another device, its address checked. Raises `PayloadUnavailable` and `InputChanged`."""
        with self.reader() as reader:
            return reader.sealed(address)

    def supply(self) -> Supply:
        """What one thread gives shards to other devices from, without copying them about. A context."""
        return Supply(self._store, self._catalogue, self._space_key, self._checks)

    def check_room_for(self, size: int) -> None:
        """Raises `DiskFull` where the disk could never take so many bytes, whatever is freed of what is half fetched."""
        self._store.check_fetched(size - half_fetched(self._landings))

    def claim(self, root: Capability, content: FileManifest | Layout) -> Claim | None:
        """Speaks for the room that a fetch still needs; None where it must wait for others. Raises `DiskFull`."""
        size = content.size if isinstance(content, FileManifest) else content.content_size
        return claim_room(self._store, self._landings, root, size)

    def check_reserve(self) -> None:
        """Raises `DiskFull` where less is left of disk or quota than may be, since others have written to it."""
        self._store.check_fetched(0)

    def batch(self) -> Batch:
        """A batch to which shards that come from elsewhere are added."""
        return Batch(self._store, self._catalogue)

    def landing(self, root: Capability, content: FileManifest | Layout) -> Landing | FolderLanding:
        """Where a file or folder that comes from elsewhere is written, with what came of it before."""
        if isinstance(content, FileManifest):
            return Landing(self._landings, self._outputs, root, content)
        return FolderLanding(self._landings, self._outputs, root, content)

    def clear_leftovers(self) -> int:
        """Removes what killed processes left, half-done files too that nobody has fetched for days; for a node that begins."""
        return clear_leftovers(self._catalogue, self._store, self._outputs) + self.sweep_landings()

    def sweep_landings(self) -> int:
        """Removes half-done files that nobody has fetched for days; tells the bytes freed."""
        return sweep_landings(self._landings)

    def remove(self, capability: str) -> int:
        """Forgets a file, unless several files name it as one of theirs, and tells how many bytes that freed."""
        root = parse_capability(capability)
        freed = self._catalogue.free(lambda connection: holdings.remove(connection, self._store, root))
        self._catalogue.compact()
        return freed

    def sweep(self, live: Iterable[str]) -> int:
        """Frees what neither these capabilities nor anything in the making needs, and tells how many bytes that freed.

        What was taken in within the last hour stays, so that a job's row may be written after its files. Rows may come
        from elsewhere: a text that is no capability names nothing here and is passed over.
        """
        return sweep(self._catalogue, self._store, self._outputs, _addresses(live)) + self.sweep_landings()

    def inventory(self) -> list[Held]:
        """All files and folders of which this device knows, the oldest first."""
        return inventory.inventory(self._catalogue)

    def check(self, held: Held, on_bytes: Callable[[int], object] = lambda size: None) -> Damage | None:
        """Reads all that lies here of a file, and says what is wrong with it; `on_bytes` is told the bytes read."""
        with self.reader() as reader:
            return inventory.check(self._catalogue, self._store, reader, held, on_bytes)

    def drop_rotten(self, capability: str) -> None:
        """Forgets a plain file that is damaged, so that a sound one is fetched; one of the user's own stays where it is."""
        inventory.drop_rotten(self._catalogue, parse_capability(capability))

    def verify(self) -> list[bytes]:
        """Reads every stored shard, drops those that are damaged, and gives their addresses."""
        return self._store.verify()

    def usage(self) -> Usage:
        """What the shelf takes now."""
        return holdings.usage(self._catalogue, self._store)

    def close(self) -> None:
        """Closes the database; a later call opens it again."""
        self._catalogue.close()

    def _copy(self, file: io.FileIO, identity: FileIdentity, name: str, ingest: Ingest) -> Stored:
        known = holdings.find_known(self._catalogue, identity, name, copied=True)
        if known is not None and self._is_sound(known.capability):
            return known
        settle(identity)
        self._store.check_room(identity.size)
        with Batch(self._store, self._catalogue) as batch:
            manifest = seal_file(file, identity, name, ingest, batch.add)
            return publish(batch, manifest, self._space_key, also=lambda c, root: holdings.remember_copy(c, identity, root, manifest.name))

    def _refer(self, file: io.FileIO, identity: FileIdentity, name: str, ingest: Ingest, *, owned: bool = False) -> Stored:
        known = holdings.find_known(self._catalogue, identity, name)
        if known is not None and self._is_sound(known.capability):
            return known
        settle(identity)
        with Batch(self._store, self._catalogue, limited=False) as batch:
            tags = bytearray()
            manifest = seal_file(file, identity, name, ingest, lambda shard: tags.extend(shard.tag))
            return publish(batch, manifest, self._space_key, source=identity, owned=owned, tags=tags)

    def _plain_size(self) -> int:
        return holdings.plain_size(self._catalogue) + half_fetched(self._landings)

    def _is_sound(self, capability: str) -> bool:
        return holdings.is_sound(self._catalogue, self._store, parse_capability(capability))

    def _manifest(self, capability: str) -> FileManifest | FolderManifest | TreeManifest:
        root = parse_capability(capability)
        with self.reader() as reader:
            try:
                return reader.manifest(root)
            except PayloadUnavailable:
                if self._bring is None:
                    raise
            self._bring(capability)
            return reader.manifest(root)

    def _have(self, capability: str) -> None:
        if self._bring is None or self.holds(capability):
            return
        try:
            self._bring(capability)
        except PayloadUnavailable:
            if not holdings.is_known(self._catalogue, parse_capability(capability)):
                raise  # else reading it tells what became of it here

    def reader(self) -> Reader:
        """What one thread reads chunks and manifests by. A context."""
        return Reader(self._store, self._catalogue, self._space_key)


def _addresses(capabilities: Iterable[str]) -> Iterator[bytes]:
    for text in capabilities:
        try:
            yield parse_capability(text).address
        except MalformedMessage:
            continue
