"""Waiting for jobs, watching them, and acting on them in each of their states."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from p2pqueue import File, Job, JobCancelled, JobFailed, NoSuchJob, Progress, Queue, ResultTimeout, WrongState
from p2pqueue.jobs.arguments import decode
from p2pqueue.replica.door.doorbell import DoorbellServer
from tests.unit.jobs.hand import Hand


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Works in a thread while the block runs; what it raises is raised here."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed on
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)
        if errors:
            raise errors[0]


@pytest.fixture
def job(queue: Queue) -> Job[int]:
    job: Job[int] = queue.tasks["double"].enqueue(21)
    return job


def test_a_result_is_what_the_handler_returned(job: Job[int], hand: Hand) -> None:
    hand.succeed(hand.take_one(), {"n": [42]})
    assert job.result() == {"n": [42]}
    assert (job.status, job.progress, job.phase, job.done) == ("succeeded", 1.0, "Done", True)
    assert job.finished_at is not None


def test_waiting_ends_soon_after_the_job_does(job: Job[int], hand: Hand) -> None:
    ended = 0.0

    def work() -> None:
        nonlocal ended
        time.sleep(0.2)
        hand.succeed(hand.take_one(), 42)
        ended = time.monotonic()

    with meanwhile(work):
        assert job.result(timeout=20) == 42
        told = time.monotonic()
    assert told - ended < 1.0


async def test_awaiting_a_job_gives_its_result(job: Job[int], hand: Hand) -> None:
    claimed = hand.take_one()
    waiting = asyncio.create_task(job.aresult(timeout=20))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await asyncio.to_thread(hand.succeed, claimed, 42)
    assert await waiting == 42
    assert await job == 42


async def test_a_thousand_jobs_are_awaited_by_two_threads(queue: Queue, hand: Hand) -> None:
    jobs = await queue.tasks["double"].aenqueue_many([{"n": n} for n in range(200)])
    before = threading.active_count()
    waiting = asyncio.gather(*(job.aresult(30) for job in jobs))
    await asyncio.sleep(0.3)
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith(("p2pqueue-follow", "p2pqueue-listen"))]
    assert len(threads) <= 2, before

    def work() -> None:
        for claimed in hand.take(200):
            hand.succeed(claimed, decode(claimed.args)["n"])

    await asyncio.to_thread(work)
    assert await waiting == list(range(200))


def test_a_failure_carries_the_error_and_the_traceback(job: Job[int], hand: Hand) -> None:
    hand.fail(hand.take_one(), "ValueError: boom", traceback="Traceback: line 7")
    with pytest.raises(JobFailed, match=r"\(double\) failed: ValueError: boom") as failed:
        job.result()
    assert (failed.value.job_id, failed.value.error, failed.value.traceback) == (job.id, "ValueError: boom", "Traceback: line 7")


def test_a_cancelled_job_has_no_result(job: Job[int], hand: Hand) -> None:
    claimed = hand.take_one()
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result()
    hand.succeed(claimed, 42)
    with pytest.raises(JobCancelled):
        job.result()  # a result that arrives after a cancel is discarded


def test_waiting_ends_in_time_and_the_job_goes_on(job: Job[int], hand: Hand) -> None:
    hand.progress(hand.take_one(), 0.25)
    with pytest.raises(ResultTimeout, match=r"running, 25%.*it goes on"):
        job.result(timeout=0.05)
    with pytest.raises(TimeoutError):
        job.result(0)
    assert job.status == "running"


async def test_awaiting_ends_in_time(job: Job[int]) -> None:
    with pytest.raises(ResultTimeout, match="queued, 0%"):
        await job.aresult(timeout=0.05)
    with pytest.raises(TimeoutError):  # the caller's own limit is the caller's
        async with asyncio.timeout(0.05):
            await job


def test_waiting_for_a_job_that_is_deleted_ends(job: Job[int]) -> None:
    def work() -> None:
        time.sleep(0.1)
        job.delete()

    with meanwhile(work), pytest.raises(NoSuchJob, match="was deleted"):
        job.result(timeout=20)


def test_attempts_tell_how_each_run_ended(job: Job[int], hand: Hand) -> None:
    hand.retry(hand.take_one(), "flaky")
    hand.release(hand.take_one())
    hand.succeed(hand.take_one(), 42)
    attempts = job.attempts
    assert [(a.number, a.status, a.error) for a in attempts] == [(1, "failed", "flaky"), (2, "released", None), (2, "succeeded", None)]
    assert all(a.duration == 0.5 and a.device == "here" and a.ended_at is not None and a.started_at <= a.ended_at for a in attempts)
    assert job.error is None


def test_watching_shows_each_step_once_and_the_end_last(job: Job[int], hand: Hand) -> None:
    seen: list[Progress] = []

    def work() -> None:
        claimed = hand.take_one()
        for fraction in (0.25, 0.5):
            time.sleep(0.3)
            hand.progress(claimed, fraction, "encoding")
        time.sleep(0.3)
        hand.succeed(claimed, 42)

    with meanwhile(work):
        seen.extend(job.watch())
    assert seen[-1] == Progress(1.0, "Done", "here", "succeeded")
    assert [(p.status, p.fraction) for p in seen if p.phase == "encoding"] == [("running", 0.25), ("running", 0.5)]
    assert len(set(seen)) == len(seen)


async def test_watching_in_a_coroutine_lets_the_loop_go_on(job: Job[int], hand: Hand) -> None:
    claimed = hand.take_one()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    seen = []
    async for step in job.watch():
        seen.append((step.status, step.fraction))
        if step.fraction < 0.5:
            await asyncio.to_thread(hand.progress, claimed, step.fraction + 0.25)
        elif step.status == "running":
            await asyncio.to_thread(hand.fail, claimed)
    ticking.cancel()
    assert seen == [("running", 0.0), ("running", 0.25), ("running", 0.5), ("failed", 0.5)]
    assert ticks > 5


def test_watching_what_has_ended_shows_its_end(job: Job[int]) -> None:
    job.cancel()
    assert [p.status for p in job.watch()] == ["cancelled"]


def test_watching_what_is_no_more_says_so(job: Job[int]) -> None:
    job.delete()
    with pytest.raises(NoSuchJob):
        next(iter(job.watch()))


def test_watching_a_job_that_is_deleted_ends(job: Job[int]) -> None:
    steps = iter(job.watch())
    assert next(steps).status == "queued"
    job.delete()
    assert list(steps) == []


@asynccontextmanager
async def a_node(queue: Queue, events: list[dict[str, Any]], asked: list[Any]) -> AsyncIterator[None]:
    """The socket of a node that tells these events to whoever watches."""

    async def watch(fields: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        asked.append(fields["jobs"])
        for event in events:
            yield event
            await asyncio.sleep(0.05)
        await asyncio.sleep(60)

    server = DoorbellServer(queue.access.home.socket_path, on_ring=lambda: None, streams={"watch": watch})
    await server.start()
    try:
        yield
    finally:
        await server.close()


async def test_a_nodes_word_is_heard_at_every_step(queue: Queue, job: Job[int], hand: Hand) -> None:
    claimed = hand.take_one()
    hand.progress(claimed, 0.01, "row")
    word = {"id": job.id, "status": "running", "phase": "node", "worker_label": "here"}
    events = [word | {"progress": n / 10} for n in range(1, 10)]
    asked: list[Any] = []
    seen = []
    async with a_node(queue, events, asked):
        async for step in job.watch():
            seen.append((step.fraction, step.phase))
            if step.fraction == 0.9:
                await asyncio.to_thread(hand.progress, claimed, 0.02, "late row")
                await asyncio.to_thread(hand.succeed, claimed, 42)
    assert asked == [[job.id]]
    steps = [fraction for fraction, phase in seen if phase == "node"]
    assert len(steps) > 5, "not every step need be seen, but many more than the row has"
    assert steps == sorted(steps)
    assert (0.02, "late row") not in seen, "what the row says late is no step back"
    assert seen[-1] == (1.0, "Done")


async def test_an_end_told_by_the_node_is_read_from_the_row(queue: Queue, job: Job[int], hand: Hand) -> None:
    claimed = hand.take_one()
    async with a_node(queue, [{"id": job.id, "status": "succeeded", "progress": 1.0}, {"id": job.id}, {"odd": 1}], []):
        waiting = asyncio.create_task(job.aresult(20))
        await asyncio.sleep(0.2)
        assert not waiting.done(), "a word alone is no result"
        await asyncio.to_thread(hand.succeed, claimed, 42)
        assert await waiting == 42


STATES = ["queued", "running", "paused", "succeeded", "failed", "cancelled"]


def bring_to(status: str, job: Job[int], hand: Hand) -> None:
    if status in ("running", "succeeded", "failed"):
        claimed = hand.take_one()
        if status == "succeeded":
            hand.succeed(claimed, 42)
        if status == "failed":
            hand.fail(claimed)
    if status == "paused":
        job.pause()
    if status == "cancelled":
        job.cancel()
    assert job.status == status


ACTIONS: list[tuple[str, str, str | None]] = [
    # verb, status before, status after (None: refused)
    *(("cancel", status, "cancelled") for status in ("queued", "running", "paused")),
    *(("cancel", status, None) for status in ("succeeded", "failed", "cancelled")),
    *(("pause", status, "paused") for status in ("queued", "running", "paused")),
    *(("pause", status, None) for status in ("succeeded", "failed", "cancelled")),
    ("resume", "paused", "queued"),
    *(("resume", status, None) for status in STATES if status != "paused"),
    *(("retry", status, "queued") for status in ("succeeded", "failed", "cancelled")),
    *(("retry", status, None) for status in ("queued", "running", "paused")),
]


@pytest.mark.parametrize(("verb", "before", "after"), ACTIONS)
def test_each_verb_in_each_state(job: Job[int], hand: Hand, verb: str, before: str, after: str | None) -> None:
    bring_to(before, job, hand)
    if after is None:
        with pytest.raises(WrongState, match=f"job {job.id} (has already|is) "):
            getattr(job, verb)()
        assert job.status == before
    else:
        getattr(job, verb)()
        assert job.status == after


def test_a_retry_goes_on_from_the_checkpoint_and_a_fresh_one_doesnt(job: Job[int], hand: Hand) -> None:
    claimed = hand.take_one()
    hand.checkpoint(claimed, b"\x01")
    hand.fail(claimed)
    job.retry()
    claimed = hand.take_one()
    assert (claimed.checkpoint, claimed.attempt) == (b"\x01", 1)
    hand.fail(claimed)
    job.retry(fresh=True)
    claimed = hand.take_one()
    assert (claimed.checkpoint, claimed.attempt) == (None, 1)


def test_a_worker_that_lost_its_job_cant_touch_its_progress(job: Job[int], hand: Hand) -> None:
    lost = hand.take_one()
    job.cancel()
    job.retry()
    hand.take_one()
    hand.progress(lost, 0.9)
    hand.checkpoint(lost, b"old")
    assert job.progress == 0.0
    hand.succeed(lost, "old")
    assert job.status == "running"


def test_a_file_argument_is_kept_so_that_the_original_may_go(queue: Queue, tmp_path: Path) -> None:
    @queue.task
    def size(video: File) -> int:
        return video.size

    original = tmp_path / "clip.mov"
    original.write_bytes(b"moving" * 1000)
    job = size.enqueue(File(original))
    original.unlink()
    row = job.row
    assert (row.input_name, row.input_size, row.demand.input_ready) == ("clip.mov", 6000, True)
    assert row.input_manifest is not None
    assert b"".join(queue.access.shelf.open(row.input_manifest)) == b"moving" * 1000


def test_a_large_file_is_served_from_where_it_lies(queue: Queue, tmp_path: Path) -> None:
    original = tmp_path / "large.mov"
    with original.open("wb") as file:
        file.truncate(80 * 1024**2)
    job = queue.enqueue("anything", {"video": File(original)})
    row = job.row
    assert (row.input_name, row.input_size, row.input_manifest, row.demand.input_ready) == ("large.mov", 80 * 1024**2, None, True)
    assert sum(path.stat().st_size for path in queue.access.home.shards_dir.rglob("*") if path.is_file()) == 0


def test_several_files_go_under_one_manifest(queue: Queue, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name * 10)
    job = queue.enqueue("anything", {"first": File(tmp_path / "a"), "second": File(tmp_path / "b"), "n": 1})
    row = job.row
    assert (row.input_name, row.input_size) == ("2 files", 20)
    assert row.input_manifest is not None
    assert set(queue.access.shelf.unbundle(row.input_manifest)) == {"first", "second"}


def test_a_file_that_cant_be_read_makes_no_job(queue: Queue, tmp_path: Path) -> None:
    from p2pqueue import InputUnreadable

    with pytest.raises(InputUnreadable, match=r"missing\.mov"):
        queue.enqueue("anything", {"video": File(tmp_path / "missing.mov")})
    assert queue.jobs() == []


def test_a_file_that_was_shared_is_an_argument_without_being_read_again(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("shared")
    shared = queue.share(tmp_path / "a.txt")
    assert shared.manifest is not None
    job = queue.enqueue("anything", {"video": File(shared.manifest)})
    assert (job.row.input_manifest, job.row.input_name, job.row.input_size) == (shared.manifest, "a.txt", 6)
    assert shared.bytes() == b"shared"


def test_a_folder_is_shared_as_a_whole_and_saved_or_had_as_a_folder(queue: Queue, tmp_path: Path) -> None:
    from p2pqueue.errors import MisuseError

    (tmp_path / "drawings" / "old").mkdir(parents=True)
    (tmp_path / "drawings" / "old" / "a.svg").write_text("<svg/>")
    shared = queue.share(tmp_path / "drawings")
    assert (shared.name, shared.size) == ("drawings", 6)
    assert shared.manifest is not None
    assert queue.share(tmp_path / "drawings").manifest == shared.manifest
    out = shared.save(tmp_path / "out")
    assert (out / "old" / "a.svg").read_text() == "<svg/>"
    assert (shared.path / "old" / "a.svg").read_text() == "<svg/>"
    with pytest.raises(MisuseError, match="folder of 1 files"):
        shared.bytes()
    given = queue.enqueue("anything", {"drawings": File(shared.manifest)}).row
    assert (given.input_manifest, given.input_name, given.input_size) == (shared.manifest, "drawings", 6)
    several = queue.access.shelf.bundle({"one": shared.manifest})
    with pytest.raises(MisuseError, match="lists several"):
        queue.enqueue("anything", {"drawings": File(several)})


def test_a_file_that_was_returned_is_a_file(queue: Queue, job: Job[int], hand: Hand, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_bytes(b"smaller")
    stored = queue.access.shelf.ingest(out)
    hand.succeed(hand.take_one(), File(out), manifest=stored.capability)
    result: Any = job.result()
    assert isinstance(result, File)
    assert (result.name, result.size, result.bytes()) == ("out.mp4", 7, b"smaller")
    assert result.save(tmp_path / "copy.mp4").read_bytes() == b"smaller"


def test_files_within_a_result_are_files(queue: Queue, job: Job[int], hand: Hand, tmp_path: Path) -> None:
    stored = {}
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
        stored[name] = queue.access.shelf.ingest(tmp_path / name).capability
    value = {"all": [File(tmp_path / "a.txt"), 7, File(tmp_path / "b.txt")]}
    bundle = queue.access.shelf.bundle({"all[0]": stored["a.txt"], "all[2]": stored["b.txt"]})
    hand.succeed(hand.take_one(), value, manifest=bundle)
    result: Any = job.result()
    first, number, second = result["all"]
    assert (first.name, first.bytes(), number, second.name, second.bytes()) == ("a.txt", b"a.txt", 7, "b.txt", b"b.txt")


async def test_a_retry_heeds_how_long_the_home_keeps_jobs(queue: Queue, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PQUEUE_RETENTION", "1d")
    for retry in (Job.retry, Job.aretry):
        job = queue.enqueue("double", {"n": 1})
        hand.fail(hand.take_one())
        await asyncio.sleep(0.002)
        again = retry(job)  # it may be gone elsewhere from a day before the end of its retention: now
        again = again if isinstance(again, Job) else await again
        assert again.id != job.id
        again.delete()
