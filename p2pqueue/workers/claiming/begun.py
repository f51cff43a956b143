"""Which jobs has this worker begun although their rows do not say so yet?

A claim must be committed before its handler starts, or a job that kills its node would never run out of attempts. But
a job that ends within milliseconds need not be written twice: its claim stands in one local row, and `state` and
`runs` are written once, with its end. A job that goes on is written as running a moment later, and one whose node
was killed in between at the next start.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from p2pqueue import wire
from p2pqueue.jobs.begun import Begun, as_begun, kept
from p2pqueue.jobs.job import Transition
from p2pqueue.jobs.ledger import put_state
from p2pqueue.replica.writer import Put, Writer
from p2pqueue.workers.claimed import ClaimedJob, run_id
from p2pqueue.workers.states import states_of

RECORD_AFTER: Final = 0.05  # seconds: what runs longer is worth a write of its own


def begun(job: ClaimedJob, author: bytes) -> Begun:
    """What is kept of a claimed job until its row tells."""
    return Begun(job.job_id, job.holder.generation, job.holder.claim, job.claimed_at, author)


def keep(connection: sqlite3.Connection, claims: Iterable[Begun]) -> None:
    """Keeps these claims, in the place of those that were kept before."""
    columns = [list(column) for column in zip(*claims, strict=True)]  # packed in half the time that so many rows take
    connection.execute("INSERT OR REPLACE INTO begun (one, claims) VALUES (1, ?)", (wire.pack(columns),))


def drop(connection: sqlite3.Connection, claims: Iterable[tuple[str, int, int]]) -> None:
    """Forgets the claims of (job, generation, claim): they came to nothing, and their rows stand as if never claimed."""
    dropped = set(claims)
    keep(connection, [claim for claim in kept(connection) if claim[:3] not in dropped])


def write_begun(writer: Writer, claims: Sequence[Begun]) -> bool:
    """Writes these claims into the rows of their jobs, as far as nothing else has become of them; says whether any was."""
    found = states_of(writer.connection, [claim.job_id for claim in claims])
    states: list[Put] = []
    runs: list[Put] = []
    for claim in claims:
        state = found.get(claim.job_id)
        running = state and as_begun(state, claim[1:3], claim.claimed_at, (writer.device_id, writer.label))
        if running:
            states.append(put_state(claim.job_id, Transition(running)))
            runs.append(_running_run(writer, claim, running.attempt))
    if states:
        writer.put_known("jobs", "state", states)
        writer.put_known("runs", "run", runs, new=True)
    return bool(states)


def _running_run(writer: Writer, claim: Begun, attempt: int) -> Put:
    values = (
        claim.job_id, attempt, writer.device_id, writer.label, claim.claimed_at, None, "running",
        None, None, None, None, None, None, None, None,
    )  # fmt: skip
    return Put(run_id(claim.job_id, claim.generation, claim.claim, claim.author), "run", values, generation=0)
