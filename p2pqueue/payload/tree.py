"""What does a page of a folder's manifest list, and which pages are refused?

A page is a list of three: the references of its shared chunks, the sizes of those, and its entries. An entry is the
manifest of one file, cut down to what its folder doesn't say already: path, kind, size, hash of the content, and where
that is, which is one of

- the number of a shared chunk and how many bytes of it come before: thousands of small files lie in few chunks;
- the references of chunks of its own, cut by the rule for files;
- the capability of a manifest of its own, where there are too many of those.

An empty folder is an entry too; all others are known by what lies in them. Entries stand in the order of the
components of their paths, so that none stands twice and no file is a folder at once. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from p2pqueue import wire
from p2pqueue.errors import ArgumentError, MalformedMessage
from p2pqueue.payload.capability import PACKED_SIZE
from p2pqueue.payload.format import ADDRESS_SIZE, LARGEST_FILE, MIB, REFERENCE_SIZE, ROOT_LIMIT
from p2pqueue.payload.manifest import NAME_LIMIT, chunk_size_of

PAGE_SIZE: Final = ROOT_LIMIT * 5 // 8  # bytes from which a page is full; one entry more always fits
PACKED_LIMIT: Final = 256 * 1024  # bytes of the largest file that shares a chunk
SHARED_LIMIT: Final = MIB  # bytes of a shared chunk
MOST_REFERENCES: Final = 1024  # of one file on a page
DEEPEST: Final = 256  # folders in one another

FOLDER: Final = 0
FILE: Final = 1
EXECUTABLE: Final = 3

_NO_NAMES: Final = frozenset({"", ".", ".."})


class Entry(NamedTuple):
    """A file, or an empty folder, by its path below the folder that is listed. `where` is as the page has it."""

    path: str
    kind: int
    size: int = 0
    content: bytes = b""  # BLAKE3 of the whole
    where: int | bytes = b""
    skip: int = 0


class Page(NamedTuple):
    """Some of the entries of a folder, and the chunks that they share."""

    references: bytes
    sizes: Sequence[int]
    entries: Sequence[Entry]


def encode_page(references: bytes, sizes: list[int], entries: list[list[Any]]) -> bytes:
    """The bytes of a page, whose entries are lists of the values of an `Entry`: of two for a folder, of six for a file."""
    page: bytes = msgpack.packb([references, sizes, entries])  # lists, numbers, texts and bytes have one form
    if len(page) > ROOT_LIMIT:
        raise ArgumentError(f"A page of a folder has {len(page)} bytes; at most {ROOT_LIMIT} fit")
    return page


def decode_page(data: bytes | memoryview) -> Page:
    """The page of these bytes. Raises `MalformedMessage` for any claim that can't be true."""
    told = wire.unpack(data, limit=ROOT_LIMIT, nesting=None)  # every value is looked at below
    if not (type(told) is list and len(told) == 3 and type(told[0]) is bytes and type(told[1]) is list and type(told[2]) is list):
        raise MalformedMessage("A page of a folder is no list of chunks and entries")
    references, sizes, listed = told
    if len(references) != len(sizes) * REFERENCE_SIZE:
        raise MalformedMessage("A page of a folder has other chunks than sizes of them")
    if not all(type(size) is int and 0 < size <= SHARED_LIMIT for size in sizes):
        raise MalformedMessage(f"A page of a folder has a shared chunk that is empty or larger than {SHARED_LIMIT} bytes")
    entries = [_entry(item, sizes) for item in listed]
    if len({entry.where for entry in entries if type(entry.where) is int}) != len(sizes):
        raise MalformedMessage("A page of a folder has a shared chunk in which nothing lies")
    return Page(references, sizes, entries)


def components(path: str) -> list[str]:
    """The names that a path is made of. Raises `MalformedMessage` for one that leads elsewhere than down."""
    names = path.split("/")
    if not _NO_NAMES.isdisjoint(names) or "\0" in path:
        raise MalformedMessage(f"A folder lists the path {path[:80]!r}, which is none below it")
    if len(names) > DEEPEST or len(path) > NAME_LIMIT * 2:
        raise MalformedMessage(f"A folder lists a path that is longer than {NAME_LIMIT * 2} characters or {DEEPEST} folders deep")
    return names


def _entry(told: Any, sizes: Sequence[int]) -> Entry:
    if type(told) is not list or len(told) not in (2, 6) or type(told[0]) is not str:
        raise MalformedMessage("A folder lists something that has no name, kind and content; ask whoever shared it to share it again")
    if len(told) == 2:
        if told[1] != FOLDER:
            raise MalformedMessage(f"A folder lists {told[0][:80]!r}, which is neither a file nor a folder")
        return Entry(told[0], FOLDER)
    _, kind, size, content, where, skip = told
    if kind not in (FILE, EXECUTABLE) or type(size) is not int or not 0 <= size <= LARGEST_FILE or type(skip) is not int:
        raise MalformedMessage(f"A folder lists the file {told[0][:80]!r} with an impossible kind or size")
    if type(content) is not bytes or len(content) != ADDRESS_SIZE:
        raise MalformedMessage(f"A folder lists the file {told[0][:80]!r} without a proper hash of its content")
    if type(where) is int:
        if not (0 <= where < len(sizes) and skip >= 0 and size > 0 and skip + size <= sizes[where]):
            raise MalformedMessage(f"A folder finds {size} bytes of {told[0][:80]!r} where no shared chunk has them")
    elif type(where) is not bytes:
        raise MalformedMessage(f"A folder doesn't say where the content of {told[0][:80]!r} is")
    elif len(where) != PACKED_SIZE and len(where) != -(-size // chunk_size_of(size)) * REFERENCE_SIZE:
        raise MalformedMessage(f"A folder lists other chunks than {size} bytes of {told[0][:80]!r} have")
    return Entry(*told)
