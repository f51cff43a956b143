"""What does the demo tell, step by step, and does each step come true?"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import av

from p2pqueue.demo.stage import Stage, StoryBroken
from p2pqueue.demo.video import Clip, make_clip, probe

CLIP_SECONDS = 24.0  # long enough that its transcoding can be cut in the middle, on any machine
HEIGHT = 240
KILL_AT = 0.5  # of the work
CHILDREN_GONE = 2.0  # seconds after which nothing of a killed node may live
DURATION_SLACK = 0.5  # seconds by which the result may be longer or shorter


class Narrator(Protocol):
    """Tells the story to whoever watches."""

    def step(self, words: str) -> None:
        """A new step begins."""

    def fact(self, words: str) -> None:
        """Something has come true."""

    def progress(self, fraction: float, phase: str) -> None:
        """The job is so far; called at every step of it."""


@dataclass(frozen=True)
class Told:
    """What came out of a story that went as told; times in seconds."""

    job: str
    attempts: list[str]
    killed_at: float
    children_gone_after: float
    clip: Clip
    result: Clip
    took: float

    def document(self) -> dict[str, Any]:
        """The outcome as JSON carries it."""
        return {"schema": 1, **asdict(self)}


def tell(stage: Stage, narrator: Narrator) -> Told:
    """Plays the whole story. Raises `StoryBroken` at the first step that does not come true."""
    started = time.monotonic()
    clip = _make_video(stage, narrator)
    narrator.step("Making a space: a home with this device's keys and an empty queue")
    space = stage.command("init", "--space", "demo", "--label", "laptop")
    narrator.fact(f"space {space['space'][:8]}, device {space['device'][:8]}")
    narrator.step("Starting a node: the process that takes jobs")
    narrator.fact(f"node runs as process {stage.start_node()}")
    narrator.step(f"Enqueueing one job: make the video {HEIGHT} pixels high")
    job = stage.command("enqueue", "transcode", "-f", f"video={stage.folder / 'clip.mp4'}", f"height={HEIGHT}")["id"]
    narrator.fact(f"job {job}")
    killed_at, gone_after = _kill_in_the_middle(stage, narrator, job)
    _start_again(stage, narrator, job)
    attempts = _check_attempts(stage, narrator, job)
    result = _check_result(stage, narrator, job, clip)
    narrator.step("Stopping the node in an orderly way")
    if (code := stage.stop_node()) not in (0, None):
        raise StoryBroken(f"the node ended with exit code {code}")
    return Told(job, attempts, killed_at, gone_after, clip, result, time.monotonic() - started)


def _make_video(stage: Stage, narrator: Narrator) -> Clip:
    narrator.step(f"Making a real video: {CLIP_SECONDS:.0f} seconds of a moving picture with sound")
    path = stage.folder / "clip.mp4"
    make_clip(path, seconds=CLIP_SECONDS)
    clip = probe(path)
    narrator.fact(f"{clip.width}x{clip.height}, {clip.duration:.1f} s, {path.stat().st_size / 1e6:.1f} MB")
    return clip


def _kill_in_the_middle(stage: Stage, narrator: Narrator, job: str) -> tuple[float, float]:
    narrator.step("Watching it run, and killing the node by signal 9 half-way")
    reached = _follow(stage, narrator, job, until=lambda event: (event.get("progress") or 0.0) >= KILL_AT)
    fraction = float(reached.get("progress") or 0.0)
    if reached.get("status") != "running":
        raise StoryBroken(f"the job was {reached.get('status')} before its node could be killed")
    count, seconds = stage.kill_node()
    narrator.fact(f"node killed at {fraction:.0%}; its {count} child processes were gone after {seconds:.2f} s")
    if seconds > CHILDREN_GONE:
        raise StoryBroken(f"children outlived their node by {seconds:.1f} s; at most {CHILDREN_GONE:.0f} s were promised")
    status = stage.command("show", job)["status"]
    narrator.fact(f"the job is still there, shown as {status}")
    return fraction, seconds


def _start_again(stage: Stage, narrator: Narrator, job: str) -> None:
    narrator.step("Starting the node again: it takes its job over by itself")
    narrator.fact(f"node runs as process {stage.start_node()}")
    ended = _follow(stage, narrator, job, until=lambda event: event.get("status") in ("succeeded", "failed", "cancelled"))
    if ended.get("status") != "succeeded":
        raise StoryBroken(f"the job ended as {ended.get('status')}: {ended.get('error')}")


def _check_attempts(stage: Stage, narrator: Narrator, job: str) -> list[str]:
    narrator.step("Looking at its attempts")
    attempts = stage.command("show", job)["attempts"]
    for attempt in attempts:
        narrator.fact(f"attempt {attempt['attempt']}: {attempt['status']}{' – ' + attempt['error'] if attempt.get('error') else ''}")
    words = [attempt["status"] for attempt in attempts]
    if words != ["lost", "succeeded"]:
        raise StoryBroken(f"the attempts should be: lost, succeeded; they are: {', '.join(words)}")
    return words


def _check_result(stage: Stage, narrator: Narrator, job: str, clip: Clip) -> Clip:
    narrator.step("Saving the result, and looking into it")
    target = stage.folder / "result.mp4"
    stage.command("result", job, "-o", str(target))
    result = _probed(target)
    narrator.fact(f"{result.width}x{result.height}, {result.duration:.1f} s, {target.stat().st_size / 1e6:.1f} MB, every picture decodes")
    if result.height != HEIGHT or abs(result.duration - clip.duration) > DURATION_SLACK or not result.has_sound:
        raise StoryBroken(f"the result should be {HEIGHT} high, {clip.duration:.1f} s long and have sound; it is {result}")
    return result


def _probed(path: Path) -> Clip:
    try:
        return probe(path)
    except (av.FFmpegError, IndexError) as error:
        raise StoryBroken(f"the result can't be played: {error}") from error


def _follow(stage: Stage, narrator: Narrator, job: str, *, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for last in stage.watch(job):
        narrator.progress(last.get("progress") or 0.0, last.get("phase") or last.get("status") or "")
        if until(last):
            break
    return last
