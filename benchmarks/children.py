"""How fast do worker processes start, answer and end, and how light are they?

    python benchmarks/children.py [--quick] [--json]

Prints the table of figures with their targets; exits 1 when one does not hold. Children run from bytecode, as those of
an installed package do, whatever PYTHONDONTWRITEBYTECODE says. The start stands beside that of a bare interpreter in
the same run, turn by turn: on a busy machine only that ratio means anything.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figure import Figure, Sample, Target, as_json, table, verdict
from p2pqueue import wire
from p2pqueue.workers.children.protocol import Assignment, Outcome
from p2pqueue.workers.running import processes
from p2pqueue.workers.running.pool import Pool
from p2pqueue.workers.running.warm import WarmChild

HANDLERS = """
import os, signal, sys, time
from p2pqueue import Queue

queue = Queue("bench")

@queue.task
def echo(value: int = 0) -> int:
    return value

@queue.task
def sleep(deaf: bool = False) -> None:
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(60)

@queue.task
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@queue.task
def chatter(megabytes: int) -> None:
    block = b"x" * 99 + b"\\n"
    for _ in range(megabytes * 10):
        sys.stdout.buffer.write(block * 1000)
"""

TARGETS = {
    "start, bare": Target(at_most=21),
    "start, with a queue": Target(at_most=21),
    "round trip p50, hot": Target(at_most=0.3),
    "idle child, bare": Target(at_most=20, aim="12.5"),
    "idle child, with a queue": Target(at_most=20),
    "stop of a deaf handler": Target(at_most=2500),
    "after a killed node": Target(at_most=2000),
}
_numbers = itertools.count(1)


def _assignment(folder: Path, task: str, **args: object) -> Assignment:
    key = f"attempt-{next(_numbers)}"
    return Assignment(
        key=key, job_id=key, task=task, attempt=1, args=wire.pack(args), workdir=str(folder / "work" / key), log_file=str(folder / key)
    )


async def _run(pool: Pool, assignment: Assignment) -> Outcome:
    async def keep(*_: object) -> None:
        return None

    return await pool.run(assignment, on_progress=lambda *_: None, on_checkpoint=keep, on_request=keep)


async def _timed(work: Callable[[], Awaitable[object]], count: int, *, pause: float = 0.0) -> Sample:
    """Milliseconds of so many runs."""
    found = []
    for _ in range(count):
        await asyncio.sleep(pause)
        begin = time.perf_counter()
        await work()
        found.append(1000 * (time.perf_counter() - begin))
    return Sample.of(found)


async def _starts(application: str | None, folder: Path, count: int) -> tuple[Sample, Sample, float]:
    """Milliseconds from exec to ready, those of a bare interpreter, and the megabytes of the last child while it idles."""
    weight = 0.0

    async def start() -> None:
        nonlocal weight
        child = WarmChild(application, folder)
        await child.ready()
        weight = _resident(child.pid)
        children.append(child)

    async def start_bare() -> None:
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "pass"], check=True)

    children: list[WarmChild] = []
    await start()  # writes the bytecode
    times: list[float] = []
    bare: list[float] = []
    for _ in range(count):
        times += (await _timed(start, 1)).values
        bare += (await _timed(start_bare, 1)).values
    for child in children:
        await child.end(set())
    return Sample.of(times), Sample.of(bare), weight


async def _stops(pool: Pool, folder: Path, count: int, **args: object) -> Sample:
    """Milliseconds from the stop of a sleeping handler until all its processes are gone."""
    found = []
    for _ in range(count):
        assignment = _assignment(folder, "sleep", **args)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(_run(pool, assignment))
            while not Path(assignment.log_file).exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.002)
            begin = time.perf_counter()
            pool.stop(assignment.key, "cancelled")
            await running
        found.append(1000 * (time.perf_counter() - begin))
    return Sample.of(found)


def _killed_node(application: str, folder: Path, count: int) -> Sample:
    """Milliseconds from the kill −9 of a process with a pool of two until none of its children lives."""
    program = (
        "import asyncio, sys; from pathlib import Path; from p2pqueue.workers.running.pool import Pool\n"
        "async def main():\n"
        "    pool = Pool(sys.argv[1], home=Path(sys.argv[2]), size=2); await pool.start(); print(flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    found = []
    for _ in range(count):
        words = [sys.executable, "-c", program, application, str(folder)]
        node = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[1])
        assert node.stdout is not None
        node.stdout.readline()
        node.stdout.close()
        children = processes.descendants(node.pid)
        begin = time.perf_counter()
        node.kill()
        node.wait()
        while any(processes.is_alive(child.pid, child.started) for child in children):
            time.sleep(0.001)
        found.append(1000 * (time.perf_counter() - begin))
    return Sample.of(found)


def _resident(pid: int) -> float:
    """Megabytes of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(folder: Path, *, quick: bool) -> list[Figure]:
    """All figures."""
    count = 5 if quick else 20
    application = folder / "handlers.py"
    application.write_text(HANDLERS)
    bare, python, bare_weight = await _starts(None, folder, count)
    full, python_again, full_weight = await _starts(str(application), folder, count)
    pool = Pool(str(application), home=folder, size=1)
    await pool.start()
    await _timed(lambda: _run(pool, _assignment(folder, "echo")), 20)
    hot = await _timed(lambda: _run(pool, _assignment(folder, "echo")), 50 * count)
    cool = await _timed(lambda: _run(pool, _assignment(folder, "echo")), count, pause=0.1)
    stops = await _stops(pool, folder, count)
    deaf = await _stops(pool, folder, 2, deaf=True)
    crashes = await _timed(lambda: _run(pool, _assignment(folder, "die")), count)
    megabytes = 20 if quick else 100
    chatter = await _timed(lambda: _run(pool, _assignment(folder, "chatter", megabytes=megabytes)), 3)
    await pool.close()
    killed = await asyncio.to_thread(_killed_node, str(application), folder, count)

    def row(name: str, value: float, unit: str, spread: tuple[float, float] | None = None, python: Sample | None = None) -> Figure:
        peer, peer_value = (None, None) if python is None else ("python -c pass", python.median)
        return Figure(name, value, unit, TARGETS.get(name, Target()), peer, peer_value, spread)

    return [
        row("start, bare", bare.median, "ms", bare.spread, python),
        row("start, with a queue", full.median, "ms", full.spread, python_again),
        row("round trip p50, hot", hot.median, "ms", hot.spread),
        row("round trip p99, hot", hot.percentile(0.99), "ms"),
        row("round trip p50, after 100 ms of idling", cool.median, "ms", cool.spread),
        row("idle child, bare", bare_weight, "MB"),
        row("idle child, with a queue", full_weight, "MB"),
        row("stop of a sleeping handler", stops.median, "ms", stops.spread),
        row("stop of a deaf handler", deaf.median, "ms", deaf.spread),
        row("crash, with a new child", crashes.median, "ms", crashes.spread),
        row("output of a handler", megabytes / (chatter.median / 1000), "MB/s"),
        row("after a killed node", killed.median, "ms", killed.spread),
    ]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs, under a minute")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of the table")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="p2pqueue-bench-") as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "bytecode")
        figures = asyncio.run(measure(Path(folder), quick=chosen.quick))
    print(as_json(figures) if chosen.json else table(figures))
    print(verdict(figures), file=sys.stderr)
    return 1 if any(figure.holds is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
