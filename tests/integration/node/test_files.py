"""Files go into jobs and come out of them, and a job whose file is in trouble waits and says why."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from p2pqueue import File, JobFailed, NoSuchJob
from tests.integration.node.stage import Stage, status, until, words

LARGE = 65 * 1024 * 1024  # bytes: from 64 MiB a file is served from where it lies


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def small(folder: Path, name: str = "small.txt", text: str = "words") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def large(folder: Path, name: str = "large.bin") -> Path:
    """A sparse file that is served from where it lies."""
    path = folder / name
    with path.open("wb") as file:
        file.write(b"begin")
        file.truncate(LARGE)
    return path


async def test_small_files_may_go_once_their_job_is_enqueued(stage: Stage) -> None:
    one, two = small(stage.folder, "one.txt", "one"), small(stage.folder, "zwei ü.txt", "two")
    job = stage.enqueue("digest", file=File(one), again=File(two))
    one.unlink()
    two.write_text("changed")
    async with stage.run():
        assert await job.aresult(20) == [["one.txt", 3, sha(b"one")], ["zwei ü.txt", 3, sha(b"two")]]
        inline = stage.enqueue("inline_digest", file=File(two))
        assert await inline.aresult(20) == ["zwei ü.txt", sha(b"changed")]


async def test_a_large_file_is_read_where_it_lies_and_never_copied(stage: Stage) -> None:
    path = large(stage.folder)
    async with stage.run():
        job = stage.enqueue("length", file=File(path))
        assert await job.aresult(20) == LARGE
        again = stage.enqueue("digest", file=File(path), again=File(small(stage.folder)))
        assert [size for _, size, _ in await again.aresult(20)] == [LARGE, 5]
        await until(lambda: again.row.input_manifest is not None or again.done)
    stored = sum(path.stat().st_size for path in stage.home.shards_dir.rglob("*") if path.is_file())
    assert stored < 1_000_000


async def test_a_large_input_gets_its_manifest_while_it_waits(stage: Stage) -> None:
    job = stage.enqueue("digest", file=File(large(stage.folder)), options={"delay": 60})
    assert job.row.input_manifest is None
    async with stage.run():
        await until(lambda: job.row.input_manifest is not None)
        assert (job.row.input_name, job.row.input_size) == ("large.bin", LARGE)


async def test_outputs_come_out_with_their_results(stage: Stage) -> None:
    async with stage.run():
        made = await stage.result("make", size=1000)
        assert (made.name, made.size, made.bytes()) == ("made-0.bin", 1000, bytes(1000))
        several = await stage.result("make", size=10, copies=3)
        assert [file.bytes() for file in several["files"]] == [bytes(10)] * 3
        inline = await stage.result("inline_make", text="inline")
        assert (inline.name, inline.bytes()) == ("made.txt", b"inline")
        assert await stage.result("length", file=made) == 1000
    assert not list(stage.home.work_dir.iterdir()), "the folders of attempts are gone"


async def test_an_output_that_is_not_there_fails_its_job_in_words(stage: Stage) -> None:
    async with stage.run():
        job = stage.enqueue("promise", path=str(stage.folder / "gone"))
        with pytest.raises(JobFailed, match=r"gone"):
            await job.aresult(20)
        assert words(job) == ["failed"]


def be_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


TROUBLES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "changed": lambda path: os.utime(path, (1, 1)),
    "longer": lambda path: os.truncate(path, LARGE + 1),
    "a folder": be_a_folder,
}


@pytest.mark.parametrize(
    ("trouble", "sealed"),
    [("deleted", False), ("changed", False), ("longer", True), ("a folder", False), ("deleted", True)],
)
async def test_a_job_whose_large_input_is_in_trouble_waits_and_says_why(stage: Stage, trouble: str, sealed: bool) -> None:
    path = large(stage.folder)
    job = stage.enqueue("length", file=File(path))
    before = path.stat()
    if sealed:
        job.pause()
    else:
        TROUBLES[trouble](path)
    async with stage.run():
        if sealed:
            await until(lambda: job.row.input_manifest is not None)
            TROUBLES[trouble](path)
            job.resume()
        await until(lambda: job.row.problem)
        row = job.row
        assert (row.status, row.attempt) == ("queued", 0)
        assert str(path) in (row.problem or "")
        assert stage.why(job) == row.problem
        assert await stage.result("echo", value=1) == 1, "others go on"
        if trouble == "deleted" or trouble == "a folder":
            if path.is_dir():
                path.rmdir()
            large(stage.folder)
        elif trouble == "longer":
            os.truncate(path, LARGE)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        if sealed and trouble in ("deleted", "a folder"):
            return  # another file, for all that its manifest can know
        assert await job.aresult(20) == LARGE
        assert job.row.problem is None


async def test_a_job_that_waits_for_its_input_can_be_cancelled_and_leaves_no_work_behind(stage: Stage) -> None:
    path = large(stage.folder)
    job = stage.enqueue("length", file=File(path))
    path.unlink()
    async with stage.run() as node:
        await until(lambda: job.row.problem and node.worker.done)
        job.cancel()
        await until(lambda: node.worker.idle)
        await asyncio.sleep(1.2)  # beyond the time at which it would have been tried again
        written = node.store.replica.heads()
        await asyncio.sleep(0.3)
        assert node.store.replica.heads() == written
        assert words(job) == []


async def test_an_input_that_can_not_be_opened_makes_its_job_wait(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(stage.folder)
    job = stage.enqueue("length", file=File(path))
    real = os.open

    def refuse(name: str, *rest: int, **more: int) -> int:
        if os.fspath(name) == str(path):
            raise PermissionError(13, "Permission denied")
        return real(name, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        async with stage.run():
            await until(lambda: job.row.problem)
            assert "Permission denied" in (job.row.problem or "")
            assert job.status == "queued"
    async with stage.run():
        assert await job.aresult(20) == LARGE


@pytest.mark.parametrize("task", ["digest", "inline_digest"])
async def test_an_input_that_rotted_here_releases_its_job_and_spends_no_attempt(stage: Stage, task: str) -> None:
    content = os.urandom(300_000)
    path = stage.folder / "whole.bin"
    path.write_bytes(content)
    job = stage.enqueue(task, file=File(path))
    (shard,) = [each for each in stage.home.shards_dir.rglob("*") if each.is_file() and each.stat().st_size >= len(content)]
    rotten = bytearray(shard.read_bytes())
    rotten[1000] ^= 1
    shard.write_bytes(rotten)
    async with stage.run():
        await until(lambda: job.row.problem and job.row.status == "queued")
        assert job.row.attempt == 0
        assert {attempt.status for attempt in job.attempts} <= {"released", "running"}


async def test_deleting_a_job_forgets_its_input(stage: Stage) -> None:
    path = large(stage.folder)
    job = stage.enqueue("length", file=File(path), options={"delay": 60})
    async with stage.run():
        job.delete()
        with pytest.raises(NoSuchJob):
            _ = job.row
        assert await stage.result("echo", value=1) == 1
    assert stage.queue.access.read(lambda connection: connection.execute("SELECT count(*) FROM inputs").fetchone()) == (0,)


async def test_an_input_that_changes_while_it_is_sealed_gets_no_manifest(stage: Stage) -> None:
    path = large(stage.folder)
    job = stage.enqueue("length", file=File(path), options={"delay": 60})
    os.utime(path, (5, 5))
    async with stage.run():
        await until(lambda: job.row.problem is not None)
        assert "changed since it was enqueued" in (job.row.problem or "")
        assert job.row.input_manifest is None
        await status(job, "queued")
