from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from p2pqueue import wire
from p2pqueue.errors import ArgumentError
from p2pqueue.workers.children.context import Continue, JobContext, current_job, running


class Heard:
    """A channel that keeps what a handler says."""

    cancelled = False

    def __init__(self) -> None:
        self.steps: list[tuple[float, str | None]] = []
        self.states: list[bytes] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.logged = b""

    def progress(self, fraction: float, phase: str | None) -> None:
        self.steps.append((fraction, phase))

    def checkpoint(self, state: bytes) -> None:
        self.states.append(state)

    def request(self, kind: str, fields: dict[str, Any]) -> Any:
        self.requests.append((kind, fields))
        return {"id": "new"}

    def log(self, data: bytes) -> None:
        self.logged += data


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def job(heard: Heard, tmp_path: Path) -> JobContext:
    return JobContext(heard, job_id="j", task="t", attempt=2, workdir=tmp_path / "work", timeout=60.0, resume_from=wire.pack([1]))


def test_the_current_job_is_that_of_the_block(job: JobContext) -> None:
    with running(job):
        assert current_job() is job
    assert current_job() is not job


def test_threads_find_the_job_of_a_process_that_runs_one(job: JobContext) -> None:
    found: list[JobContext] = []
    with running(job, whole_process=True):
        thread = threading.Thread(target=lambda: found.append(current_job()))
        thread.start()
        thread.join()
    assert found == [job]


@pytest.mark.parametrize(
    ("given", "told", "reason"),
    [
        ((0.5,), (0.5, None), "no phase"),
        ((-1, "x"), (0.0, "x"), "below"),
        ((7, "x"), (1.0, "x"), "above"),
        ((float("inf"),), (1.0, None), "far above"),
        ((True,), (1.0, None), "a bool is a number"),
        ((0.1, "x" * 500), (0.1, "x" * 200), "a long phase"),
        ((0.1, "\ud800"), (0.1, "?"), "a phase that is no text"),
    ],
)
def test_progress_is_cut_to_what_can_be(
    job: JobContext, heard: Heard, given: tuple[Any, ...], told: tuple[float, str | None], reason: str
) -> None:
    job.set_progress(*given)
    assert heard.steps == [told], reason


def test_progress_that_is_no_number_is_refused(job: JobContext) -> None:
    with pytest.raises(ValueError, match="NaN"):
        job.set_progress(float("nan"))


def test_a_checkpoint_is_packed_and_bounded(job: JobContext, heard: Heard) -> None:
    job.checkpoint({"frame": 7})
    assert wire.unpack(heard.states[0]) == {"frame": 7}
    with pytest.raises(ArgumentError, match="65,536 fit"):
        job.checkpoint("x" * 70_000)
    with pytest.raises(ArgumentError):
        job.checkpoint(object())


def test_what_an_earlier_attempt_kept_is_there(job: JobContext) -> None:
    assert job.resume_from == [1]


def test_continuing_ends_the_attempt_even_where_errors_are_caught(job: JobContext) -> None:
    def handler() -> None:
        try:
            job.continue_([2])
        except Exception:  # noqa: BLE001 - what a handler might do
            pytest.fail("it must pass through")

    with pytest.raises(Continue) as caught:
        handler()
    assert wire.unpack(caught.value.state) == [2]


def test_time_left_and_deadline_follow_the_timeout(job: JobContext, heard: Heard) -> None:
    assert job.time_left is not None
    assert 0 < job.time_left <= 60
    assert job.deadline is not None
    assert job.deadline.utcoffset() is not None
    without = JobContext(heard, job_id="j", task="t")
    assert without.deadline is without.time_left is None


def test_the_folder_is_made_when_it_is_asked_for(job: JobContext, tmp_path: Path) -> None:
    assert not (tmp_path / "work").exists()
    assert job.workdir == tmp_path / "work"
    assert (tmp_path / "work").is_dir()


def test_the_log_takes_words_and_serves_as_a_file(job: JobContext, heard: Heard) -> None:
    job.log("one", 2)
    print("three", file=job.log)  # type: ignore[arg-type]
    assert heard.logged == b"one 2\nthree\n"


def test_a_follow_up_by_name_takes_its_arguments_by_name(job: JobContext, heard: Heard) -> None:
    assert job.enqueue("other", x=1) == "new"
    (kind, fields) = heard.requests[0]
    assert (kind, fields["task"], wire.unpack(fields["args"])) == ("enqueue", "other", {"x": 1})
    with pytest.raises(ArgumentError, match="order"):
        job.enqueue("other", 1)


def test_a_plain_call_finds_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    job = current_job()
    job.set_progress(0.5, "x")
    job.checkpoint([1])
    job.log("words")
    assert job.id == ""
    assert job.attempt == 1
    assert not job.cancelled
    assert job.resume_from is None
    assert job.workdir.is_dir()
    with pytest.raises(LookupError, match="no job is running here"):
        job.enqueue("other")
