"""What does a worker do when it hears, before any row tells, that a job which runs here shall stop?

It stops the run and leaves the job alone until the row has come. A cancellation is written here as well, for that row
may be long on its way; nothing else is, for a pause may have been taken back meanwhile, and a deletion says more than
the worker could.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from p2pqueue.errors import MisuseError
from p2pqueue.jobs import ledger
from p2pqueue.jobs.orders import Order
from p2pqueue.replica.merging.merged import Done
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer
from p2pqueue.workers.children.protocol import Why
from p2pqueue.workers.run import Run
from p2pqueue.workers.states import states_of

_log = logging.getLogger(__name__)


class Orders:
    """Carries out the orders of other devices.

    `stop` stops a run, `leave` has its job left alone for a while.
    """

    def __init__(self, store: Store, runs: Mapping[str, Run], *, stop: Callable[[Run, Why], None], leave: Callable[[str], None]) -> None:
        self._store = store
        self._runs = runs
        self._stop = stop
        self._leave = leave

    def heard(self, orders: Iterable[Order], *, writes: bool) -> None:
        """Stops what is meant and runs here; `writes` says whether this device may cancel jobs itself."""
        for order in orders:
            run = self._runs.get(order.job_id)
            if run is None or run.job.holder.generation != order.generation:
                continue
            self._leave(order.job_id)
            self._stop(run, "held" if order.action == "pause" else "cancelled")
            if writes and order.action == "cancel":
                self._store.hand_in(partial(_cancel, order), _told)


def _cancel(order: Order, writer: Writer) -> None:
    """Cancels a job, unless another generation of it has begun or it has ended."""
    state = states_of(writer.connection, [order.job_id]).get(order.job_id)
    if state is None or state.generation != order.generation:
        return
    try:
        ledger.cancel(writer, order.job_id)
    except MisuseError:
        pass  # it has ended, one way or another


def _told(done: Done) -> None:
    if done.error is not None:
        _log.warning("that a job was cancelled elsewhere could not be written down; its row will tell: %s", done.error)
