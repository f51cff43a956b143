"""Another user of the machine reaches neither the socket nor the files."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pqueue.replica.door.doorbell import DoorbellClient, DoorbellServer
from tests.unit.replica.kit import Space, make_clip, open_replica

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root may become another user")]

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1]); print(s.recv(1))"
NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable  # one that nobody may run


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="p2pq-") as made:
        yield Path(made)


@pytest.fixture
async def socket_path(folder: Path) -> AsyncIterator[Path]:
    async def status(fields: dict[str, Any]) -> dict[str, Any]:
        return {}

    server = DoorbellServer(folder / "node.sock", on_ring=lambda: None, requests={"status": status})
    await server.start()
    yield folder / "node.sock"
    await server.close()


async def as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-I", "-S", "-c", code, *arguments]
    return await asyncio.to_thread(
        subprocess.run,
        command,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=20,
    )


@pytest.mark.parametrize("mode", [0o700, 0o755])
async def test_nobody_can_not_connect(folder: Path, socket_path: Path, mode: int) -> None:
    folder.chmod(mode)
    done = await as_nobody(CONNECT, str(socket_path))
    assert done.returncode != 0
    assert "PermissionError" in done.stderr


async def test_nobody_is_turned_away_even_where_the_mode_was_loosened(folder: Path, socket_path: Path) -> None:
    folder.chmod(0o755)
    socket_path.chmod(0o666)
    done = await as_nobody(CONNECT, str(socket_path))
    assert done.stdout in ("b''\n", "")
    assert "Permission" not in done.stderr
    assert await asyncio.to_thread(DoorbellClient(socket_path).request, "status") == {}


async def test_nobody_reads_no_file_of_the_home(folder: Path) -> None:
    folder.chmod(0o755)
    before = os.umask(0)
    try:
        with open_replica(Space().device("here"), path=folder / "replica.sqlite") as replica:
            replica.write(make_clip)
            for each in folder.iterdir():
                done = await as_nobody("import sys; open(sys.argv[1], 'rb')", str(each))
                assert "PermissionError" in done.stderr
    finally:
        os.umask(before)
