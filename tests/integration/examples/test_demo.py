"""The demo tells a true story."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.nodes import CommandLine


@pytest.mark.timeout(180)
def test_the_demo_goes_as_it_tells_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_ffmpeg: None) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told = CommandLine(tmp_path / "no-home").json("demo", timeout=150)
    assert told["attempts"] == ["lost", "succeeded"]
    assert 0.5 <= told["killed_at"] < 1.0
    assert told["children_gone_after"] < 2.0
    assert told["result"]["height"] == 240
    assert told["took"] < 120
    assert list(tmp_path.iterdir()) == []
