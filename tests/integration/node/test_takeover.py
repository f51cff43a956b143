"""What another worker runs is taken over when that worker falls silent, by this device's own clock."""

from __future__ import annotations

from pathlib import Path

from p2pqueue.home import Home
from p2pqueue.identity import keys
from p2pqueue.identity.keys import Identity
from p2pqueue.jobs import rows
from p2pqueue.replica.file import backup
from tests.integration.node.stage import Stage, status


async def test_a_job_that_ran_when_its_home_was_backed_up_runs_again_on_the_restored_one(
    stage: Stage, identity: Identity, tmp_path: Path
) -> None:
    saved, again = tmp_path / "saved", Home(tmp_path / "again")
    async with stage.run():
        job = stage.enqueue("nap", seconds=1.0)
        await status(job, "running")
        backup.backup(stage.home.replica_file, saved)
        await status(job, "succeeded")

    again.ensure()
    backup.restore(saved, again.replica_file)
    keys.restore(again, keys.export_space(identity), "spare")
    restored = Stage(again, tmp_path)
    try:
        async with restored.run(stale_after=0.5, beat_every=0.1):
            taken = restored.queue.get(job.id)
            assert taken.status == "running"  # the lost device may still be at it
            await status(taken, "succeeded")
        runs = restored.read(rows.runs_of, job.id)
        assert [(run.status, run.attempt, run.worker_label == "spare") for run in runs] == [("lost", 1, False), ("succeeded", 2, True)]
    finally:
        await restored.close()


async def test_a_job_of_a_worker_that_still_gives_signs_is_left_to_it(stage: Stage) -> None:
    async with stage.run(stale_after=0.4, beat_every=0.1):
        job = stage.enqueue("nap", seconds=1.5)
        await status(job, "succeeded")
    assert [run.status for run in stage.read(rows.runs_of, job.id)] == ["succeeded"]
