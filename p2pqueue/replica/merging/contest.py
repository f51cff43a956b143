"""Which of a peer's writes are well formed, bear their signature, and win?

Most writes that arrive are the first of their register. They pass quickly; every other goes the whole way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from p2pqueue import wire
from p2pqueue.replica.merging.aside import set_aside, unstorable
from p2pqueue.replica.merging.batch import Batch, Known
from p2pqueue.replica.merging.merged import Refused
from p2pqueue.replica.reading import content_of
from p2pqueue.replica.signatures.bodies import body_of
from p2pqueue.replica.signatures.hashtree import is_signature
from p2pqueue.replica.signatures.signing import UNKNOWN_AUTHOR, mismatch
from p2pqueue.replica.stamp import RETRY_BITS, is_wellformed
from p2pqueue.replica.system import ALWAYS_VERIFIED
from p2pqueue.replica.wire.checks import KEY_LIMIT, NAME_LIMIT, SEQ_LIMIT, check_authors, check_names, check_numbers, check_stamps
from p2pqueue.replica.wire.columns import WellFormed
from p2pqueue.replica.write import Write
from p2pqueue.replica.writer import Writer


@dataclass
class Tally:
    """What became of a batch so far."""

    applied: int = 0
    counted: int = 0
    ignored: int = 0
    refused: list[Refused] = field(default_factory=list)
    aside: list[Refused] = field(default_factory=list)


def sift(writes: Sequence[Write], tally: Tally) -> Sequence[Write]:
    """The writes that are well formed; the others are refused."""
    if not writes or isinstance(writes, WellFormed) or _are_wellformed(writes):
        return writes
    good = []
    for write in writes:
        problem = malformed(write)
        if problem is None:
            good.append(write)
        else:
            tally.refused.append(refused_as(write, problem))
    return good


def _are_wellformed(writes: Sequence[Write]) -> bool:
    """Says whether all of a batch is well formed: what `malformed` asks of each, asked of all at once."""
    try:
        tables, keys, registers, stamps, numbers, *_ = zip(*writes, strict=True)
        generations, ranks, claims, hlcs, authors = zip(*stamps, strict=True)
        check_names({*tables, *registers}, keys)
        check_stamps(generations, ranks, claims, hlcs)
        check_numbers(numbers)
        check_authors(authors)
    except (TypeError, ValueError, AttributeError):
        return False
    return True


def malformed(write: Write) -> str | None:
    """What is wrong with the form of a peer's write, in words."""
    try:
        if not is_wellformed(write.stamp):
            return "its stamp is malformed"
    except (TypeError, AttributeError):
        return "its stamp is malformed"
    if type(write.seq) is not int or not 0 < write.seq < SEQ_LIMIT:
        return "its number is malformed"
    for name, limit in ((write.key, KEY_LIMIT), (write.table, NAME_LIMIT), (write.register, NAME_LIMIT)):
        if type(name) is not str or not 0 < len(name) <= limit or "\0" in name:
            return "a name in it is malformed"
    return None


def offer(writer: Writer, batch: Batch, writes: Sequence[Write], tally: Tally) -> None:
    """Lets the writes contest, and takes those that win."""
    known, winners, make = batch.known, batch.winners, tuple.__new__
    widths, signed = batch.shape.width, batch.shape.signed
    quick = not batch.ended
    for write in writes:
        key, register, values = write.key, write.register, write.values
        registers = known.get(key)
        if quick and widths.get(register) == len(values) and (registers is None or _is_first(batch, registers, write)):
            if register not in signed:
                entry = make(Known, (write.stamp, write.seq, 1, 0, values, None, None))
            elif is_plainly_signed(write):
                entry = make(Known, (write.stamp, write.seq, int(write.checked), 0, values, write.body, write.signature))
            else:
                _contest(writer, batch, write, tally)
                continue
            if registers is None:
                known[key] = winners[key] = {register: entry}  # of a new row all that is known is what won
                continue
            registers[register] = entry
            won = winners.get(key)
            if won is None:
                winners[key] = {register: entry}
            elif won is not registers:
                won[register] = entry
        else:
            _contest(writer, batch, write, tally)


def _is_first(batch: Batch, registers: dict[str, Known], write: Write) -> bool:
    """Says whether nothing of the row could outrank this write, or be outranked by it."""
    if write.register in registers:
        return False
    life, creating = write.stamp.generation >> RETRY_BITS, batch.shape.creating
    if write.register == creating:
        return all(each.stamp.generation >> RETRY_BITS == life and not each.unread for each in registers.values())
    made = registers.get(creating)
    return made is None or made.stamp.generation >> RETRY_BITS == life


def is_plainly_signed(write: Write) -> bool:
    """Says whether a write may be taken now and its signature checked later."""
    if (write.table, write.register) in ALWAYS_VERIFIED or not is_signature(write.signature):
        return False
    try:
        return write.checked or body_of(write.table, write.key, write.register, write.stamp, write.seq, write.values) == write.body
    except (ValueError, TypeError, OverflowError):
        return False


def _contest(writer: Writer, batch: Batch, write: Write, tally: Tally) -> None:
    shape, key, register = batch.shape, write.key, write.register
    body, signature, values = write.body, write.signature, write.values
    width = shape.width.get(register)
    if width is None:
        values = ()
        if body is None:
            body = wire.pack(list(write.values))
    elif register not in shape.signed:
        if body is not None and not values:
            values = tuple(wire.unpack(body))
        body = signature = None
    signed = signature is not None or register in shape.signed
    problem = mismatch(write) if signed else None
    if problem is not None:
        _refuse(writer, write, problem, tally)
        return
    if width is not None and len(values) != width:
        tally.aside.append(set_aside(writer.connection, write, f"{len(values)} values for {width} columns", held=True, now=writer.now))
        return
    if not _wins(writer, batch, write, values, body, tally):
        tally.counted += 1
        return
    chained = (write.table, register) in ALWAYS_VERIFIED
    must = signed and (chained or batch.replaces(key, register, write.stamp))
    problem = writer.keyring.problem(writer.connection, write) if must and (chained or not write.checked) else None
    if problem is not None:
        _refuse(writer, write, problem, tally)
        return
    if width is not None and key in batch.known and batch.waits(key, register, write.stamp):
        problem = unstorable(writer.connection, shape, write, values)  # told now, or it would take the life that it waits for along
        if problem is not None:
            tally.aside.append(set_aside(writer.connection, write, problem, held=True, now=writer.now))
            return
    batch.take(key, register, Known(write.stamp, write.seq, int(must or not signed or write.checked), 0, values, body, signature))


def _refuse(writer: Writer, write: Write, problem: str, tally: Tally) -> None:
    if problem == UNKNOWN_AUTHOR:
        tally.refused.append(refused_as(write, problem, lasting=False))
    else:
        tally.refused.append(set_aside(writer.connection, write, problem, held=False, now=writer.now))


def _wins(writer: Writer, batch: Batch, write: Write, values: tuple[object, ...], body: bytes | None, tally: Tally) -> bool:
    rival = batch.rival(write.key, write.register, write.stamp)
    while rival and _falls(writer, batch, write.key, rival, tally):
        rival = batch.rival(write.key, write.register, write.stamp)
    if rival is None:
        return True
    if rival != write.register:
        return False
    known = batch.known[write.key][rival]
    if known.stamp != write.stamp:
        return False
    # One stamp twice: the same write again, or an author whose database was copied. The bytes decide.
    standing = batch.content(write.key, rival) or content_of(writer.connection, batch.shape, write.key, rival)
    return (body or wire.pack(list(values)), write.seq) > (standing, known.seq)


def _falls(writer: Writer, batch: Batch, key: str, register: str, tally: Tally) -> bool:
    """Checks a write that is about to outrank another; says whether it failed and was taken out."""
    won = batch.winners.get(key, {}).get(register)
    if won is None:
        return writer.drop_unless_verified(batch, key, register)
    if won.verified:
        return False
    # It came in this very batch, and stands nowhere yet.
    rival = Write(batch.shape.name, key, register, won.stamp, won.seq, won.values, won.body, won.signature)
    problem = writer.keyring.problem(writer.connection, rival)
    if problem is None:
        batch.known[key][register] = batch.winners[key][register] = won._replace(verified=1)
        return False
    _refuse(writer, rival, problem, tally)
    batch.forget(key, register)
    return True


def refused_as(write: Write, reason: str, *, lasting: bool = True) -> Refused:
    """A refusal of this write."""
    return Refused(write.table, write.key, write.register, write.stamp, write.seq, reason, lasting)
