"""Makes a video smaller: a file goes in, a file comes out, and the progress shows on the way.

    p2pqueue init
    p2pqueue run examples/transcode.py
    p2pqueue enqueue transcode -f video=clip.mp4 height=240 --wait
    p2pqueue result ID -o small.mp4

ffmpeg does the work where it is installed; it then runs in the job's own process group, and a cancel or a killed
node ends it too. Without it the same is done by PyAV, which comes along with p2pqueue. The input is read where it
lies; whatever the handler leaves in `job.workdir` is removed after every end.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import av

from p2pqueue import Backoff, File, Queue, current_job
from p2pqueue.demo.video import transcode as transcode_by_pyav

queue = Queue("studio")


@queue.task(max_attempts=3, backoff=Backoff(first=5), timeout=timedelta(hours=2))
def transcode(video: File, height: int = 720) -> File:
    """Gives the video as an .mp4 of that height, with its sound."""
    job = current_job()
    source, target = Path(video.path), Path(job.workdir) / "out.mp4"
    if shutil.which("ffmpeg"):
        _by_ffmpeg(source, target, height - height % 2)
    else:
        transcode_by_pyav(source, target, height=height, on_progress=lambda fraction: job.set_progress(fraction, "Transcoding"))
    return File(target)


def _by_ffmpeg(source: Path, target: Path, height: int) -> None:
    job = current_job()
    duration = _duration(source)

    def on_line(line: str) -> None:
        key, _, value = line.strip().partition("=")
        if key == "out_time_us" and value.isdigit() and duration:
            job.set_progress(min(1.0, int(value) / 1e6 / duration), "Transcoding")
        elif key not in ("", "progress") and not _:
            print(line)  # not a line of the progress report: it belongs into the job's log

    tell = ["-nostdin", "-hide_banner", "-loglevel", "warning", "-nostats", "-progress", "pipe:1"]
    make = ["-vf", f"scale=-2:{height}", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac", "-movflags", "+faststart"]
    job.run(["ffmpeg", *tell, "-y", "-i", str(source), *make, str(target)], on_line=on_line)


def _duration(source: Path) -> float:
    with av.open(str(source)) as container:
        return (container.duration or 0) / av.time_base
