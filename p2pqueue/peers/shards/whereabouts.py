"""Which devices should have a file, by what the jobs say, and what are the sources of a file called?

Whoever enqueued it as an input, or made it as an output, should have it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from p2pqueue.identity import members

RECENT: Final = 1_000  # jobs that have succeeded, of which the makers of the outputs are looked for

_HOLDERS: Final = f"""
SELECT enqueued_by FROM jobs
WHERE status IN ('queued', 'running', 'paused') AND live = 1 AND input_counts AND input_manifest = :manifest  -- jobs_by_status
UNION
SELECT runs.worker_id FROM jobs JOIN runs ON runs.id = jobs.result_id
WHERE runs.output_manifest = :manifest
AND jobs.id IN (SELECT id FROM jobs WHERE status = 'succeeded' ORDER BY created_at DESC LIMIT {RECENT})  -- jobs_by_status
"""


def holders(connection: sqlite3.Connection, capability: str, *, here: str) -> Sequence[tuple[str, str]]:
    """The ids of the devices that should have it, and what they are called; this one, `here`, apart."""
    labels = {each.device_id: each.label for each in members.read(connection)}
    found = [device for (device,) in connection.execute(_HOLDERS, {"manifest": capability}) if device is not None]
    return [(device, labels.get(device, device[:8])) for device in found if device != here]


def called(labels: Mapping[str, str], source: str) -> str:
    """What people call a source: a device by its label, with its id where another has that too; an origin by its host."""
    if "://" in source:
        parts = urlsplit(source)
        return parts.netloc.rpartition("@")[2] if parts.scheme in ("http", "https") else source
    label = labels.get(source)
    if label is None:
        return source[:8]
    return label if Counter(labels.values())[label] == 1 else f"{label} ({source[:8]})"
