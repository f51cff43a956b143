"""A person installs the package and transcodes a video; the node is killed in the middle; the result comes all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pqueue.demo.video import make_clip, probe
from p2pqueue.home import Home
from tests.integration.nodes import ROOT, CommandLine, node

TRANSCODE = str(ROOT / "examples" / "transcode.py")


@pytest.fixture
def fresh(home: Home) -> CommandLine:
    """The command line on a home that `p2pqueue init` has just made."""
    cli = CommandLine(home.path)
    cli.json("init")
    return cli


def test_a_video_goes_in_and_a_smaller_one_comes_out(fresh: CommandLine, clip: Path, tmp_path: Path) -> None:
    with node(fresh.home, TRANSCODE):
        enqueued = fresh.run("enqueue", "transcode", "-f", f"video={clip}", "height=240", "--wait")
        assert enqueued.returncode == 0, enqueued.stderr
        job = enqueued.stdout.split()[0]
        saved = fresh.run("result", job, "-o", str(tmp_path / "out.mp4"))
    assert saved.returncode == 0, saved.stderr
    assert probe(tmp_path / "out.mp4").height == 240


@pytest.mark.timeout(150)
def test_a_node_that_is_killed_half_way_finishes_after_its_restart(fresh: CommandLine, tmp_path: Path, without_ffmpeg: None) -> None:
    make_clip(tmp_path / "long.mp4", seconds=15)
    with node(fresh.home, TRANSCODE) as first:
        job = fresh.json("enqueue", "transcode", "-f", f"video={tmp_path / 'long.mp4'}", "height=240")["id"]
        next(seen for seen in fresh.follow(job) if seen["progress"] >= 0.5)
        first.kill()
        first.wait_until_no_descendant_lives(2.0)
    killed = fresh.json("show", job)
    assert killed["status"] == "running", killed
    with node(fresh.home, TRANSCODE):
        shown = fresh.wait_for(job, limit=100.0, status="succeeded")
        fresh.json("result", job, "-o", str(tmp_path / "out.mp4"))
    assert [attempt["status"] for attempt in shown["attempts"]] == ["lost", "succeeded"]
    made = probe(tmp_path / "out.mp4")
    assert made.height == 240
    assert made.duration == pytest.approx(15.0, abs=0.5)
