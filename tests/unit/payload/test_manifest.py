"""A manifest that somebody sent is believed in nothing that can't be true."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue import wire
from p2pqueue.errors import ArgumentError, MalformedMessage
from p2pqueue.payload.capability import Capability
from p2pqueue.payload.format import LARGEST_FILE, MIB, REFERENCE_SIZE, ROOT_LIMIT
from p2pqueue.payload.manifest import Entry, FileManifest, FolderManifest, PartedManifest, chunk_size_of, decode, encode

HASH = blake3(b"").digest()
GIB = 1024 * MIB


def capability(number: int) -> Capability:
    return Capability(1, number.to_bytes(32, "big"), bytes(32), 100)


def file_manifest(size: int, name: str = "clip.mov") -> FileManifest:
    count = -(-size // chunk_size_of(size))
    return FileManifest(name, "video/quicktime", size, HASH, 1, b"\7" * (count * REFERENCE_SIZE))


def told(**changes: Any) -> bytes:
    """The bytes of a manifest of 3 MiB, with some of its values changed; None leaves one out."""
    values: dict[str, Any] = {"v": 1, "kind": "file", "name": "a", "type": "b", "size": 3 * MIB, "hash": HASH, "alg": 1, "chunk": MIB}
    values |= {"shards": bytes(3 * REFERENCE_SIZE)} | changes
    return wire.pack({key: value for key, value in values.items() if value is not None})


@given(st.integers(0, 3000 * MIB), st.text(max_size=80))
def test_a_file_manifest_survives_encoding(size: int, name: str) -> None:
    manifest = file_manifest(size, name)
    assert decode(encode(manifest)) == manifest
    chunks = list(manifest.chunks())
    assert sum(chunk.size for chunk in chunks) == size
    assert [chunk.offset for chunk in chunks] == list(range(0, size, manifest.chunk_size))
    assert all(0 < chunk.size <= manifest.chunk_size for chunk in chunks)


@pytest.mark.parametrize(
    ("size", "chunk_size"),
    [(0, MIB), (GIB, MIB), (GIB + 1, 2 * MIB), (2 * GIB + 1, 4 * MIB), (4 * GIB + 1, 8 * MIB), (LARGEST_FILE, 8 * MIB)],
)
def test_chunks_grow_with_the_file(size: int, chunk_size: int) -> None:
    assert chunk_size_of(size) == chunk_size


def test_a_file_beyond_the_largest_is_refused_in_words() -> None:
    with pytest.raises(ArgumentError, match="16 TiB"):
        chunk_size_of(LARGEST_FILE + 1)


def test_small_files_share_a_chunk() -> None:
    manifest = FileManifest("a", "b", 10, HASH, 1, bytes(REFERENCE_SIZE), shared=1000, skip=990)
    assert decode(encode(manifest)) == manifest
    (chunk,) = manifest.chunks()
    assert (chunk.plain_size, chunk.skip, chunk.size, chunk.offset) == (1000, 990, 10, 0)


def test_a_folder_survives_encoding() -> None:
    folder = FolderManifest("clips", (Entry("a", capability(1), 3), Entry("b", capability(2), 4)))
    assert decode(encode(folder)) == folder
    assert folder.size == 7


def test_a_manifest_too_long_for_one_shard_is_refused_in_words() -> None:
    folder = FolderManifest("clips", tuple(Entry(f"{n}", capability(n), 1) for n in range(4000)))
    with pytest.raises(ArgumentError, match="fewer files"):
        encode(folder)


def test_the_references_of_a_huge_file_come_in_parts() -> None:
    head = FileManifest("huge", "b", LARGEST_FILE, HASH, 1, b"")
    count = head.chunk_count * REFERENCE_SIZE // ROOT_LIMIT
    parted = PartedManifest(head, bytes(count * REFERENCE_SIZE))
    assert decode(encode(parted)) == parted
    assert sum(part.size for part in parted.chunks()) == head.chunk_count * REFERENCE_SIZE
    with pytest.raises(MalformedMessage, match="shards"):
        parted.complete(bytes(REFERENCE_SIZE))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": 10**15}, "'size'"),
        ({"size": 2**64 - 1}, "'size'"),
        ({"size": -1}, "'size'"),
        ({"size": True}, "'size'"),
        ({"size": "3"}, "'size'"),
        ({"size": None}, "'size'"),
        ({"size": 10**9 * MIB, "chunk": MIB}, "'size'"),
        ({"size": 3 * MIB + 1}, "3 shards"),
        ({"shards": b""}, "0 shards"),
        ({"shards": bytes(4 * REFERENCE_SIZE)}, "4 shards"),
        ({"shards": bytes(3 * REFERENCE_SIZE - 1)}, "shards"),
        ({"shards": [1, 2, 3]}, "'shards'"),
        ({"size": 0}, "3 shards"),
        ({"chunk": 1}, "is the rule"),
        ({"chunk": 2**40}, "'chunk'"),
        ({"chunk": 2 * MIB}, "is the rule"),
        ({"alg": 7}, "algorithm 7"),
        ({"hash": b"short"}, "hash"),
        ({"name": "x" * 5000}, "'name'"),
        ({"name": b"bytes"}, "'name'"),
        ({"type": "x" * 300}, "'type'"),
        ({"v": 2}, "upgrade"),
        ({"kind": "symlink"}, "symlink"),
        ({"kind": "folder"}, "entries"),
        ({"kind": "folder", "entries": [["a"]]}, "entry"),
        ({"kind": "folder", "entries": [["a", b"short", 1]]}, "68"),
        ({"kind": "folder", "entries": [["a", capability(1).pack(), -1]]}, "'size'"),
        ({"kind": "folder", "entries": [["a", capability(n).pack(), 1] for n in (1, 2)]}, "twice"),
        ({"shared": True, "size": 10, "chunk": 5, "skip": 0}, "shared"),
        ({"shared": True, "size": 10, "chunk": 2 * MIB, "skip": 0}, "shared"),
        ({"shared": True, "size": 0, "chunk": 5, "skip": 5, "shards": b""}, "empty"),
        ({"shared": True, "size": 10, "chunk": 5, "skip": -1}, "'skip'"),
        ({"parts": bytes(REFERENCE_SIZE - 1)}, "shards"),
        ({"parts": bytes(2 * REFERENCE_SIZE)}, "shards"),
    ],
)
def test_a_claim_that_can_not_be_true_is_refused_in_words(changes: Mapping[str, Any], words: str) -> None:
    with pytest.raises(MalformedMessage, match=words):
        decode(told(**changes))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        wire.pack([1, 2]),
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 10_000,
        b"\xdc\xff\xff" + b"\x90" * 65_535,
        b"\xdd\x00\x03\xff\xf0" + b"\x90" * 262_128,
        bytes(ROOT_LIMIT + 1),
        told()[:-1],
        told() + b"\0",
    ],
    ids=["nothing", "no type", "no map", "array bomb", "map bomb", "bytes bomb", "nesting", "wide", "widest", "long", "cut", "trailing"],
)
def test_bytes_that_are_no_manifest_are_refused_within_bounds(data: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MalformedMessage):
        decode(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB


@given(st.binary(max_size=300))
def test_any_bytes_are_a_manifest_or_refused(data: bytes) -> None:
    try:
        decode(data)
    except MalformedMessage:
        pass
