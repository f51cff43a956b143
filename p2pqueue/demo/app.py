"""Which tasks do the demo's nodes run?"""

from __future__ import annotations

from pathlib import Path

from p2pqueue import File, Queue, current_job
from p2pqueue.demo import video as pictures

ABLE = "video"  # the tag of the devices that may transcode
queue = Queue("studio")


@queue.task(max_attempts=5, timeout=600, needs={ABLE})
def transcode(video: File, height: int = 240) -> File:
    """Gives the video as an .mp4 of that height, with its sound; needs no ffmpeg on the machine."""
    job = current_job()
    target = Path(job.workdir) / "small.mp4"
    pictures.transcode(
        Path(video.path), target, height=height, on_progress=lambda fraction: job.set_progress(fraction, "Transcoding")
    )  # fmt: skip
    return File(target)


@queue.task(inline=True)
async def note(text: str) -> str:
    """Gives back what it got: work for a device that is on its own."""
    return text
