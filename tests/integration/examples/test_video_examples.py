"""The examples that work on video really run, through a node."""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from p2pqueue.demo.video import make_clip, probe
from tests.integration.nodes import ROOT, CommandLine, node

TRANSCODE = str(ROOT / "examples" / "transcode.py")
THUMBNAILS = str(ROOT / "examples" / "thumbnails.py")


def _transcode(cli: CommandLine, clip: Path, out: Path) -> dict[str, object]:
    with node(cli.home, TRANSCODE):
        job: dict[str, object] = cli.json("enqueue", "transcode", "-f", f"video={clip}", "height=240", "--wait")
        cli.json("result", str(job["id"]), "-o", str(out))
    return job


def test_a_video_is_made_smaller_by_pyav_and_keeps_its_sound(cli: CommandLine, clip: Path, tmp_path: Path, without_ffmpeg: None) -> None:
    job = _transcode(cli, clip, tmp_path / "out.mp4")
    made = probe(tmp_path / "out.mp4")
    assert job["status"] == "succeeded"
    assert (made.width, made.height, made.has_sound) == (426, 240, True)
    assert made.duration == pytest.approx(2.0, abs=0.2)


def test_a_video_is_made_smaller_by_ffmpeg_where_it_is_installed(cli: CommandLine, clip: Path, tmp_path: Path) -> None:
    _transcode(cli, clip, tmp_path / "out.mp4")
    made = probe(tmp_path / "out.mp4")
    assert (made.width, made.height, made.has_sound) == (426, 240, True)
    assert made.duration == pytest.approx(2.0, abs=0.2)


def test_what_is_no_video_fails_its_job_with_the_reason(cli: CommandLine, tmp_path: Path, without_ffmpeg: None) -> None:
    (tmp_path / "words.mp4").write_text("these are words, not a video")
    with node(cli.home, TRANSCODE):
        job = cli.json(
            "enqueue", "transcode", "-f", f"video={tmp_path / 'words.mp4'}", "--max-attempts", "1", "--wait", code=1
        )  # fmt: skip
    assert job["status"] == "failed"
    assert "Invalid data" in job["error"]


def test_a_strip_of_thumbnails_is_one_wide_picture(cli: CommandLine, clip: Path, tmp_path: Path) -> None:
    with node(cli.home, THUMBNAILS):
        job = cli.json("enqueue", "thumbnails", "-f", f"video={clip}", "count=4", "height=90", "--wait")
        cli.json("result", job["id"], "-o", str(tmp_path / "strip.png"))
    with av.open(str(tmp_path / "strip.png")) as strip:
        picture = next(strip.decode(video=0))
    assert (picture.width, picture.height) == (4 * 160, 90)


def test_a_made_clip_moves_and_sounds(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4", seconds=1, width=320, height=180)
    made = probe(tmp_path / "clip.mp4")
    assert (made.width, made.height, made.frames, made.has_sound) == (320, 180, 25, True)
