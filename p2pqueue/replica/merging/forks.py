"""What does a copied or restored database do, so that two never write under one author?

It goes on under a new author. Its head of the old one falls to what every peer has acknowledged, and every live
own write above is issued again: with the old time, so that nothing made after seeing it is overwritten, under an
author id that is greater than the old, so that it beats its former self and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from p2pqueue.replica.counting import counting, fold
from p2pqueue.replica.merging.merged import stamp_text
from p2pqueue.replica.reading import with_values
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.statements import INSERT_CHANGE
from p2pqueue.replica.write import Write
from p2pqueue.replica.writer import Writer

RENEWED = 2  # in the column `copied`, where 1 stands for a backup that was restored
_AUTHOR_SIZE = 16  # bytes
_STEP_SIZE = 11  # bytes: small steps leave room above for many forks, and are random enough never to meet
_CHANGE = "tbl, key, register, generation, rank, claim, hlc, author, seq, body, signature"


def new_author(random: Callable[[int], bytes]) -> bytes:
    """The first author of a database."""
    return random(_AUTHOR_SIZE)


def author_above(author: bytes, random: Callable[[int], bytes]) -> bytes:
    """A new author id that is greater than an old one, as long as there is one."""
    number = int.from_bytes(author, "big") + 1 + int.from_bytes(random(_STEP_SIZE), "big")
    return random(_AUTHOR_SIZE) if number >> 128 else number.to_bytes(_AUTHOR_SIZE, "big")


def machine_id() -> str:
    """What tells this machine from another that holds a copy of its files, the same after a reboot; empty if unknown."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return text
    import uuid

    node = uuid.getnode()
    # The multicast bit marks a number that was drawn at random, anew in every process.
    return "" if node >> 40 & 1 else f"{node:012x}"


def inode_of(path: str) -> int | None:
    """What tells a file from its copy on the same machine."""
    try:
        return os.stat(path).st_ino & ((1 << 63) - 1)
    except OSError:
        return None


def copied(writer: Writer, inode: int | None, machine: str) -> str | None:
    """Says in words how this file differs from the one that its author wrote, None if it is the same."""
    was_inode, was_machine, restored = writer.connection.execute("SELECT inode, machine, copied FROM incarnation").fetchone()
    if restored:
        return "its device has a new key" if restored == RENEWED else "it was restored from a backup"
    if was_machine and machine and was_machine != machine:
        return "it comes from another machine"
    if was_inode is not None and inode is not None and was_inode != inode:
        return "the file is a copy"
    return None


def settle_place(writer: Writer, inode: int | None, machine: str) -> None:
    """Remembers where this file is at home."""
    writer.connection.execute("UPDATE incarnation SET inode = ?, machine = coalesce(nullif(?, ''), machine), copied = 0", (inode, machine))


def introduce(writer: Writer) -> None:
    """Writes the rows that say who writes here: the device's certificate and label, and the author's own."""
    signer = writer.signer
    certificate = getattr(signer, "certificate", None)
    role, issuer = _role_of(certificate, signer.device_id)
    device = writer.connection.execute("SELECT certificate, label FROM devices WHERE id = ?", (signer.device_id,)).fetchone()
    if device is None or device[0] != certificate:
        cert = {"key": signer.public_key, "role": role, "issuer": issuer, "certificate": certificate}
        writer.put("devices", signer.device_id, "cert", cert)
    if device is None or device[1] != signer.label:
        writer.put("devices", signer.device_id, "about", {"label": signer.label})
    writer.put("authors", writer.author.hex(), "author", {"device": signer.device_id})


def fork(writer: Writer) -> bytes:
    """Takes a new author and issues again what the old one wrote and not every peer has; gives the new author."""
    old, last = writer.author, writer.seq
    floor = acknowledged(writer, old)
    new = author_above(old, writer.random)
    connection = writer.connection
    connection.execute("UPDATE incarnation SET author = ?, hlc = ?, falls = falls + 1", (new, writer.hlc))
    _lower_head(writer, old, floor)
    fold(connection, 0)
    connection.execute("DELETE FROM commits")
    writer.author, writer.seq = new, 0
    introduce(writer)
    rows = connection.execute(f"SELECT {_CHANGE} FROM changes WHERE author = ? AND seq > ? ORDER BY seq", (old, floor)).fetchall()
    reissue(writer, with_values(connection, writer.shapes, [row for row in rows if not _names_another(writer, *row[:3])]), new)
    writer.put("authors", old.hex(), "closed", {"last": last})
    return new


def _names_another(writer: Writer, table: str, key: str, register: str) -> bool:
    """Rows that say who another author or device is stay as they are signed: by that one."""
    return (table, register) == ("authors", "author") or ((table, register) == ("devices", "cert") and key != writer.device_id)


def acknowledged(writer: Writer, author: bytes) -> int:
    """The last number of an author that every known peer has; 0 if no peer is known."""
    query = (
        "SELECT count(*), coalesce(min(coalesce(own.seq, 0)), 0) FROM (SELECT DISTINCT peer FROM acks) AS peers "
        "LEFT JOIN acks AS own ON own.peer = peers.peer AND own.author = ?"
    )
    row = writer.connection.execute(query, (author,)).fetchone()
    return int(row[1])


def _lower_head(writer: Writer, author: bytes, floor: int) -> None:
    row = writer.connection.execute("SELECT seq, tag FROM commits WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (floor,)).fetchone()
    writer.connection.execute("DELETE FROM counted WHERE author = ?", (author,))
    if row is not None:
        writer.connection.execute("INSERT INTO counted (author, seq, tag) VALUES (?, ?, ?)", (author, *row))


def reissue(writer: Writer, writes: list[Write], author: bytes) -> None:
    """Gives live writes the new author, next numbers and fresh signatures; what names their stamps follows."""
    names: dict[tuple[str, str], dict[str, str]] = {}
    for write in writes:
        old, new = stamp_text(write.stamp), stamp_text(write.stamp._replace(author=author))
        names.setdefault((write.table, write.key), {})[old] = new
    reissued = {(write.table, write.key, write.register) for write in writes}
    for write in writes:
        issue(writer, write, author, names[write.table, write.key])
    _follow(writer, names, reissued, author)


def issue(writer: Writer, write: Write, author: bytes, names: dict[str, str]) -> None:
    """Gives one live write the next number under this author, and a fresh signature; `names` are stamps that changed."""
    stamp = write.stamp._replace(author=author)
    shape = writer.shapes.get(write.table)
    writer.seq += 1
    values = tuple(names.get(value, value) if isinstance(value, str) else value for value in write.values)
    body, signature = write.body, None
    if write.signature is not None:
        body = body_of(write.table, write.key, write.register, stamp, writer.seq, values)
        signature = writer.sign(body)
    generation, rank, claim, hlc, _ = stamp
    change = (write.table, write.key, write.register, author, writer.seq, generation, rank, claim, hlc, body, signature, 1)
    writer.connection.execute(INSERT_CHANGE, change)
    if shape is not None and write.register in shape.kept and len(values) == shape.width[write.register]:
        parameters: list[Any] = [write.key, abs(hlc) >> 16, *values, *shape.kept[write.register](stamp)]
        with counting(writer.connection, shape, (write.key,)):
            writer.connection.execute(shape.upsert((write.register,)), parameters)
    writer.note(write.table, (write.key,))


def _follow(writer: Writer, names: dict[tuple[str, str], dict[str, str]], reissued: set[tuple[str, str, str]], author: bytes) -> None:
    """Issues other registers of these rows again where a value names a stamp that changed, whoever wrote them."""
    for (table, key), changed in names.items():
        query = f"SELECT {_CHANGE} FROM changes WHERE tbl = ? AND key = ? AND body IS NULL"
        rows = [row for row in writer.connection.execute(query, (table, key)) if (table, key, row[2]) not in reissued]
        for write in with_values(writer.connection, writer.shapes, rows):
            if any(isinstance(value, str) and value in changed for value in write.values):
                higher = _above(write.stamp, author)
                issue(writer, Write(table, key, write.register, higher, write.seq, write.values), author, changed)


def _above(stamp: Stamp, author: bytes) -> Stamp:
    """A stamp of this author that beats a standing one by as little as can be."""
    return stamp._replace(author=author) if author > stamp.author else stamp._replace(hlc=stamp.hlc + 1, author=author)


def _role_of(certificate: bytes | None, device_id: str) -> tuple[str, str]:
    if not certificate:
        return "owner", device_id
    from p2pqueue.identity.certificate import device_id as id_of
    from p2pqueue.identity.certificate import read_certificate

    read = read_certificate(certificate)
    return read.role, id_of(read.issuer)


__all__ = ["acknowledged", "copied", "fork", "inode_of", "introduce", "machine_id", "new_author", "settle_place"]
