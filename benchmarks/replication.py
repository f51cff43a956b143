"""How fast does a replica write, merge and converge on one device, beside SqliteHuey's enqueueing in the same run?

    python benchmarks/replication.py [--quick] [--json]

Prints the table of figures with their targets; exits 1 when one does not hold. Every commit is durable
and every `spec` signed. Merged are writes as a node decodes them, with their signatures checked; the check is a row of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, Sample, Target, as_json, load_targets, table, verdict
from benchmarks.yardstick import judged
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity, create
from p2pqueue.jobs.tables import TABLES
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.spans import Spans
from p2pqueue.replica.store import Store
from p2pqueue.replica.syncing.effects import Page, ReadUnsent
from p2pqueue.replica.syncing.messages import MAX_BYTES, MAX_WRITES, RoundId, Writes
from p2pqueue.replica.syncing.peering import Peering
from p2pqueue.replica.wire.codec import decode, encode
from p2pqueue.replica.wire.columns import AlikeRows, WellFormed, join, numbers_of
from p2pqueue.replica.wire.cutting import cut
from p2pqueue.replica.write import Write
from p2pqueue.replica.writer import Put, Writer

BATCH = 1_000
COROUTINES = 64
WINDOW = 8  # batches that are on their way
SPEC = (
    "default",
    "echo",
    b"\x81\xa1x\x01",
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    "owner",
    "device",
    1,
    b"\x80",
)
QUEUED = ("queued", 0, 0, None, None, None, None, None, None, None, None)
RUNNING = ("running", 1, 1, "device", "label", 1, None, None, None, None, None)
SUCCEEDED = ("succeeded", 1, 1, "device", "label", 1, 2, None, "run", None, None)
RUN = ("job", 1, "device", "label", 1, None, "running", None, None, None, None, None, None, None, None)
ENDED = ("job", 1, "device", "label", 1, 2, "succeeded", b"\x01", None, None, None, None, 0.001, None, None)


class Scene:
    """Homes of one benchmark, each with a space of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def home(self) -> tuple[Home, Identity]:
        """A fresh home."""
        self._count += 1
        home = Home(self._folder / f"home-{self._count}")
        home.ensure()
        return home, create(home, space_name="bench", label="bench")

    def replica(self) -> Replica:
        """A fresh replica with the tables of a queue."""
        home, identity = self.home()
        return Replica.open(home.replica_file, tables=TABLES, identity=identity)


def one(writer: Writer) -> str:
    """A job, as `enqueue` writes it."""
    job = writer.new_id()
    writer.put_many("jobs", (Put(job, "spec", SPEC, 0),))
    return job


def many(writer: Writer) -> list[str]:
    """A thousand jobs, as `enqueue_many` writes them."""
    jobs = [writer.new_id() for _ in range(BATCH)]
    writer.put_known("jobs", "spec", [Put(job, "spec", SPEC, 0) for job in jobs], new=True)
    return jobs


def figures(folder: Path, targets: Mapping[str, Target], *, quick: bool) -> Iterator[Figure]:
    """All rows; rounds of ours and of the peer alternate."""
    scene, rounds = Scene(folder), 3 if quick else 7
    count = 640 if quick else 4_000

    def row(name: str, values: list[float], unit: str, peer: list[float] | None = None) -> Figure:
        sample, other = Sample.of(values), Sample.of(peer).median if peer else None
        return Figure(name, sample.median, unit, targets.get(name, Target()), "Huey SQLite" if peer else None, other, sample.spread)

    writing = asyncio.run(_writing(scene, folder, rounds, count))
    huey = writing.pop("huey", None)
    for name, values in writing.items():
        yield row(name, values, "jobs/s", huey)
    merged, checking, writes = merging(scene, rounds, 4_000 if quick else 20_000)
    yield row("merge into an empty replica, batches of 1,000", merged, "writes/s")
    yield row("check signatures afterwards", checking, "signatures/s")
    yield row("claim and finish 64 jobs a commit, per register write", _turning(scene, rounds, 10 if quick else 40), "us of CPU")
    yield row(f"two replicas change the same {writes:,} registers, until equal", _converging(scene, rounds, writes), "s")


async def _writing(scene: Scene, folder: Path, rounds: int, count: int) -> dict[str, list[float]]:
    replica = scene.replica()
    home, identity = scene.home()
    store = await Store.open(home.replica_file, tables=TABLES, identity=identity)
    huey = _huey(folder / "huey.db")
    rates: dict[str, list[float]] = {}

    async def coroutine(times: int) -> None:
        for _ in range(times):
            await store.write(one)

    async def asynchronously(producers: int, times: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(producers):
                group.create_task(coroutine(times // producers))

    for _ in range(rounds):
        if huey is not None:
            rates.setdefault("huey", []).append(_rate(lambda: [huey() for _ in range(count)], count))
        rates.setdefault("one put a commit, sync", []).append(_rate(lambda: [replica.write(one) for _ in range(count)], count))
        for name, producers, times in (("one put a commit, asyncio", 1, count), (f"from {COROUTINES} coroutines", COROUTINES, 4 * count)):
            start = time.perf_counter()
            await asynchronously(producers, times)
            rates.setdefault(name, []).append(times // producers * producers / (time.perf_counter() - start))
        batches = max(2, count // 400)
        bulk = _rate(lambda batches=batches: [replica.write(many) for _ in range(batches)], batches * BATCH)  # type: ignore[misc]
        rates.setdefault("1,000 puts a commit", []).append(bulk)
    await store.close()
    replica.close()
    return rates


def _huey(path: Path) -> Callable[[], object] | None:
    try:
        from huey import SqliteHuey
    except ImportError as error:
        print(f"not measured: Huey SQLite ({error})", file=sys.stderr)
        return None
    huey = SqliteHuey(filename=str(path), fsync=True)

    @huey.task()  # type: ignore[untyped-decorator]
    def noop() -> None:
        pass

    return lambda: noop()


def merging(scene: Scene, rounds: int, jobs: int) -> tuple[list[float], list[float], int]:
    """Register writes merged, and signatures checked afterwards, in a second; and how many rows were merged."""

    def make(writer: Writer) -> None:
        ids = [writer.new_id() for _ in range(BATCH // 2)]
        writer.put_many(
            "jobs", [put for job in ids for put in (Put(job, "spec", SPEC), Put(job, "tune", ("title", 1)), Put(job, "state", QUEUED))]
        )

    source = scene.replica()
    for _ in range(jobs // (BATCH // 2)):
        source.write(make)
    received = _received(source)
    source.close()
    who, number = received.single, len(received)
    merged, checking = [], []
    for _ in range(rounds):
        merged.append(number / asyncio.run(_merge(*scene.home(), who, received)))
        with scene.replica() as target:
            target.merge([write._replace(checked=False) for write in received])
            checking.append(_rate(lambda target=target: target.verify_pending(jobs), jobs))  # type: ignore[misc]
    return merged, checking, number // 6


def _received(source: Replica) -> WellFormed:
    """All writes of a replica as a device has them that had nothing: sent, packed, read, and their signatures checked."""
    session, peering, held = b"benchmrk", Peering(source, "peer"), dict[bytes, Spans]()
    single: list[Write] = []
    alike: list[AlikeRows] = []
    more = True
    while more:
        told = {author: tuple(spans) for author, spans in held.items()}
        page = peering.answer(ReadUnsent(1, {}, told, False, 4, MAX_WRITES, MAX_BYTES))
        assert isinstance(page, Page)
        for message in page.messages:
            for author, numbers in numbers_of(message).items():
                held.setdefault(author, Spans()).add_all(numbers)
            packed = encode(Writes(RoundId(session, 1), session, 1, message), deflate=True)
            read = decode(packed, holds=lambda authors, bodies, signatures: [True] * len(bodies))
            assert isinstance(read, Writes)
            assert isinstance(read.writes, WellFormed)
            single += read.writes.single
            alike += read.writes.alike
        more = page.rest == "more"
    return WellFormed(single, join(alike))


async def _merge(home: Home, identity: Identity, who: Sequence[Write], writes: WellFormed) -> float:
    """Seconds until all are merged and durable: batches come as they are decoded, as many at once as a session has messages."""
    store = await Store.open(home.replica_file, tables=TABLES, identity=identity)
    await store.merge(who)
    window = asyncio.Semaphore(WINDOW)

    async def merge(batch: WellFormed) -> None:
        await store.merge(batch)
        window.release()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for batch in cut(WellFormed((), writes.alike), max_writes=BATCH, max_bytes=1 << 30):
            await window.acquire()
            group.create_task(merge(batch))
    took = time.perf_counter() - start
    await store.close()
    return took


def _turning(scene: Scene, rounds: int, commits: int) -> list[float]:
    """Claims and finishes as a worker does: four register writes a job, in two commits."""

    def claim(writer: Writer, batch: list[str]) -> None:
        states = [Put(job, "state", RUNNING, 0, 0, 1) for job in batch]
        writer.put_known("jobs", "state", states)
        writer.put_known("runs", "run", [Put(f"{job}/0/1/{'a' * 16}", "run", RUN, 0) for job in batch], new=True)

    def finish(writer: Writer, batch: list[str]) -> None:
        writer.put_known("jobs", "state", [Put(job, "state", SUCCEEDED, 0, 2, 0, True) for job in batch])
        writer.put_known("runs", "run", [Put(f"{job}/0/1/{'a' * 16}", "run", ENDED, 0) for job in batch])

    costs = []
    with scene.replica() as replica:
        for _ in range(rounds):
            jobs = [job for _ in range(max(1, commits * COROUTINES // BATCH)) for job in replica.write(many)]
            batches = [jobs[start : start + COROUTINES] for start in range(0, len(jobs) - COROUTINES + 1, COROUTINES)][:commits]
            start = time.process_time()
            for batch in batches:
                replica.write(partial(claim, batch=batch))
                replica.write(partial(finish, batch=batch))
            costs.append((time.process_time() - start) / (len(batches) * COROUTINES * 4) * 1e6)
    return costs


def _converging(scene: Scene, rounds: int, count: int) -> list[float]:
    def edit(replica: Replica, keys: list[str], text: str) -> None:
        for start in range(0, len(keys), BATCH):
            part = keys[start : start + BATCH]
            replica.write(lambda writer, part=part: writer.put_many("jobs", [Put(key, "tune", (text, 1), 0) for key in part]))  # type: ignore[misc]

    times = []
    keys = [f"key-{number}" for number in range(count)]
    for _ in range(rounds):
        with scene.replica() as left, scene.replica() as right:
            edit(left, keys, "left")
            edit(right, keys, "right")
            start = time.perf_counter()
            for sender, receiver in ((left, right), (right, left)):
                receiver.merge([write for write in sender.live_writes(above={}, limit=2 * count) if write.table == "jobs"])
            times.append(time.perf_counter() - start)
            assert _titles(left) == _titles(right)
    return times


def _titles(replica: Replica) -> list[tuple[str, str]]:
    return replica.read(lambda connection: connection.execute("SELECT id, title FROM jobs ORDER BY id").fetchall())


def _rate(run: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    run()
    return count / (time.perf_counter() - start)


def main(arguments: list[str]) -> int:
    """Measures, prints, and says by its exit status whether every target holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="p2pq-") as folder:
        found = list(judged(lambda: figures(Path(folder), load_targets("replication"), quick=options.quick)))
    if options.json:
        print(as_json(found))
    else:
        print(table(found))
    print(verdict(found), file=sys.stderr)
    return 1 if any(figure.holds is False for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
