"""What do signals of other devices do here, and what does this device say? Progress, ends and presence.

Signals are hints: whatever they tell is read again from the replica before anything is decided. So a signal that
comes before its row makes a look a little early, and one that is lost makes it a little late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from p2pqueue.identity.members import Members
from p2pqueue.identity.roles import allows
from p2pqueue.jobs.orders import Order, read_order
from p2pqueue.peers.linked import LinkedPeer
from p2pqueue.peers.signals import Signal
from p2pqueue.workers.claiming.foretold import Told, read_told
from p2pqueue.workers.claiming.presence import Roster, read_presence
from p2pqueue.workers.running.live import Live

PROGRESS_EVERY: Final = 0.1  # seconds between two signals of one job's progress: as often as anybody can see


class Hearsay:
    """Takes signals in, and says what happens here.

    `emit` sends a signal to all; `look` makes the worker look at jobs again (None: at all that could be claimed); `obey`
    stops what runs here as others order.
    """

    def __init__(
        self,
        *,
        live: Live,
        roster: Roster,
        members: Members,
        emit: Callable[..., None],
        look: Callable[[str | None], object],
        obey: Callable[[Sequence[Order]], object] = lambda orders: None,
    ) -> None:
        self._live = live
        self._roster = roster
        self._members = members
        self._emit = emit
        self._look = look
        self._obey = obey
        self._told: dict[str, float] = {}  # by job: when its progress was signalled last

    def heard(self, signal: Signal, peer: LinkedPeer) -> None:
        """Takes in a signal. Of a device that is neither linked nor known no presence is kept: a liar could name any number."""
        fields = signal.fields
        match signal.kind:
            case "hello" if signal.source == peer.device_id or self._members.get(signal.source) is not None:
                now = time.monotonic()
                if self._roster.heard(read_presence(signal.source, fields), now):
                    self._look(None)
            case "progress":
                self._mirror(signal.source, fields)
            case "done":
                self._look(fields.get("job"))
            case "begun" if signal.source == peer.device_id and allows(peer.role, "work"):
                begun = [told for each in fields.get("jobs", ()) if (told := read_told(each)) is not None]
                if self._roster.foretold.heard(signal.source, begun, fields.get("back", ()), time.monotonic()):
                    self._look(None)
            case "control" if self._may_cancel(signal.source, peer):
                self._obey([order for each in fields.get("jobs", ()) if (order := read_order(each)) is not None])

    def _may_cancel(self, device_id: str, peer: LinkedPeer) -> bool:
        """Says whether what a device orders is obeyed: a linked one is who it is, others are as their rows say."""
        member = self._members.get(device_id)
        role = peer.role if device_id == peer.device_id else member.role if member is not None else ""
        return allows(role, "cancel")

    def progress(self, job_id: str, claim: int, fraction: float, phase: str) -> None:
        """Tells others how far a job is that runs here."""
        now = time.monotonic()
        if now - self._told.get(job_id, 0.0) < PROGRESS_EVERY and fraction < 1.0:
            return
        self._told[job_id] = now
        self._emit("progress", job=job_id, claim=claim, fraction=fraction, phase=phase)

    def begun(self, begun: Sequence[Told], back: Sequence[str]) -> None:
        """Tells others which jobs begin here now, and which are given back that had not begun."""
        self._emit("begun", jobs=[list(each) for each in begun], back=list(back))

    def ended(self, job_id: str, status: str) -> None:
        """Tells others that an attempt has ended here."""
        self._told.pop(job_id, None)
        self._emit("done", job=job_id, status=status)

    def _mirror(self, device_id: str, fields: Any) -> None:
        job_id, fraction = fields.get("job"), fields.get("fraction")
        if job_id is None or fraction is None or not self._live.watched:
            return
        member = self._members.get(device_id)
        label = member.label if member is not None else device_id[:8]
        self._live.tell(
            {"id": job_id, "status": "running", "progress": float(fraction), "phase": fields.get("phase"), "worker_label": label}
        )
