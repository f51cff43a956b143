"""How much of a bucket's speed is left when files go through it sealed, and come back checked and opened?

    python -m benchmarks.buckets [--quick] [--json] [--endpoint URL]

One large file is put into a bucket by what a node uses for that, and fetched from there onto another shelf; beside it
obstore alone puts and gets as many bytes, in objects of the same size and as many at a time, without sealing, hashing
or a disk. Both meet the same server: moto's, started here, or the one that `--endpoint` names, with a bucket `bucket`
and the keys of the environment. Prints the table of figures with their targets; exits 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, Sample, as_json, load_targets, table, verdict
from benchmarks.transfers import make_file, roomy
from p2pqueue.home import Home
from p2pqueue.payload.fetching.fetch import Fetcher
from p2pqueue.payload.origins.bucket import Bucket
from p2pqueue.payload.origins.bucket_client import PARALLEL, BucketClient
from p2pqueue.payload.shelf import Shelf
from p2pqueue.peers.shards.uploading import Uploader

MIB = 1024**2
WARM_UP = 16 * MIB  # bytes that pass before anything is measured: the server loads what it needs at its first requests
BUCKET = "bucket"
SPACE_KEY = bytes(32)
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
READY = 30.0  # seconds within which the server must answer


@contextmanager
def server() -> Iterator[str]:
    """A server that speaks S3, in a process of its own; gives its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], **quiet)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + READY
    try:
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > end or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


async def ours(bucket: Bucket, shelves: Sequence[Shelf], path: Path) -> tuple[float, float]:
    """The seconds that a file takes to the bucket, and back onto another shelf."""
    client = BucketClient(bucket, is_last_resort=False)
    capability = (await asyncio.to_thread(shelves[0].ingest, path)).capability

    async def nothing(*_: Any) -> None:
        pass

    async def wanted() -> list[str]:
        return [capability]

    uploader = Uploader(shelves[0], client, wanted, note=nothing, take=nothing, forbids=lambda: None)
    begun = time.monotonic()
    task = asyncio.get_running_loop().create_task(uploader.run())
    try:
        await uploader.settled()
    finally:
        task.cancel()
    up = time.monotonic() - begun
    begun = time.monotonic()
    await Fetcher(shelves[1], lambda: [client]).fetch(capability)
    return up, time.monotonic() - begun


async def alone(bucket: Bucket, size: int) -> tuple[float, float]:
    """The seconds that as many bytes take by obstore alone."""
    body = os.urandom(MIB)
    names = [f"alone/{number}" for number in range(size // MIB)]

    async def each(act: Callable[[str], Awaitable[object]]) -> float:
        left, begun = iter(names), time.monotonic()

        async def work() -> None:
            for name in left:
                await act(name)

        async with asyncio.TaskGroup() as group:
            for _ in range(PARALLEL):
                group.create_task(work())
        return time.monotonic() - begun

    store, obstore = bucket._store, bucket._obstore

    async def put(name: str) -> None:
        await obstore.put_async(store, name, body, use_multipart=False)

    async def get(name: str) -> None:
        await (await obstore.get_async(store, name)).bytes_async()

    return await each(put), await each(get)


async def measure(folder: Path, size: int, rounds: int) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Ours and obstore alone by turns; now the one is first, now the other."""
    found = []
    bucket = Bucket(f"s3://{BUCKET}/warm-up")
    await alone(bucket, WARM_UP)
    await empty(bucket)
    for number in range(rounds):
        shelves = []
        for name in ("from", "to"):
            home = Home(folder / f"{name}-{number}")
            home.ensure()
            shelves.append(Shelf(home, SPACE_KEY, quota=4 * size, reserve=0))
        bucket = Bucket(f"s3://{BUCKET}/{number}")
        path = make_file(folder, size)
        took = {}
        for mine in (True, False) if number % 2 else (False, True):
            took[mine] = await (ours(bucket, shelves, path) if mine else alone(bucket, size))
            await empty(bucket)
        found.append((took[True], took[False]))
        for shelf in shelves:
            shelf.close()
        path.unlink()
    return found


async def empty(bucket: Bucket) -> None:
    """Removes all that was put there: the server keeps it in memory."""
    for each in await bucket.listed(""):
        await bucket.delete(each.name)


def figures(folder: Path, size: int, rounds: int) -> Iterator[Figure]:
    """Both ways."""
    targets = load_targets("buckets")
    found = asyncio.run(measure(folder, size, rounds))
    for place, way in enumerate(("up to", "down from")):
        name = f"a large file {way} a bucket"
        mine, theirs = (Sample.of(size / times[who][place] / 1e6 for times in found) for who in (0, 1))
        yield Figure(name, mine.median, "MB/s", targets[name], "obstore alone", theirs.median, mine.spread)


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller files")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    parser.add_argument("--endpoint", help="a server that is there already")
    chosen = parser.parse_args()
    size, rounds = (128 * MIB, 3) if chosen.quick else (1024 * MIB, 3)
    with tempfile.TemporaryDirectory(prefix="p2pq-", dir=roomy(size)) as folder:
        if chosen.endpoint:
            os.environ["AWS_ENDPOINT_URL"] = chosen.endpoint
            found = list(figures(Path(folder), size, rounds))
        else:
            with server() as url:
                os.environ |= {"AWS_ENDPOINT_URL": url, **KEYS}
                found = list(figures(Path(folder), size, rounds))
    print(as_json(found) if chosen.json else table(found))
    print(verdict(found), file=sys.stderr)
    return 1 if any(figure.holds is False for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main())
