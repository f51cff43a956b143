"""Nothing that was acknowledged is lost, however often and whenever the node is killed by signal 9."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from p2pqueue import Queue
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.kills.app import ATTEMPTS, RAN
from tests.integration.nodes import ROOT, CommandLine, Program

KILLS = int(os.environ.get("P2PQUEUE_TEST_KILLS", "50"))
CHILDREN_GONE = 2.0  # seconds after a kill when nothing of the node may live
APPLICATION = str(ROOT / "tests" / "integration" / "kills" / "app.py")


class Killings:
    """Starts nodes on one home, has jobs enqueued from inside and outside, and kills the nodes at random moments."""

    def __init__(self, home: Home, rng: random.Random) -> None:
        self.home = home
        self.rng = rng
        self.acknowledged: list[str] = []
        self.queue = Queue("kills", home=home.path)

    def once(self, number: int) -> None:
        """One node's life, from its start to a kill at a random moment, often enough before it is ready."""
        program = self._start(number)
        stop = threading.Event()
        readers = [threading.Thread(target=self._read, args=(program,)), threading.Thread(target=self._enqueue, args=(stop,))]
        try:
            if self.rng.random() < 0.8:
                program.wait_until_ready()
                for reader in readers:
                    reader.start()
                stop.wait(self.rng.uniform(0.0, 0.5))
            else:
                stop.wait(self.rng.uniform(0.0, 0.5))
        finally:
            program.kill()
            stop.set()
            for reader in readers:
                if reader.ident is not None:
                    reader.join()
            program.lines.close()
        program.wait_until_no_descendant_lives(CHILDREN_GONE)

    def _start(self, number: int) -> Program:
        inside = [sys.executable, "-m", "tests.integration.kills.program", str(self.rng.randrange(1 << 30))]
        by_command = [sys.executable, "-m", "p2pqueue", "run", APPLICATION, "--slots", "4"]
        return Program(self.rng.choice([inside, inside, by_command]), self.home.path, f"{self.home.path}-{number}")

    def _read(self, program: Program) -> None:
        for line in program.lines:
            if len(line) == 37 and line.endswith("\n"):  # a whole id: the last line may be cut
                self.acknowledged.append(line.strip())

    def _enqueue(self, stop: threading.Event) -> None:
        while not stop.wait(self.rng.expovariate(200)):
            job = self.queue.enqueue("inline", {"number": 1}, max_attempts=ATTEMPTS)
            self.acknowledged.append(job.id)


@pytest.mark.timeout(60 + 10 * KILLS)
def test_no_acknowledged_job_is_lost_and_each_ends_over_random_kills(
    home: Home, identity: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    monkeypatch.setenv(RAN, str(tmp_path / "ran"))
    killings = Killings(home, random.Random(seed))
    for number in range(KILLS):
        killings.once(number)
        assert _integrity(home.replica_file) == "ok"
    killings.queue.close()
    done = CommandLine(home.path).run("run", APPLICATION, "--slots", "16", "--burst", timeout=60 + KILLS)
    assert done.returncode == 0, done.stderr
    ended = _statuses(home.replica_file)
    print(f"{len(killings.acknowledged)} acknowledged, {Counter(ended.values())}, runs {_runs(home.replica_file)}")
    assert len(killings.acknowledged) > KILLS, "hardly a job was enqueued"
    lost = [job for job in killings.acknowledged if job not in ended]
    assert not lost
    assert set(ended.values()) == {"succeeded"}
    ran = set((tmp_path / "ran").read_text().split())
    assert set(ended) <= ran, "a job succeeded that never ran"
    assert _runs(home.replica_file)["lost"] > 0, "no kill met a running job"


def _integrity(database: Path) -> str:
    if not database.exists():  # killed before it was made
        return "ok"
    connection = sqlite3.connect(database)
    try:
        word: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        connection.close()
    return word


def _statuses(database: Path) -> dict[str, str]:
    connection = sqlite3.connect(database)
    try:
        return dict(connection.execute("SELECT id, status FROM jobs WHERE live = 1"))
    finally:
        connection.close()


def _runs(database: Path) -> Counter[str]:
    connection = sqlite3.connect(database)
    try:
        return Counter(dict(connection.execute("SELECT status, count(*) FROM runs GROUP BY status")))
    finally:
        connection.close()
