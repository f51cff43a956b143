"""Folders go into jobs and come out of them as files do."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from p2pqueue import File, MisuseError
from tests.integration.node.stage import Stage, status, until

APP = str(Path(__file__).with_name("folder_app.py"))
LARGE = 65 * 1024 * 1024  # bytes: from 64 MiB a folder is served from where it lies


def folder_of(stage: Stage, name: str = "frames", size: int = 0) -> Path:
    folder = stage.folder / name
    (folder / "deep").mkdir(parents=True)
    (folder / "one.txt").write_text("one")
    (folder / "deep" / "zwei ü.txt").write_text("zwei")
    if size:
        with (folder / "large.bin").open("wb") as file:
            file.write(b"begin")
            file.truncate(size)
    return folder


FILES = {"one.txt": 3, os.path.join("deep", "zwei ü.txt"): 4}


def stored(stage: Stage) -> int:
    """Bytes of shards in the home."""
    return sum(path.stat().st_size for path in stage.home.shards_dir.rglob("*") if path.is_file())


async def test_a_small_folder_may_go_once_its_job_is_enqueued(stage: Stage) -> None:
    folder = folder_of(stage)
    job = stage.enqueue("survey", folder=File(folder), beside=File(folder / "one.txt"))
    inline = stage.enqueue("inline_survey", folder=File(f"{folder}{os.sep}"))
    assert job.row.input_size == 10
    assert inline.row.input_name == "frames"
    shutil.rmtree(folder)
    async with stage.run(APP):
        told, beside = await job.aresult(20)
        assert (told["name"], told["size"], told["is_folder"], told["files"]) == ("frames", 7, True, FILES)
        assert beside == {"text": "one"}
        assert (await inline.aresult(20))["files"] == FILES
    assert not list(stage.home.work_dir.iterdir()), "what was unpacked is gone"


async def test_a_large_folder_is_read_where_it_lies_and_sealed_in_the_background(stage: Stage) -> None:
    folder = folder_of(stage, size=LARGE)
    job = stage.enqueue("survey", folder=File(folder))
    late = stage.enqueue("survey", folder=File(folder), options={"delay": 60})
    assert (job.row.input_name, job.row.input_size, job.row.input_manifest) == ("frames", LARGE + 7, None)
    async with stage.run(APP):
        (told,) = await job.aresult(20)
        assert told["path"] == str(folder)
        assert told["files"] == {**FILES, "large.bin": LARGE}
        await until(lambda: late.row.input_manifest is not None, within=30)
        again = stage.enqueue("survey", folder=File(late.row.input_manifest))
        (told,) = await again.aresult(20)
        assert told["path"] == str(folder)
    assert stored(stage) < 1_000_000


def put_one_in(folder: Path) -> None:
    (folder / "deep" / "new.txt").write_text("new")


TROUBLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a new file": (put_one_in, "changed since it was enqueued"),
    "a changed file": (lambda folder: (folder / "one.txt").write_text("eno"), "changed since it was enqueued"),
    "a file that is gone": (lambda folder: (folder / "one.txt").unlink(), "changed since it was enqueued"),
    "all gone": (shutil.rmtree, "can't be read"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_job_whose_large_folder_changed_waits_and_says_why(stage: Stage, trouble: str) -> None:
    folder = folder_of(stage, size=LARGE)
    job = stage.enqueue("survey", folder=File(folder))
    change, words = TROUBLES[trouble]
    change(folder)
    async with stage.run(APP):
        await until(lambda: words in (stage.why(job) or ""))
        assert job.status == "queued"
        assert job.row.attempt == 0
        job.cancel()


async def test_a_folder_that_a_handler_makes_comes_out_with_its_result(stage: Stage, tmp_path: Path) -> None:
    async with stage.run(APP):
        made = await stage.result("make_frames", count=3)
        assert (made.name, made.size, made.is_folder) == ("frames", 30, True)
        saved = made.save(tmp_path / "saved")
        assert sorted(each.name for each in (saved / "deep").iterdir()) == ["0.png", "1.png", "2.png"]
        assert (saved / "deep" / "2.png").read_bytes() == b"2" + bytes(9)
        with pytest.raises(MisuseError, match="folder"):
            made.bytes()
        (told,) = await stage.result("survey", folder=made)
        assert told["files"] == {os.path.join("deep", f"{n}.png"): 10 for n in range(3)}
    assert not list(stage.home.work_dir.iterdir())


async def test_a_large_folder_that_a_handler_makes_is_moved_and_served_from_the_home(stage: Stage, tmp_path: Path) -> None:
    async with stage.run(APP):
        made = await stage.result("make_frames", count=2, size=LARGE)
        assert made.size == 2 * LARGE
        assert stored(stage) < 1_000_000
        (told,) = await stage.result("survey", folder=made)
        assert Path(told["path"]).is_relative_to(stage.home.path / "outputs")
        assert sum(each.stat().st_size for each in made.path.rglob("*.png")) == 2 * LARGE
        target = await asyncio.to_thread(made.save, tmp_path / "saved")
        assert (target / "deep" / "1.png").stat().st_size == LARGE
    stage.queue.access.shelf.remove(made.manifest)
    assert list((stage.home.path / "outputs").iterdir()) == []


async def test_what_a_link_in_a_large_folder_leads_to_is_taken_along(stage: Stage, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.bin"
    with elsewhere.open("wb") as file:
        file.truncate(LARGE)
    async with stage.run(APP):
        made = await stage.result("link_frames", path=str(elsewhere))
        elsewhere.unlink()
        saved = await asyncio.to_thread(made.save, tmp_path / "saved")
    assert (saved / "large.bin").stat().st_size == LARGE


async def test_a_handler_hands_a_folder_on_to_another_job(stage: Stage) -> None:
    async with stage.run(APP):
        await stage.result("make_frames", count=2, follow=True)
        after = next(each for each in stage.queue.jobs(task="survey"))
        (told,) = await after.aresult(20)
        assert told["files"] == {os.path.join("deep", f"{n}.png"): 10 for n in range(2)}


async def test_a_folder_that_is_too_large_for_a_device_waits(stage: Stage) -> None:
    job = stage.enqueue("survey", folder=File(folder_of(stage)))
    async with stage.run(APP, max_input=5):
        await until(lambda: "too large" in (stage.why(job) or ""))
    async with stage.run(APP):
        await status(job, "succeeded")
