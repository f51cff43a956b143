"""Is what lies at a place exactly the content of a manifest? By its size first, then by its hash."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Final

from blake3 import blake3

from p2pqueue.errors import P2PQueueError
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.format import TAG_SIZES
from p2pqueue.payload.kinds import single
from p2pqueue.payload.layout import Layout
from p2pqueue.payload.manifest import TreeManifest
from p2pqueue.payload.memory import pages
from p2pqueue.payload.reading import Reader
from p2pqueue.payload.seal import address_of, seal_into
from p2pqueue.payload.unpacking import local_paths

PIECE: Final = 1024 * 1024  # bytes that are read at once

Progress = Callable[[int, int], object]


def is_at(reader: Reader, root: Capability, place: Path, on_progress: Progress = lambda done, size: None) -> bool:
    """Says whether a file or folder, whose manifest is here, lies at a place. Raises as `Reader.manifest` does."""
    manifest = reader.manifest(root)
    if isinstance(manifest, TreeManifest):
        return place.is_dir() and holds_folder(place, reader.layout(manifest), on_progress)
    whole = single(manifest)
    return holds_file(place, whole.size, whole.content, on_progress)


def holds_file(path: Path, size: int, content: bytes, on_progress: Progress = lambda done, size: None) -> bool:
    """Says whether a regular file has that content."""
    try:
        if not path.is_file() or path.stat().st_size != size:
            return False
        whole, done = blake3(), 0
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                whole.update(piece)
                done += len(piece)
                on_progress(min(done, size), size)
    except OSError:
        return False
    return done == size and whole.digest() == content


def holds_folder(base: Path, layout: Layout, on_progress: Progress = lambda done, size: None) -> bool:
    """Says whether a folder has those files with that content, and no others."""
    try:
        if not base.is_dir():
            return False
        there = sorted(_files_below(base))
        tried = (local_paths(base, layout, folding=folding) for folding in (False, True))  # a look leaves no trace there
        paths = next((paths for paths in tried if sorted(paths) == there), None)
        if paths is None:
            return False
        if any(os.path.getsize(path) != size for path, size in zip(paths, layout.sizes, strict=True)):
            return False
        return _has_chunks(paths, layout, on_progress)
    except (OSError, P2PQueueError):
        return False


def _has_chunks(paths: list[str], layout: Layout, on_progress: Progress) -> bool:
    """Seals each chunk as its manifest says: no other content has the same address."""
    tag, done = TAG_SIZES[layout.algorithm], 0
    plain, sealed = pages(layout.chunk_size), pages(layout.chunk_size + tag)
    for number in range(layout.chunk_count):
        chunk = layout.chunk(number)
        if not _fill(plain, paths, layout, number):
            return False
        made = sealed[: chunk.plain_size + tag]
        seal_into(layout.algorithm, chunk.key, plain[: chunk.plain_size], made)
        if address_of(made) != chunk.address:
            return False
        done += chunk.plain_size
        on_progress(done, layout.size)
    return True


def _fill(plain: memoryview, paths: list[str], layout: Layout, number: int) -> bool:
    """Reads a chunk from the files that hold it; False where two that should hold the same don't."""
    end = 0
    for file, offset, skip, size in sorted(layout.places(number), key=itemgetter(2)):
        with open(paths[file], "rb") as source:
            source.seek(offset)
            data = source.read(size)
        if skip == end:
            plain[skip : skip + len(data)] = data
            end += len(data)
        elif data != plain[skip : skip + size]:
            return False
    return end == layout.chunk(number).plain_size


def _files_below(base: Path) -> list[str]:
    return [os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names]
