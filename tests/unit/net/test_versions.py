"""Direct connections work with other versions of aiortc as well; those whose insides are known are fast."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MOVE_A_MEGABYTE = """
import asyncio
from p2pqueue.net.webrtc import tuning
from tests.unit.net.connected import connected, inbox

async def main():
    async with connected() as (one, other):
        messages = inbox(other)
        for number in range(16):
            one.send(bytes([number]) * 65536)
        assert [await messages.get() for _ in range(16)] == [bytes([number]) * 65536 for number in range(16)]

asyncio.run(main())
print(tuning.obstacle() is None)
"""


@pytest.mark.soak
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("version", "tuned"),
    [("==1.13.0", "False"), ("==1.14.0", "False"), ("==1.15.0", "False"), ("==1.16.0", "True"), ("", None)],
    ids=["1.13", "1.14", "1.15", "1.16", "newest"],
)
def test_a_megabyte_is_moved_with_this_aiortc(version: str, tuned: str | None, tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), f"aiortc{version}"]
    if subprocess.run(install, capture_output=True, timeout=100).returncode:
        pytest.skip("it can't be installed here")
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(root)))}
    moved = subprocess.run([sys.executable, "-c", MOVE_A_MEGABYTE], capture_output=True, text=True, env=environment, timeout=60)
    assert moved.returncode == 0, moved.stderr
    assert tuned is None or moved.stdout.strip() == tuned
