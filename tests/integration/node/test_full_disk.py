"""A node whose disk is full says so, loses nothing that was acknowledged, and goes on by itself when there is room."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from p2pqueue import File
from p2pqueue.errors import DiskFull
from p2pqueue.home import Home
from p2pqueue.identity.keys import create
from tests.integration.node.stage import Stage, said, status, until, words

pytestmark = pytest.mark.root


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root, to mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)  # at once, though a failed test may hold a file open


@pytest_asyncio.fixture
async def stage(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """A stage whose home is on the small disk; notes and inputs lie elsewhere."""
    monkeypatch.setenv("P2PQUEUE_QUOTA", "1GB")
    monkeypatch.setenv("P2PQUEUE_RESERVE", "0")
    home = Home(disk / "home")
    home.ensure()
    create(home, space_name="test", label="here")
    made = Stage(home, tmp_path)
    yield made
    await made.close()


def fill(disk: Path) -> Path:
    """Leaves not one free byte."""
    filler = disk / "filler"
    size = 1 << 20
    with filler.open("ab", buffering=0) as file:
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
    return filler


def integrity(home: Home) -> str:
    connection = sqlite3.connect(home.replica_file)
    try:
        word: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        connection.close()
    return word


async def test_what_was_acknowledged_is_done_when_there_is_room_again(stage: Stage, disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    note, large = stage.note(), stage.folder / "large.bin"
    with large.open("wb") as file:
        file.truncate(65 << 20)
    async with stage.run(slots=4) as node:
        before = [stage.enqueue("inline_echo", value=number) for number in range(20)]
        running = stage.enqueue("nap", seconds=1.0, note=note)
        climbing = stage.enqueue("inline_climb", steps=12, pause=0.1, note=stage.note("climb"))
        cleaving = stage.enqueue("inline_cleave", steps=3, options={"delay": 0.3})
        waiting = stage.enqueue("length", file=File(large), options={"delay": 1.5})  # to be sealed meanwhile
        await until(lambda: said(note) and said(stage.note("climb")))
        filler = fill(disk)
        acknowledged, refused = [], 0
        for number in range(2000):  # the log has room for a hundred or so
            try:
                acknowledged.append(stage.enqueue("inline_echo", value=number))
            except DiskFull as error:
                assert "No space left" in str(error) or "full" in str(error)
                refused += 1
                if refused > 3:
                    break
        assert refused, "the disk was not full"
        await until(lambda: "ended" in said(note))
        await until(lambda: any("can't be written" in record.getMessage() for record in caplog.records))
        assert integrity(stage.home) == "ok"
        filler.unlink()
        for job in [*before, *acknowledged]:
            await job.aresult(20)
        assert await running.aresult(20) == 1.0
        assert words(running) == ["succeeded"]
        assert (await climbing.aresult(20))[-1] == 11
        assert await cleaving.aresult(20) == [1, 1, 1]
        assert await waiting.aresult(20) == 65 << 20
        assert await stage.result("echo", value="after") == "after"
        await until(lambda: node.worker.idle)
    assert integrity(stage.home) == "ok"


async def test_an_output_that_does_not_fit_puts_its_job_back_until_there_is_room(stage: Stage, disk: Path) -> None:
    path = stage.folder / "output.bin"
    path.write_bytes(os.urandom(1 << 20) * 20)
    async with stage.run(slots=1):
        job = stage.enqueue("give", path=str(path))
        await until(lambda: "released" in words(job) or job.done)
        assert (job.status, job.row.attempt) == ("queued", 0)
        assert "No space left" in (job.attempts[0].error or "")
        assert await stage.result("inline_echo", value=1) == 1
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        made = await job.aresult(30)
        path.unlink()
        assert (made.size, len(made.bytes())) == (20 << 20, 20 << 20)
    assert not list(stage.home.work_dir.iterdir())


async def test_an_input_that_does_not_fit_makes_no_job(stage: Stage, disk: Path) -> None:
    path = stage.folder / "input.bin"
    path.write_bytes(os.urandom(1 << 20) * 20)
    async with stage.run():
        with pytest.raises(DiskFull):
            stage.enqueue("digest", file=File(path))
        assert sum(stage.queue.counts().values()) == 0
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        assert (await stage.result("digest", file=File(path)))[0][1] == 20 << 20


async def test_a_node_on_a_full_disk_can_be_stopped_and_started_again(stage: Stage, disk: Path) -> None:
    note = stage.note()
    async with stage.run(grace=1.0) as node:
        job = stage.enqueue("nap", seconds=0.5, note=note)
        await until(lambda: said(note))
        await asyncio.sleep(0.2)
        filler = fill(disk)
        await until(lambda: "ended" in said(note))
        async with asyncio.timeout(15):
            await node.stop()
    filler.unlink()
    async with stage.run():
        await status(job, "succeeded")
        assert words(job)[-1] == "succeeded"
        assert set(words(job)[:-1]) <= {"lost"}
