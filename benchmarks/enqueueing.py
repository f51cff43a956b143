"""How fast is a job durably enqueued, beside the peers? Rounds of ours and of each peer alternate."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.figure import Figure, Sample, Target
from benchmarks.own.contender import P2PQueue
from benchmarks.peers.contender import Contender, timed

PRODUCERS = 64
YARDSTICK = "Huey SQLite"  # the peer whose enqueueing is durable as well

Rates = dict[str, list[float]]


def figures(own: P2PQueue, peers: Mapping[str, Contender], targets: Mapping[str, Target], *, rounds: int, count: int) -> list[Figure]:
    """The rows about enqueueing: against SqliteHuey with their targets, against the others for comparison."""
    one = _measure({own.name: own.one_by_one, **{name: peer.one_by_one for name, peer in peers.items()}}, rounds, count)
    slowly = _measure({own.name: own.one_by_one_in_asyncio}, rounds, count)
    producers = PRODUCERS
    many_of = {own.name: partial(own.from_many, producers=producers)} | {
        name: partial(peer.from_many, producers=producers) for name, peer in peers.items()
    }
    many = _measure(many_of, rounds, count - count % producers)
    bulk = _measure({own.name: own.bulk, **{name: peer.bulk for name, peer in peers.items()}}, rounds, count)
    for name in peers:  # threads make some peers slower than one producer is: they are credited with the better
        many[name] = max(many[name], one[name], key=lambda values: Sample.of(values).median)
        bulk[name] = max(bulk[name], one[name], key=lambda values: Sample.of(values).median)
    return [
        _durability(own.folder, rounds * 50),
        *_rows("enqueue one by one, sync", own.name, one, targets),
        *_rows("enqueue one by one, asyncio", own.name, one | slowly, targets),
        *_rows(f"enqueue from {producers} producers", own.name, many, targets),
        *_rows("enqueue 1,000 a call", own.name, bulk, targets),
    ]


def _durability(folder: Path, times: int) -> Figure:
    """What this disk takes to make 4 KiB durable: each commit waits for it once, ours and Huey's alike."""
    sync = getattr(os, "fdatasync", os.fsync)
    with (folder / "durable").open("wb", buffering=0) as file:
        file.write(bytes(4096 * 64))
        sync(file.fileno())
        taken = []
        for turn in range(times):
            file.seek(turn % 64 * 4096)
            file.write(bytes(4096))
            taken.append(1e6 * timed(lambda: sync(file.fileno())))
    return Figure("for comparison: fdatasync of 4 KiB", Sample.of(taken).median, "us", spread=Sample.of(taken).spread)


def _measure(contenders: Mapping[str, Callable[[int], float]], rounds: int, count: int) -> Rates:
    rates: Rates = {name: [] for name in contenders}
    for produce in contenders.values():
        produce(max(64, count // 20))  # what is made on first use is made now
    for _ in range(rounds):
        for name, produce in contenders.items():
            rates[name].append(count / produce(count))
    return rates


def _rows(name: str, own: str, rates: Rates, targets: Mapping[str, Target]) -> list[Figure]:
    ours = Sample.of(rates[own])
    rows = []
    for peer in sorted(set(rates) - {own}, key=lambda peer: peer != YARDSTICK):
        target = targets.get(name, Target()) if peer == YARDSTICK else Target()
        rows.append(Figure(name, ours.median, "jobs/s", target, peer, Sample.of(rates[peer]).median, ours.spread))
    return rows or [Figure(name, ours.median, "jobs/s", targets.get(name, Target()), spread=ours.spread)]
