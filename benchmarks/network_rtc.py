"""How fast are direct connections: bytes beside bare aiortc in the same run, signals beside them, connecting?

    python -m benchmarks.network_rtc [--quick] [--json]

Both ends are processes of their own on 127.0.0.1. Bare aiortc has its socket drained, the same buffer and the
same frames; runs of both alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, Sample, Target, as_json, load_targets, table, verdict
from benchmarks.losing import lose
from benchmarks.rtc_peer import Bare, ours, packed, unpacked
from p2pqueue.net.webrtc.bulk import BulkChannel
from p2pqueue.net.webrtc.channel import ControlChannel
from p2pqueue.net.webrtc.connection import RtcConnection, make_certificate
from p2pqueue.wire import FRAME_LIMIT

LOSSES = (0.001, 0.02)  # shares of the sender's datagrams
SIGNAL_EVERY = 0.005  # seconds
FRAME = bytes(FRAME_LIMIT)


def figures(targets: Mapping[str, Target], *, megabytes: int, rounds: int, connects: int) -> list[Figure]:
    """The rows about direct connections."""
    return asyncio.run(_figures(targets, megabytes=megabytes, rounds=rounds, connects=connects))


async def _figures(targets: Mapping[str, Target], *, megabytes: int, rounds: int, connects: int) -> list[Figure]:
    bare, bulk, beside = [], [], []
    lossy: dict[float, tuple[list[float], list[float]]] = {share: ([], []) for share in LOSSES}
    signals: list[float] = []
    alone: list[float] = []
    async with _other() as other:
        opening = [await other.time_to_connect() for _ in range(connects)]
        for _ in range(rounds):
            bare.append(await _run_bare(other, megabytes))
            bulk.append(await _run(other, megabytes))
            run, delays = await _run_with_signals(other, megabytes)
            beside.append(run)
            signals += delays
            alone += await _signals_alone(other)
            for share, (stock, tuned) in lossy.items():
                stock.append((await _run_bare(other, max(1, megabytes // 20), lost=share)).speed)
                tuned.append((await _run(other, max(1, megabytes // 20), lost=share)).speed)
        memory = other.memory()
    own, theirs = Sample.of(run.speed for run in bulk), Sample.of(run.speed for run in bare)
    own_cpu, their_cpu = Sample.of(run.processor for run in bulk), Sample.of(run.processor for run in bare)
    with_signals = Sample.of(run.speed for run in beside)
    rows = [
        ("WebRTC lane alone", own.median, "MB/s", "bare aiortc, drained", theirs.median, own.spread),
        (
            "WebRTC lane alone, processor time",
            own_cpu.median,
            "s/GB",
            "bare aiortc, drained",
            their_cpu.median,
            own_cpu.spread,
        ),
        *(
            (f"WebRTC lane alone, {share:.1%} lost", median(tuned), "MB/s", "bare aiortc, drained", median(stock), (min(tuned), max(tuned)))
            for share, (stock, tuned) in lossy.items()
        ),
        ("WebRTC lane alone, signals beside it", with_signals.median, "MB/s", None, None, with_signals.spread),
        ("signal beside a saturated bulk transfer, p50", Sample.of(signals).median, "ms", None, None, Sample.of(signals).spread),
        ("signal beside a saturated bulk transfer, p99", Sample.of(signals).percentile(0.99), "ms", None, None, None),
        ("signal over an idle control channel, p50", Sample.of(alone).median, "ms", None, None, Sample.of(alone).spread),
        ("direct connection open", Sample.of(opening).median, "ms", None, None, Sample.of(opening).spread),
        ("memory of the receiver", memory, "MB", None, None, None),
    ]
    return [
        Figure(name, value, unit, targets.get(name, Target()), peer, peer_value, spread)
        for name, value, unit, peer, peer_value, spread in rows
    ]


@dataclass(frozen=True)
class Run:
    """One transfer: MB/s, and the seconds of processor time a GB that both sides took."""

    speed: float
    processor: float


class Other:
    """The process at the other end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._certificate = make_certificate()

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Its next answer."""
        await self.tell(**request)
        return await self.answer()

    async def tell(self, **request: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()

    async def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer

    @asynccontextmanager
    async def bare(self) -> AsyncIterator[Bare]:
        end = Bare(controlling=True, certificate=self._certificate)
        remote = await self.ask(open="bare", signal=packed(await end.offer()))
        await end.connect(unpacked(remote["signal"]))
        await self.answer()
        try:
            yield end
        finally:
            await end.close()

    @asynccontextmanager
    async def connection(self, kind: str) -> AsyncIterator[RtcConnection]:
        end = ours(controlling=True, certificate=self._certificate)
        try:
            remote = await self.ask(open=kind, signal=packed(await end.offer()))
            await end.connect(unpacked(remote["signal"]))
            await self.answer()
            yield end
        finally:
            await end.close()

    async def time_to_connect(self) -> float:
        """Milliseconds from both offers to an open channel."""
        end = ours(controlling=True, certificate=self._certificate)
        try:
            remote = await self.ask(open="none", signal=packed(await end.offer()))
            began = time.perf_counter()
            await end.connect(unpacked(remote["signal"]))
            took = (time.perf_counter() - began) * 1000
            await self.answer()
        finally:
            await end.close()
        return took

    def busy(self) -> float:
        """Seconds of processor time that it and this process have taken so far."""
        theirs = psutil.Process(self._process.pid).cpu_times()
        return theirs.user + theirs.system + time.process_time()

    def memory(self) -> float:
        """Its resident megabytes."""
        return psutil.Process(self._process.pid).memory_info().rss / 1e6


@asynccontextmanager
async def _other() -> AsyncIterator[Other]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.rtc_peer", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Other(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _run_bare(other: Other, megabytes: int, *, lost: float = 0.0) -> Run:
    async with other.bare() as end:
        if lost:
            lose(end.path, end.ice, lost)
        return await _timed(other, end, megabytes)


async def _run(other: Other, megabytes: int, *, lost: float = 0.0) -> Run:
    async with other.connection("bulk") as end:
        if lost:
            lose(end._path, end._ice, lost)
        return await _timed(other, BulkChannel(end), megabytes)


async def _run_with_signals(other: Other, megabytes: int) -> tuple[Run, list[float]]:
    async with other.connection("control") as control, other.connection("bulk") as bulk:
        channel = ControlChannel(control, on_message=lambda topic, message: None, on_closed=lambda why: None)
        async with asyncio.TaskGroup() as group:
            signalling = group.create_task(_signal(channel))
            run = await _timed(other, BulkChannel(bulk), megabytes)
            signalling.cancel()
        return run, (await other.ask(delays=True))["delays"]


async def _signals_alone(other: Other) -> list[float]:
    async with other.connection("control") as control:
        channel = ControlChannel(control, on_message=lambda topic, message: None, on_closed=lambda why: None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await _signal(channel)
        delays: list[float] = (await other.ask(delays=True))["delays"]
        return delays


async def _signal(channel: ControlChannel) -> None:
    while True:
        channel.send_soon(1, time.monotonic_ns().to_bytes(8, "big"))
        await asyncio.sleep(SIGNAL_EVERY)


async def _timed(other: Other, end: Bare | BulkChannel, megabytes: int) -> Run:
    size = megabytes * 1_000_000 // FRAME_LIMIT * FRAME_LIMIT
    busy = other.busy()
    await other.ask(bytes=size)
    for _ in range(size // FRAME_LIMIT):
        await end.send(FRAME)
    seconds: float = (await other.answer())["seconds"]
    return Run(speed=size / seconds / 1e6, processor=(other.busy() - busy) / size * 1e9)


def main(arguments: list[str]) -> int:
    """Prints the table; gives 1 when a target does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    sizes = {"megabytes": 20, "rounds": 3, "connects": 5} if options.quick else {"megabytes": 100, "rounds": 9, "connects": 20}
    rows = figures(load_targets("network"), **sizes)
    print(as_json(rows) if options.json else f"{table(rows)}\n\n{verdict(rows)}")
    return 1 if any(row.holds is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
