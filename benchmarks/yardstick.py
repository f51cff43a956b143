"""How much slower is this machine, now, than the one for which the absolute targets were set?

Absolute times don't travel, and a machine that others use is not as fast at noon as at night. Three things that have
nothing of ours in them were measured when the targets were set; they are measured again around each section, and how
much longer they take in the median scales its absolute targets. Ratios to a peer of the same run need none of this.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from nacl.signing import SigningKey

from benchmarks.figure import Figure

REFERENCE = {"start of bare Python": 10e-3, "Ed25519 signature": 15e-6, "Ed25519 verification": 40e-6}  # seconds
_STARTS = 5
_BLOCKS, _BLOCK = 9, 30  # of signatures and verifications: the median of the blocks counts


def slowness() -> float:
    """How many times longer than on the reference machine things take now; 1 where they are as fast."""
    key = SigningKey.generate()
    message = bytes(300)
    signature = key.sign(message).signature
    taken = {
        "start of bare Python": _each(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), _STARTS, 1),
        "Ed25519 signature": _each(lambda: key.sign(message), _BLOCKS, _BLOCK),
        "Ed25519 verification": _each(lambda: key.verify_key.verify(message, signature), _BLOCKS, _BLOCK),
    }
    return statistics.median(taken[name] / seconds for name, seconds in REFERENCE.items())


def judged(measure: Callable[[], Iterable[Figure]]) -> Iterator[Figure]:
    """The figures of one section, with how slow the machine was around it."""
    before = slowness()
    figures = list(measure())
    mean = (before + slowness()) / 2
    yield Figure("for comparison: this machine beside the reference", mean, "x slower")
    for figure in figures:
        yield replace(figure, slowness=mean)


def _each(run: Callable[[], object], blocks: int, block: int) -> float:
    taken = []
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(block):
            run()
        taken.append((time.perf_counter() - start) / block)
    return statistics.median(taken)
