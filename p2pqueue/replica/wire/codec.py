"""How does a message between replicas look on the wire?

A MessagePack map of short keys with its kind under "k". Unknown kinds decode to None and unknown keys are
ignored, so that a newer peer may say more. Every list, text and number has its limit. Many writes may travel deflated,
to a peer that says it inflates them: a third of the bytes, and sealing and carrying them costs more than that. Pure.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from p2pqueue import wire
from p2pqueue.errors import MalformedMessage
from p2pqueue.replica.spans import Spans, from_run_lengths, run_lengths
from p2pqueue.replica.syncing.messages import (
    BUCKETS,
    HASH_BYTES,
    HELD_BYTES,
    MAX_AUTHORS,
    MAX_MARKS,
    MAX_ROWS,
    MAX_RUNS,
    MAX_TABLES,
    MAX_WRITES,
    Ack,
    Again,
    Bucket,
    Digest,
    Done,
    Ended,
    Heads,
    Mend,
    Message,
    More,
    Refusal,
    Refused,
    RoundId,
    RowId,
    Rows,
    Writes,
)
from p2pqueue.replica.wire.checks import KEY_LIMIT, NAME_LIMIT
from p2pqueue.replica.wire.fields import read_bytes, read_list, read_number, read_text
from p2pqueue.replica.wire.parcel import pack_together, pack_writes, unpack_writes
from p2pqueue.replica.wire.row_parcel import Holds
from p2pqueue.replica.write import Head

REASON_LIMIT = 200  # characters of a reason
DEFLATED_FROM = 40  # writes in a message from which on it is worth it
_LEVEL = 1  # higher ones take longer, and save no more
_INFLATES = 2  # told by who takes many writes as they are packed today

Fields = Mapping[str, Any]


def encode(message: Message, *, deflate: bool = False) -> bytes:
    """The wire form of a message; `deflate`: the peer inflates writes."""
    kind, encoder = _ENCODERS[type(message)]
    fields = _encode_many(message) if deflate and isinstance(message, Writes) and is_large(message) else encoder(message)
    packed: bytes = msgpack.packb({"k": kind, **fields}, use_bin_type=True)
    return packed


def is_large(message: Message) -> bool:
    """Says whether a message holds so many writes that packing it takes a while."""
    return isinstance(message, Writes) and len(message.writes) >= DEFLATED_FROM


def decode(data: bytes | memoryview, *, holds: Holds | None = None) -> Message | None:
    """The message that these bytes stand for, None for a kind that this version doesn't know.

    `holds` checks the signatures in messages of writes. Raises `MalformedMessage` for anything else that isn't one.
    """
    fields = wire.unpack(data, nesting=None)
    if not isinstance(fields, dict) or not isinstance(fields.get("k"), str):
        raise MalformedMessage("not a map with a kind")
    decoder = _DECODERS.get(fields["k"])
    if decoder is None:
        return None
    try:
        return _decode_writes(fields, holds) if decoder is _decode_writes else decoder(fields)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise MalformedMessage(f"a {fields['k']!r} message that isn't one: {type(error).__name__} {error}") from error


# --- each kind, out and in --------------------------------------------------------------------------------------


def _encode_heads(message: Heads) -> Fields:
    heads, held = _pack_heads(message.heads), _pack_held(message)
    return {"r": message.round, "y": message.serving, "h": heads, "n": held, "m": message.marks, "z": message.inflates and _INFLATES}


def _decode_heads(fields: Fields) -> Heads:
    heads = _heads(fields["h"])
    serving = None if fields.get("y") is None else _round(fields["y"])
    held, marks = _held(fields.get("n", []), heads), _marks(fields.get("m", {}))
    return Heads(_round(fields["r"]), serving, heads, held, marks, fields.get("z") == _INFLATES)


def _encode_writes(message: Writes) -> Fields:
    authors, writes = pack_writes(message.writes)
    return {"r": message.round, "s": message.session, "i": message.index, "a": authors, "w": writes}


def _encode_many(message: Writes) -> Fields:
    """Column by column, and deflated."""
    return {
        "r": message.round,
        "s": message.session,
        "i": message.index,
        "z": zlib.compress(msgpack.packb(pack_together(message.writes)), _LEVEL),
    }


def _decode_writes(fields: Fields, holds: Holds | None = None) -> Writes:
    authors, writes, rows = _inflated(fields["z"]) if "z" in fields else (fields["a"], fields["w"], ())
    found = unpack_writes(authors, writes, holds, rows=rows)
    return Writes(_round(fields["r"]), read_bytes(fields["s"], 8), read_number(fields["i"]), found)


def _inflated(deflated: Any) -> tuple[Any, Any, Any]:
    """Authors, writes and rows, which together take no more than a message may."""
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(deflated, wire.MESSAGE_LIMIT)
    except zlib.error as error:
        raise ValueError(f"what was deflated can't be inflated: {error}") from error
    if not inflating.eof or inflating.unused_data:
        raise ValueError("what was deflated is cut short, or too much")
    authors, writes, rows, *_ = wire.unpack(plain, nesting=None)
    return authors, writes, rows


def _encode_mend(message: Mend) -> Fields:
    authors, writes = pack_writes(message.writes)
    return {"b": message.bucket, "a": authors, "w": writes, "e": message.answer, "c": message.resume}


def _decode_mend(fields: Fields) -> Mend:
    return Mend(_bucket(fields["b"]), unpack_writes(fields["a"], fields["w"]), bool(fields.get("e")), _key(fields.get("c")))


_ENCODERS: dict[type[Any], tuple[str, Callable[[Any], Fields]]] = {
    Heads: ("heads", _encode_heads),
    Writes: ("writes", _encode_writes),
    Ack: ("ack", lambda message: {"r": message.round, "i": run_lengths(message.indexes, 0, limit=MAX_RUNS)}),
    Done: ("done", lambda message: {"r": message.round, "s": message.session, "c": message.count, "h": _pack_heads(message.heads)}),
    Refused: ("refused", lambda message: {"r": message.round, "w": message.refusals}),
    Again: ("again", lambda message: {"r": message.round}),
    Rows: ("rows", lambda message: {"r": message.round, "w": message.rows}),
    Ended: ("ended", lambda message: {"r": message.round, "w": message.rows, "u": message.unasked}),
    Digest: ("digest", lambda message: {"h": _pack_heads(message.heads), "n": message.held, "b": message.buckets}),
    Mend: ("mend", _encode_mend),
    More: ("more", lambda message: {"b": message.bucket, "c": message.after}),
}

_DECODERS: dict[str, Callable[[Fields], Message]] = {
    "heads": _decode_heads,
    "writes": _decode_writes,
    "ack": lambda fields: Ack(_round(fields["r"]), from_run_lengths(_numbers(fields["i"]), 0)),
    "done": lambda fields: Done(_round(fields["r"]), read_bytes(fields["s"], 8), read_number(fields["c"]), _heads(fields["h"])),
    "refused": lambda fields: Refused(_round(fields["r"]), _refusals(fields["w"])),
    "again": lambda fields: Again(_round(fields["r"])),
    "rows": lambda fields: Rows(_round(fields["r"]), _rows(fields["w"])),
    "ended": lambda fields: Ended(_round(fields["r"]), _rows(fields["w"]), bool(fields.get("u"))),
    "digest": lambda fields: Digest(_heads(fields["h"]), read_bytes(fields["n"], HASH_BYTES), _buckets(fields["b"])),
    "mend": _decode_mend,
    "more": lambda fields: More(_bucket(fields["b"]), _key(fields.get("c"))),
}


# --- parts of messages ------------------------------------------------------------------------------------------


def _pack_heads(heads: Mapping[bytes, Head]) -> list[Any]:
    return [[author, head.seq, head.tag] for author, head in heads.items()]


def _heads(raw: Any) -> dict[bytes, Head]:
    entries = read_list(raw, MAX_AUTHORS)
    return {read_bytes(author, 16): Head(read_number(seq), read_bytes(tag, 0, 32)) for author, seq, tag, *_ in entries}


def _held(raw: Any, heads: Mapping[bytes, Head]) -> dict[bytes, Spans]:
    held = {}
    for author, coded, *_ in read_list(raw, MAX_AUTHORS):
        above = heads[author].seq if author in heads else 0
        held[read_bytes(author, 16)] = from_run_lengths(_numbers(coded), above)
    return held


def _pack_held(message: Heads) -> list[Any]:
    packed = []
    share = HELD_BYTES // max(1, len(message.held))
    for author, spans in message.held.items():
        above = message.heads[author].seq if author in message.heads else 0
        limit = max(1, min(MAX_RUNS, share // 2))  # a run takes two bytes at least
        coded = run_lengths(spans, above, limit=limit)
        while limit > 1 and len(msgpack.packb(coded)) > share:
            limit //= 2
            coded = run_lengths(spans, above, limit=limit)
        packed.append([author, coded])
    return packed


def _marks(raw: Any) -> dict[bytes, dict[int, int]]:
    if not isinstance(raw, dict) or len(raw) > MAX_MARKS or sum(map(len, raw.values())) > MAX_MARKS:
        raise ValueError("not a map of marks")
    return {read_bytes(author, 16): {read_number(seq): read_number(mark) for seq, mark in marks.items()} for author, marks in raw.items()}


def _round(raw: Any) -> RoundId:
    session, number, *_ = raw
    return RoundId(read_bytes(session, 8), read_number(number))


def _rows(raw: Any) -> tuple[RowId, ...]:
    return tuple(
        RowId(read_text(table, NAME_LIMIT), read_text(key, KEY_LIMIT), read_bytes(author, 16), read_number(seq))
        for table, key, author, seq, *_ in read_list(raw, MAX_ROWS)
    )


def _refusals(raw: Any) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(read_bytes(author, 16), read_number(seq), str(reason)[:REASON_LIMIT])
        for author, seq, reason, *_ in read_list(raw, MAX_WRITES)
    )


def _key(raw: Any) -> str | None:
    return None if raw is None else read_text(raw, KEY_LIMIT)


def _bucket(raw: Any) -> Bucket:
    table, number, *_ = raw
    if read_number(number) >= BUCKETS:
        raise ValueError("no such bucket")
    return Bucket(read_text(table, NAME_LIMIT), number)


def _buckets(raw: Any) -> dict[str, bytes]:
    if not isinstance(raw, dict) or len(raw) > MAX_TABLES:
        raise ValueError("not a map of tables")
    return {read_text(table, NAME_LIMIT): read_bytes(digests, BUCKETS * HASH_BYTES) for table, digests in raw.items()}


def _numbers(raw: Any) -> list[int]:
    return [read_number(number) for number in read_list(raw, 2 * MAX_RUNS)]
