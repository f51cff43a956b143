"""How is a real video made, made smaller, and looked at, without ffmpeg on the machine?

Through PyAV, which carries the libraries of ffmpeg and comes along with aiortc. A picture that moves and a sound
that beeps come out of libavfilter's own test sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.filter import Graph

KEPT_SOUND = frozenset({"aac", "mp3", "ac3"})  # what an .mp4 carries as it is; anything else becomes aac
SOUND_RATE = 44_100  # samples per second of a made clip
FRAME_RATE = 25  # pictures per second of a made clip

OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class Clip:
    """What a video file holds: `duration` in seconds, the size of its picture, and whether it has sound."""

    duration: float
    width: int
    height: int
    frames: int
    has_sound: bool


def probe(path: Path) -> Clip:
    """Reads a video to its end and says what it holds. Raises `av.FFmpegError` where it can't be decoded."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = sum(1 for _ in container.decode(stream))
        has_sound = bool(container.streams.audio)
        return Clip((container.duration or 0) / av.time_base, stream.width, stream.height, frames, has_sound)


def make_clip(path: Path, *, seconds: float, width: int = 1280, height: int = 720) -> None:
    """Writes an .mp4 of a moving test picture with a beeping tone."""
    with av.open(str(path), "w") as target:
        pictures: Any = target.add_stream(_video_encoder(), rate=FRAME_RATE, options={"preset": "ultrafast", "crf": "23"})
        pictures.width, pictures.height, pictures.pix_fmt = width, height, "yuv420p"
        pictures.time_base = Fraction(1, FRAME_RATE)
        sound: Any = target.add_stream("aac", rate=SOUND_RATE)
        sound.layout = "mono"
        tone = _from_source("sine", f"frequency=330:beep_factor=3:sample_rate={SOUND_RATE}:duration={seconds}", "abuffersink")
        ahead = next(tone, None)
        for frame in _from_source("testsrc2", f"size={width}x{height}:rate={FRAME_RATE}:duration={seconds}", "buffersink"):
            target.mux(pictures.encode(frame))
            while ahead is not None and ahead.time <= frame.time:  # the two go side by side, so that neither queues up
                target.mux(sound.encode(ahead))
                ahead = next(tone, None)
        target.mux(pictures.encode(None))
        target.mux(sound.encode(None))


def transcode(source: Path, target: Path, *, height: int, on_progress: OnProgress = lambda fraction: None) -> None:
    """Writes `source` as an .mp4 of that height (made even), its width in proportion and its sound kept.

    Raises `av.FFmpegError` where the source can't be decoded, and `ValueError` where it has no picture.
    """
    with av.open(str(source)) as given, av.open(str(target), "w", options={"movflags": "faststart"}) as made:
        if not given.streams.video:
            raise ValueError(f"{source.name} has no picture")
        pictures = _Pictures(given.streams.video[0], made, height - height % 2)
        sound = _Sound(given.streams.audio[0], made) if given.streams.audio else None
        wanted = [pictures.source, *([sound.source] if sound else [])]
        duration = (given.duration or 0) / av.time_base
        for packet in given.demux(wanted):
            if packet.stream is not pictures.source:
                assert sound is not None
                sound.take(packet)
            elif (moment := pictures.take(packet)) is not None and duration:
                on_progress(min(1.0, moment / duration))
        pictures.finish()
        if sound:
            sound.finish()


class _Pictures:
    """Decodes, scales and encodes the pictures of one stream."""

    def __init__(self, source: Any, made: Any, height: int) -> None:
        self.source = source
        self._made = made
        source.thread_type = "AUTO"
        width = round(source.width * height / source.height / 2) * 2
        self._stream = made.add_stream(_video_encoder(), rate=source.average_rate or FRAME_RATE, options={"crf": "23"})
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.time_base = source.time_base
        self._last = -1

    def take(self, packet: Any) -> float | None:
        """Works a packet in; gives the moment reached, in seconds."""
        moment = None
        for frame in packet.decode():
            if frame.pts is None or frame.pts <= self._last:  # some containers repeat a time stamp; the encoder refuses one
                continue
            self._last = frame.pts
            moment = frame.time
            scaled = frame.reformat(width=self._stream.width, height=self._stream.height, format="yuv420p")
            scaled.pict_type = 0  # the encoder chooses its own key frames
            self._made.mux(self._stream.encode(scaled))
        return moment

    def finish(self) -> None:
        """Writes what the encoder still holds."""
        self._made.mux(self._stream.encode(None))


class _Sound:
    """Copies the sound of one stream where an .mp4 can carry it, else encodes it anew."""

    def __init__(self, source: Any, made: Any) -> None:
        self.source = source
        self._made = made
        self._copies = source.codec_context.name in KEPT_SOUND
        self._stream = made.add_stream_from_template(source) if self._copies else made.add_stream("aac", rate=source.rate)

    def take(self, packet: Any) -> None:
        """Works a packet in."""
        if not self._copies:
            for frame in packet.decode():
                frame.pts = None  # the encoder counts the samples itself
                self._made.mux(self._stream.encode(frame))
        elif packet.dts is not None:
            packet.stream = self._stream
            self._made.mux(packet)

    def finish(self) -> None:
        """Writes what the encoder still holds."""
        if not self._copies:
            self._made.mux(self._stream.encode(None))


def _from_source(name: str, options: str, sink: str) -> Iterator[Any]:
    graph = Graph()
    source, drain = graph.add(name, options), graph.add(sink)
    source.link_to(drain)
    graph.configure()
    while True:
        try:
            yield graph.pull()
        except (EOFError, av.error.EOFError):
            return


def _video_encoder() -> str:
    return "libx264" if "libx264" in av.codecs_available else "mpeg4"
