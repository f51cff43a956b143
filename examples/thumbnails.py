"""Makes a strip of thumbnails from a video: one PNG, its pictures taken at even distances.

    p2pqueue run examples/thumbnails.py
    p2pqueue enqueue thumbnails -f video=clip.mp4 count=8 --wait
    p2pqueue result ID -o strip.png

Shows a task that needs no program on the machine: PyAV decodes, libavfilter scales and tiles, and its own PNG
encoder writes. The work is short and its end certain, so there is nothing to resume.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.filter import Graph

from p2pqueue import File, Queue, current_job

queue = Queue("studio")


@queue.task(max_attempts=2, timeout=600)
def thumbnails(video: File, count: int = 8, height: int = 120) -> File:
    """Gives one PNG with `count` pictures of that height, side by side."""
    if not 1 <= count <= 100:
        raise ValueError(f"between 1 and 100 pictures, not {count}")
    job = current_job()
    strip = None
    tiles = _Tiles(count, height)
    for taken, frame in enumerate(_pictures(Path(video.path), count), start=1):
        strip = tiles.add(frame)
        job.set_progress(taken / count, f"Picture {taken} of {count}")
    if strip is None:
        raise ValueError(f"{video.name} has no picture that could be decoded")
    target = Path(job.workdir) / "strip.png"
    target.write_bytes(_png(strip))
    return File(target)


def _pictures(source: Path, count: int) -> Iterator[Any]:
    with av.open(str(source)) as container:
        stream = container.streams.video[0]
        duration = container.duration or 0
        last = None
        for index in range(count):
            wanted = (index + 0.5) / count * duration
            container.seek(int(wanted))  # to the key frame before it
            for last in container.decode(stream):
                if (last.time or 0.0) * av.time_base >= wanted:
                    break
            if last is not None:
                yield last


class _Tiles:
    """Scales pictures and sets them side by side."""

    def __init__(self, count: int, height: int) -> None:
        self._arguments = f"{count}x1"
        self._height = height
        self._graph: Graph | None = None
        self._number = 0
        self._count = count

    def add(self, frame: Any) -> Any | None:
        """Takes one more picture; gives the strip once all are there."""
        if self._graph is None:
            self._graph = Graph()
            source = self._graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base)
            self._graph.link_nodes(
                source,
                self._graph.add("scale", f"-2:{self._height}"),
                self._graph.add("format", "rgb24"),
                self._graph.add("tile", self._arguments),
                self._graph.add("buffersink"),
            ).configure()
        frame.pts = self._number  # the pictures lie far apart in the video; the tiling only wants them in order
        self._number += 1
        self._graph.push(frame)
        return self._graph.pull() if self._number == self._count else None


def _png(frame: Any) -> bytes:
    encoder: Any = av.CodecContext.create("png", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "rgb24"
    encoder.time_base = Fraction(1, 25)  # the encoder insists on one
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
