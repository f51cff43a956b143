"""Do two devices that were parted come to hold the same again, after both went on working?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from p2pqueue.demo.device import Device, StoryBroken, until
from p2pqueue.demo.stage import Stage

if TYPE_CHECKING:
    from p2pqueue.demo.story import Narrator

JOBS = 3  # that each side finishes on its own
LIMIT = 60.0  # seconds for what takes less than ten


@dataclass(frozen=True)
class Told:
    """What came true; times in seconds, counted from the cut and from the mending."""

    parted_by: str
    noticed_after: float
    finished_apart: dict[str, int]
    equal_after: float
    digest: str
    jobs: int


def play(stage: Stage, narrator: Narrator, *, back: Device) -> Told:
    """Tells it, after the device that was killed has come `back`. Raises `StoryBroken`."""
    narrator.step(f"Switching {back.name} on again; it learns what it has missed")
    stage.start_nodes(back)
    back.await_links(stage.devices, within=LIMIT)
    common = str(stage.laptop.command("enqueue", "note", "text=both know this one", "--delay", "1h")["id"])
    _await_equal(stage)
    narrator.fact("all three hold the same")
    parted_by, noticed = _part(stage, narrator)
    finished = _work_apart(stage, narrator, common)
    equal_after = _join(stage, narrator)
    jobs = _compare(stage, narrator, common)
    return Told(parted_by, noticed, finished, equal_after, stage.laptop.held()[0], jobs)


def _part(stage: Stage, narrator: Narrator) -> tuple[str, float]:
    alone = stage.desktop
    begun = time.monotonic()
    if stage.network.cut(alone.name):
        parted_by = "the cable"
        narrator.step(f"Pulling the cable of {alone.name}")
    else:
        parted_by = "p2pqueue offline"
        narrator.step(f"Parting {alone.name} from the others: `p2pqueue offline`")
        alone.command("offline")
    until(
        lambda: not alone.paths() and alone.name not in stage.laptop.paths(),
        within=LIMIT,
        expected=f"both sides to miss {alone.name}'s link",
    )
    seconds = time.monotonic() - begun
    narrator.fact(f"both sides noticed within {seconds:.1f} s")
    return parted_by, seconds


def _work_apart(stage: Stage, narrator: Narrator, common: str) -> dict[str, int]:
    narrator.step("Both sides go on working: they enqueue, finish and cancel jobs")
    finished: dict[str, int] = {}
    for device in (stage.laptop, stage.desktop):
        made = [str(device.command("enqueue", "note", f"text={device.name} {number}")["id"]) for number in range(JOBS)]
        dropped = str(device.command("enqueue", "note", "text=not needed after all", "--delay", "1h")["id"])
        device.command("cancel", dropped)
        for job in made:
            device.await_status(job, "succeeded", within=LIMIT)
        finished[device.name] = len(made)
        narrator.fact(f"{device.name}'s side: {len(made)} jobs enqueued and finished, another one cancelled")
    stage.desktop.command("pause", common)
    stage.laptop.command("cancel", common)
    narrator.fact("of one job that both sides know: paused by desktop, cancelled by laptop")
    if stage.laptop.held() == stage.desktop.held():
        raise StoryBroken("the two sides were expected to hold different things while they are parted")
    return finished


def _join(stage: Stage, narrator: Narrator) -> float:
    begun = time.monotonic()
    if stage.network.mend(stage.desktop.name):
        narrator.step("Putting the cable back")
    else:
        narrator.step("Joining them again: `p2pqueue online`")
        stage.desktop.command("online")
    _await_equal(stage)
    seconds = time.monotonic() - begun
    narrator.fact(f"digests and heads of all three are equal after {seconds:.1f} s: {stage.laptop.held()[0][:16]}…")
    return seconds


def _compare(stage: Stage, narrator: Narrator, common: str) -> int:
    first, *others = (_jobs(device) for device in stage.devices)
    for device, other in zip(stage.devices[1:], others, strict=True):
        if other != first:
            raise StoryBroken(
                f"laptop and {device.name} were expected to list the same jobs, each with the same values: {_difference(first, other)}"
            )
    status = stage.desktop.job(common)["status"]
    if status != "cancelled":
        raise StoryBroken(f"the job that one side paused and the other cancelled was expected to be cancelled everywhere; it is {status}")
    narrator.fact(f"all three list the same {len(first)} jobs; the one that was paused here and cancelled there is cancelled everywhere")
    return len(first)


def _await_equal(stage: Stage) -> None:
    until(
        lambda: len({device.held() for device in stage.devices}) == 1, within=LIMIT, expected="equal digests and heads on all three devices"
    )


def _jobs(device: Device) -> list[dict[str, Any]]:
    """All jobs as `list` shows them, without what is each device's own: why they wait, and when anything was last heard of them."""
    listed = device.command("list", "--limit", "1000")["jobs"]
    return [{name: value for name, value in each.items() if name not in ("why", "updated_at")} for each in listed]


def _difference(first: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    """The first thing in which two lists differ."""
    if [each["id"] for each in first] != [each["id"] for each in other]:
        return f"{len(first)} jobs here, {len(other)} there"
    differ = ((one, two, name) for one, two in zip(first, other, strict=True) for name in one if one[name] != two.get(name))
    one, two, name = next(differ)
    return f"{name} of job {one['id'][:13]} is {one[name]!r} here, {two.get(name)!r} there"
