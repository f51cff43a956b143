"""What the tests of the examples run on: a home with a space, and videos made by PyAV."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pqueue.demo.video import make_clip
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.nodes import ROOT, CommandLine

EXAMPLES = ROOT / "examples"


@pytest.fixture
def cli(home: Home, identity: Identity) -> CommandLine:
    """The command line on a home that has a space."""
    return CommandLine(home.path)


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short video with a moving picture and sound."""
    path = tmp_path_factory.mktemp("clips") / "clip.mp4"
    make_clip(path, seconds=2, width=640, height=360)
    return path


@pytest.fixture
def without_ffmpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH on which there is no ffmpeg, so that PyAV does the work."""
    monkeypatch.setenv("PATH", "/nonexistent")
