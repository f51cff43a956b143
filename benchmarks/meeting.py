"""How fast do two real nodes come to hold the same, beside PouchDB's replication in the same run?

Unlike in `syncing`, rows travel sealed and over WebRTC as soon as that is open. What takes the time is counted from
the moment at which both are linked until both count the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.figure import Figure, Target
from benchmarks.own.device import BATCH, edit_jobs, make_jobs
from benchmarks.own.host import HostedDevice, space, until
from benchmarks.syncing import Sizes, measure_pouchdb
from p2pqueue.identity.keys import load
from p2pqueue.jobs.opening import open_store

LIMIT = 300.0  # seconds for one sync
LOOK_EVERY = 0.1  # seconds between two questions to both nodes, which answer instead of syncing
FLAGS = ("--no-work", "--no-discovery", "--listen", "127.0.0.1:0")


def figures(folder: Path, targets: Mapping[str, Target], *, sizes: Sizes) -> list[Figure]:
    """The rows about many jobs at once."""
    pouchdb = measure_pouchdb(folder, sizes)
    with space(folder, 2) as devices:
        asyncio.run(_make(devices[0], sizes.jobs))
        cold = sizes.jobs / _meet(devices, sizes.jobs)
        for device in devices:
            asyncio.run(_edit(device, sizes.edited))
        meeting = _meet(devices, sizes.jobs)
    first, second = "cold sync over the control channel", "the same jobs changed apart, until equal"
    return [
        Figure(first, cold, "jobs/s", targets.get(first, Target())),
        _beside(f"{first}, beside PouchDB", cold, "jobs/s", targets, pouchdb.get("cold")),
        Figure(second, meeting, "s", targets.get(second, Target())),
        _beside(f"{second}, beside PouchDB", meeting, "s", targets, pouchdb.get("meeting")),
    ]


def _beside(name: str, value: float, unit: str, targets: Mapping[str, Target], theirs: float | None) -> Figure:
    return Figure(name, value, unit, targets.get(name, Target()), "PouchDB" if theirs else None, theirs)


def _meet(devices: Sequence[HostedDevice], jobs: int) -> float:
    """Starts both nodes; gives the seconds from the link until both count the same. Ends the nodes."""
    first, second = devices
    first.start(*FLAGS)
    try:
        second.start(*FLAGS, "--peer", first.listens_at)
        linked_at = min(time.monotonic() - float(until(each.peers, "linked", every=0.002)[0]["since"]) for each in devices)
        until(lambda: second.is_in_sync() and first.is_in_sync(), "both count the same", limit=LIMIT, every=LOOK_EVERY)
        took = time.monotonic() - linked_at
        digests = {str(each.run("status")["digest"]) for each in devices}
        if len(digests) != 1 or second.run("status")["counts"]["queued"] + second.run("status")["counts"]["running"] != jobs:
            raise RuntimeError("the devices don't hold the same although both count the same")
        return took
    finally:
        second.stop()
        first.stop()


async def _make(device: HostedDevice, count: int) -> None:
    store = await open_store(device.home, load(device.home))
    try:
        for start in range(0, count, BATCH):
            await store.write(partial(make_jobs, count=min(BATCH, count - start)))
    finally:
        await store.close()


async def _edit(device: HostedDevice, count: int) -> None:
    store = await open_store(device.home, load(device.home))
    try:
        query = "SELECT id FROM jobs ORDER BY id LIMIT ?"
        keys = [key for (key,) in await store.read(lambda connection: connection.execute(query, (count,)).fetchall())]
        for start in range(0, count, BATCH):
            await store.write(partial(edit_jobs, keys=keys[start : start + BATCH], title=device.label))
    finally:
        await store.close()
