"""What does the demo tell, step by step, and does each step come true?"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import av

from p2pqueue.demo import network, parting, takeover
from p2pqueue.demo.device import Device, StoryBroken
from p2pqueue.demo.stage import Stage
from p2pqueue.demo.video import Clip, make_clip, probe

CLIP_SECONDS = 24.0  # long enough that its transcoding can be cut in the middle, on any machine
HEIGHT = 240
LINK_LIMIT = 60.0  # seconds until all are linked; it takes about three
DIRECT_LIMIT = 15.0  # seconds more until they are linked directly, if ever
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

    network: network.Kind
    paths: dict[str, str]
    takeover: takeover.Told
    clip: Clip
    result: Clip
    result_came_by: dict[str, int]
    parting: parting.Told
    took: float

    def document(self) -> dict[str, Any]:
        """The outcome as JSON carries it."""
        return {"schema": 2, **asdict(self)}


def tell(stage: Stage, narrator: Narrator) -> Told:
    """Plays the whole story. Raises `StoryBroken` at the first step that does not come true."""
    started = time.monotonic()
    clip = _make_video(stage, narrator)
    _pair(stage, narrator)
    paths = _link(stage, narrator)
    narrator.step(f"laptop enqueues one job: make the video {HEIGHT} pixels high")
    job = stage.laptop.command("enqueue", "transcode", "-f", f"video={stage.folder / 'clip.mp4'}", f"height={HEIGHT}")["id"]
    narrator.fact(f"job {job[:13]}; laptop itself can't do it, it lacks the tag `video`")
    taken = takeover.play(stage, narrator, job)
    result, came_by = _check_result(stage, narrator, job, clip)
    parted = parting.play(stage, narrator, back=stage.device(taken.worker))
    _stop(stage, narrator)
    return Told(stage.network.kind, paths, taken, clip, result, came_by, parted, time.monotonic() - started)


def _make_video(stage: Stage, narrator: Narrator) -> Clip:
    narrator.step(f"Making a real video: {CLIP_SECONDS:.0f} seconds of a moving picture with sound")
    path = stage.folder / "clip.mp4"
    make_clip(path, seconds=CLIP_SECONDS)
    clip = probe(path)
    narrator.fact(f"{clip.width}x{clip.height}, {clip.duration:.1f} s, {path.stat().st_size / 1e6:.1f} MB")
    return clip


def _pair(stage: Stage, narrator: Narrator) -> None:
    narrator.step("Making a space on laptop, and letting two more devices in, each by a code of its own")
    narrator.fact(f"they are {network.WORDS[stage.network.kind]}")
    space = stage.laptop.command("init", "--space", "demo", "--label", "laptop")
    narrator.fact(f"space {space['space'][:8]}, made by laptop, with its own keys")
    for other in (stage.tower, stage.desktop):
        narrator.fact(f"{other.name} came in by the code {stage.laptop.let_in(other)}")


def _link(stage: Stage, narrator: Narrator) -> dict[str, str]:
    narrator.step("Starting their nodes, which find one another by mDNS; no server, no address is named")
    begun = time.monotonic()
    stage.start_nodes(*stage.devices)
    for device in stage.devices:
        device.await_links(stage.devices, within=LINK_LIMIT)
    narrator.fact(f"all three are linked, {time.monotonic() - begun:.1f} s after the first start")
    paths = _paths(stage.laptop)
    narrator.fact("; ".join(f"laptop ↔ {name} by {path}" for name, path in sorted(paths.items())))
    return paths


def _paths(device: Device) -> dict[str, str]:
    """How a device is linked; waits a little for direct connections, and takes it as it is where none forms."""
    end = time.monotonic() + DIRECT_LIMIT
    while (found := device.paths()) and set(found.values()) != {"webrtc"} and time.monotonic() < end:
        time.sleep(0.2)
    return found


def _check_result(stage: Stage, narrator: Narrator, job: str, clip: Clip) -> tuple[Clip, dict[str, int]]:
    narrator.step("Saving the result on laptop, and looking into it")
    target = stage.folder / "result.mp4"
    stage.laptop.command("result", job, "-o", str(target))
    came_by = stage.laptop.carried()
    narrator.fact(f"the result came to laptop by {takeover.lanes(came_by)}")
    result = _probed(target)
    narrator.fact(f"{result.width}x{result.height}, {result.duration:.1f} s, {target.stat().st_size / 1e6:.1f} MB, every picture decodes")
    if result.height != HEIGHT or abs(result.duration - clip.duration) > DURATION_SLACK or not result.has_sound:
        raise StoryBroken(f"the result was expected to be {HEIGHT} high, {clip.duration:.1f} s long and to have sound; it is {result}")
    return result, came_by


def _probed(path: Path) -> Clip:
    try:
        return probe(path)
    except (av.FFmpegError, IndexError) as error:
        raise StoryBroken(f"the result was expected to be a video that can be played: {error}") from error


def _stop(stage: Stage, narrator: Narrator) -> None:
    narrator.step("Stopping all nodes in an orderly way")
    for device in stage.devices:
        if (code := device.stop_node()) not in (0, None):
            raise StoryBroken(f"the node of {device.name} was expected to end with exit code 0, not {code}")
