"""Does a job go on when its worker is killed in the middle? A third device takes it over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from p2pqueue.demo.device import Device, StoryBroken, until
from p2pqueue.demo.stage import STALE_AFTER, Stage

if TYPE_CHECKING:
    from p2pqueue.demo.story import Narrator

KILL_AT = 0.5  # of the work
CHILDREN_GONE = 2.0  # seconds after which nothing of a killed node may live
TAKEN_LIMIT = 60.0  # seconds until the job is taken over; it takes the lease and a moment
ENDED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Told:
    """What came true; times in seconds, transfers in bytes by lane."""

    job: str
    worker: str
    killed_at: float
    children_gone_after: float
    taken_over_by: str
    taken_over_after: float
    attempts: list[str]
    input_came_by: dict[str, dict[str, int]]


def play(stage: Stage, narrator: Narrator, job: str) -> Told:
    """Tells it of a job that was just enqueued on laptop. Raises `StoryBroken`."""
    narrator.step("Watching it on laptop while another device does it, and killing that one by signal 9 half-way")
    reached = _follow(stage.laptop, narrator, job, until=lambda event: (event.get("progress") or 0.0) >= KILL_AT)
    fraction = float(reached.get("progress") or 0.0)
    if reached.get("status") != "running":
        raise StoryBroken(f"the job was expected to run until its worker is killed; it was {reached.get('status')}: {reached.get('error')}")
    worker = stage.device(str(reached["worker_label"]))
    came_by = {worker.name: worker.carried()}
    count, gone_after = worker.kill_node()
    killed = time.monotonic()
    why = ", as the strongest" if worker is stage.tower else ""
    narrator.fact(f"{worker.name} took it{why}; the video came there by {lanes(came_by[worker.name])}")
    narrator.fact(f"{worker.name}'s node killed at {fraction:.0%}; its {count} child processes were gone after {gone_after:.2f} s")
    if gone_after > CHILDREN_GONE:
        raise StoryBroken(f"children were expected to be gone {CHILDREN_GONE:.0f} s after their node; it took {gone_after:.1f} s")
    narrator.step(
        f"Waiting until another takes it over: at once if its machine says that nobody listens there any more, else {STALE_AFTER} later"
    )
    heir, waited = _await_heir(stage, narrator, job, worker, killed)
    ended = _follow(stage.laptop, narrator, job, until=lambda event: event.get("status") in ENDED)
    if ended.get("status") != "succeeded":
        raise StoryBroken(f"the job was expected to succeed; it ended as {ended.get('status')}: {ended.get('error')}")
    came_by[heir.name] = heir.carried()
    narrator.fact(f"the video came to {heir.name} by {lanes(came_by[heir.name])}")
    attempts = _check_attempts(stage.laptop, narrator, job)
    return Told(job, worker.name, fraction, gone_after, heir.name, waited, attempts, came_by)


def lanes(carried: Mapping[str, int]) -> str:
    """By which lanes a file came, in words."""
    return ", ".join(f"{lane} ({size / 1e6:.1f} MB)" for lane, size in carried.items()) or "no lane: it was there already"


def _await_heir(stage: Stage, narrator: Narrator, job: str, worker: Device, killed: float) -> tuple[Device, float]:
    def other() -> str | None:
        shown = stage.laptop.job(job)
        return shown["worker_label"] if shown["status"] in ("running", *ENDED) and shown["worker_label"] != worker.name else None

    heir = stage.device(str(until(other, within=TAKEN_LIMIT, expected="a takeover of the job by another device")))
    waited = time.monotonic() - killed
    narrator.fact(f"{heir.name} took over the job from {worker.name}, {waited:.1f} s after the kill")
    return heir, waited


def _check_attempts(device: Device, narrator: Narrator, job: str) -> list[str]:
    attempts = device.job(job)["attempts"]
    for number, attempt in enumerate(attempts, 1):
        error = f" – {attempt['error']}" if attempt.get("error") else ""
        narrator.fact(f"attempt {number} on {attempt['worker_label']}: {attempt['status']}{error}")
    words = [str(attempt["status"]) for attempt in attempts]
    if words.count("succeeded") != 1 or "lost" not in words:
        raise StoryBroken(f"one attempt was expected to be lost and one to succeed; they are: {', '.join(words)}")
    return words


def _follow(device: Device, narrator: Narrator, job: str, *, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for last in device.watch(job):
        narrator.progress(last.get("progress") or 0.0, _phase(last))
        if until(last):
            break
    return last


def _phase(event: dict[str, Any]) -> str:
    if event.get("status") != "running":
        return str(event.get("status") or "")
    begins = event.get("phase") in (None, "", "Queued")
    return f"{'Fetching the video' if begins else event['phase']} on {event.get('worker_label')}"
