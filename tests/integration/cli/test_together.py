"""Several commands on one home at the same time: none is lost, none fails for another's sake."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.integration.cli.conftest import CommandLine, ids


def test_commands_beside_a_node_and_one_another_lose_nothing(p2p: CommandLine) -> None:
    def enqueue_and_cancel(worker: int) -> list[str]:
        kept = []
        for number in range(2):
            kept.append(p2p("enqueue", "add", f"a={worker}", f"b={number}", real=True).id)
            gone = p2p("enqueue", "echo", "--delay", "1h", real=True).id
            p2p("cancel", gone, real=True)
        return kept

    with p2p.node():
        with ThreadPoolExecutor(3) as pool:
            kept = [job for jobs in pool.map(enqueue_and_cancel, range(3)) for job in jobs]
        p2p("watch", *kept)
    done = p2p("list", "--json", "--status", "succeeded", "--limit", "1000").json["jobs"]
    assert sorted(job["id"] for job in done) == sorted(kept)
    assert len({job["id"] for job in done}) == 6
    assert sorted(job["result"]["sum"] for job in done) == sorted(w + n for w in range(3) for n in range(2))
    assert len(ids(p2p("list", "--json", "--status", "cancelled"))) == 6


def test_a_foreign_write_transaction_is_waited_for(p2p: CommandLine) -> None:
    """Somebody's sqlite3 shell holds the database for a second: commands wait, or say so in words."""
    holder = sqlite3.connect(p2p.home / "replica.sqlite", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    release = threading.Timer(1.0, lambda: holder.execute("ROLLBACK"))
    release.start()
    try:
        assert p2p("list", "--json", real=True).json["jobs"] == []  # a reader waits for nobody
        job_id = p2p("enqueue", "later", real=True).id
    finally:
        release.join()
        holder.close()
    assert ids(p2p("list", "--json")) == [job_id]


def test_a_unique_key_enqueued_by_many_at_once_is_one_job(p2p: CommandLine) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: p2p("enqueue", "index", "--unique-key", "nightly", real=True).id, range(4)))
    assert len(set(made)) == 1
    assert ids(p2p("list", "--json")) == made[:1]


def test_a_list_that_watches_shows_what_others_do(p2p: CommandLine) -> None:
    process = p2p.start("list", "--watch", "--json")
    try:
        assert process.stdout is not None
        assert '"jobs": []' in process.stdout.readline()
        job_id = p2p("enqueue", "later").id
        assert job_id in process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_who_watches_a_job_that_waits_reads_why(p2p: CommandLine) -> None:
    job_id = p2p("enqueue", "later").id
    process = p2p.start("watch", job_id)
    try:
        assert process.stdout is not None
        assert "no node runs here" in process.stdout.readline()
        p2p("cancel", job_id)
        assert process.wait(20) == 7
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_a_killed_command_leaves_the_home_whole(p2p: CommandLine) -> None:
    for _ in range(3):
        process = p2p.start("enqueue", "later", stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        printed = process.stdout.readline().strip()
        process.kill()
        process.wait()
        process.stdout.close()
        assert printed in ids(p2p("list", "--json", "--limit", "100"))
    assert p2p("doctor", "--json", check=None).json["ok"]
