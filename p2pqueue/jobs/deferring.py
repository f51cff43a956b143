"""How is a plain job enqueued for little more than the disk takes?

Its row is not made at once but deferred (`replica.deferring`): what is written is all that the row will hold. The id is
given out now; number, stamp and signature come when somebody carries it out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgpack

from p2pqueue.clock import tick
from p2pqueue.errors import MalformedMessage
from p2pqueue.jobs import ledger
from p2pqueue.jobs.ledger import EnqueuedJob, NewJob
from p2pqueue.replica.merging.making import RANDOM_SIZE, id_of
from p2pqueue.replica.merging.merged import Put

if TYPE_CHECKING:
    from p2pqueue.replica.writer import Writer

FORM: Final = 1  # of a deferred job: [form, id, title, priority, values of spec]


class Deferrer:
    """Puts jobs of one device into the form in which they are deferred. For one thread at a time."""

    def __init__(self, device: str, now: Callable[[], int]) -> None:
        self._device = device
        self._now = now
        self._last = 0
        self._pack = msgpack.Packer(buf_size=1024).pack

    def defer(self, new: NewJob) -> tuple[bytes, EnqueuedJob]:
        """A job without unique key and files as bytes, and what will have become of it."""
        now = self._now()
        self._last = tick(self._last, now)
        job_id = id_of(self._last, int.from_bytes(os.urandom(RANDOM_SIZE), "big"))
        spec = ledger.spec_of(new, self._device, now)
        return self._pack((FORM, job_id, new.title, new.priority, spec)), EnqueuedJob(job_id, created=True)


def carry_out(writer: Writer, changes: Sequence[bytes]) -> None:
    """Makes the jobs that were deferred. Raises `MalformedMessage` for one that another version may understand."""
    ids, specs, tuned = [], [], []
    for change in changes:
        match _unpack(change):
            case [1, str(job_id), title, int(priority), [*spec]]:
                ids.append(job_id)
                specs.append(tuple(spec))
                if title or priority:
                    tuned.append(Put(job_id, "tune", (title, priority), generation=0))
            case _:
                raise MalformedMessage("a deferred job of a form that is not known here")
    writer.make("jobs", "spec", specs, ids=ids)
    if tuned:
        writer.put_known("jobs", "tune", tuned)


def _unpack(change: bytes) -> Any:
    """What this device wrote itself; no more than the disk may have spoiled it."""
    try:
        return msgpack.unpackb(change)
    except ValueError as error:
        raise MalformedMessage(f"a deferred job that can't be read: {error}") from error
