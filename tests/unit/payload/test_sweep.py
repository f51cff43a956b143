"""What nobody needs is freed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from p2pqueue.errors import PayloadUnavailable
from p2pqueue.home import Home
from p2pqueue.payload import batch as batch_module
from p2pqueue.payload import holdings
from p2pqueue.payload import sweep as sweep_module
from p2pqueue.payload.shelf import Shelf
from tests.unit.payload.conftest import MIB, SPACE_KEY, MakeFile, content


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass for the shelf."""
    passed = [0.0]
    real = time.time

    class Clock:
        @staticmethod
        def time() -> float:
            return real() + passed[0]

    monkeypatch.setattr(sweep_module, "time", Clock)
    monkeypatch.setattr(batch_module, "time", Clock)
    monkeypatch.setattr(holdings, "time", Clock)

    def pass_by(seconds: float) -> None:
        passed[0] += seconds

    return pass_by


def shard_count(home: Home) -> int:
    return len(list(home.shards_dir.iterdir()))


def test_what_was_taken_in_a_moment_ago_stays(shelf: Shelf, make_file: MakeFile, later: Callable[[float], None]) -> None:
    stored = shelf.ingest(make_file(2 * MIB))
    later(3000)
    assert shelf.sweep([]) == 0
    assert b"".join(shelf.open(stored.capability)) == content(2 * MIB)


@pytest.mark.parametrize("copy", [True, False])
def test_what_is_live_stays_and_the_rest_goes(
    shelf: Shelf, make_file: MakeFile, home: Home, copy: bool, later: Callable[[float], None]
) -> None:
    live, dead = shelf.ingest(make_file(2 * MIB), copy=copy), shelf.ingest(make_file(2 * MIB, "dead", seed=1), copy=copy)
    later(4000)
    freed = shelf.sweep([live.capability])
    assert freed > (2 * MIB if copy else 100)
    assert shelf.holds(live.capability)
    assert b"".join(shelf.open(live.capability)) == content(2 * MIB)
    assert not shelf.holds(dead.capability)
    with pytest.raises(PayloadUnavailable):
        list(shelf.open(dead.capability))
    assert shard_count(home) == (2 if copy else 0)
    assert shelf.usage().files == 1
    assert shelf.sweep([live.capability]) == 0


def test_a_shared_shard_stays_as_long_as_one_file_needs_it(shelf: Shelf, make_file: MakeFile, later: Callable[[float], None]) -> None:
    one, two = shelf.ingest(make_file(MIB)), shelf.ingest(make_file(MIB, "other name"))
    later(4000)
    shelf.sweep([two.capability])
    assert b"".join(shelf.open(two.capability)) == content(MIB)
    assert not shelf.holds(one.capability)


def test_several_files_are_live_with_the_manifest_that_lists_them(
    shelf: Shelf, make_file: MakeFile, later: Callable[[float], None]
) -> None:
    one, two = shelf.ingest(make_file(MIB, "one")), shelf.ingest(make_file(MIB, "two", seed=1), copy=False)
    both = shelf.bundle({"a": one.capability, "b": two.capability})
    later(4000)
    shelf.sweep([both])
    assert shelf.holds(both)
    assert b"".join(shelf.open(one.capability)) == content(MIB)
    shelf.sweep([])
    assert shelf.usage().files == 0
    assert shelf.usage().stored == 0


def test_what_is_being_taken_in_is_never_freed(
    shelf: Shelf, make_file: MakeFile, home: Home, monkeypatch: pytest.MonkeyPatch, later: Callable[[float], None]
) -> None:
    monkeypatch.setattr(batch_module, "BATCH_SIZE", MIB)
    other = Shelf(home, SPACE_KEY, quota=100 * MIB, reserve=0)

    def meanwhile(done: int, _: int) -> None:
        later(600)
        other.sweep([])

    stored = shelf.ingest(make_file(8 * MIB), copy=True, on_progress=meanwhile, threads=0)
    assert b"".join(shelf.open(stored.capability)) == content(8 * MIB)
    other.close()


def test_a_known_file_that_is_shared_again_is_held_again(shelf: Shelf, make_file: MakeFile, later: Callable[[float], None]) -> None:
    path = make_file(2 * MIB)
    first = shelf.ingest(path, copy=False)
    later(4000)
    assert shelf.ingest(path, copy=False) == first
    shelf.sweep([])
    assert shelf.holds(first.capability)


def test_a_clock_that_was_set_back_frees_nothing_too_early(shelf: Shelf, make_file: MakeFile, later: Callable[[float], None]) -> None:
    later(100_000)
    stored = shelf.ingest(make_file(10))
    later(-100_000)
    shelf.sweep([])
    assert shelf.holds(stored.capability)
    later(4000)
    shelf.sweep([])
    assert not shelf.holds(stored.capability)


KILLED = """
import os, signal, sys
from pathlib import Path
from p2pqueue.home import Home
from p2pqueue.payload import batch
from p2pqueue.payload.shelf import Shelf

batch.BATCH_SIZE = 2 * 1024**2
shelf = Shelf(Home(Path(sys.argv[1])), bytes(range(32)), quota=10**9, reserve=0)
stop = lambda done, size: os.kill(os.getpid(), signal.SIGKILL) if done >= 5 * 1024**2 else None
shelf.ingest(sys.argv[2], copy=True, on_progress=stop, threads=0)
"""


def test_what_a_killed_process_left_is_freed(shelf: Shelf, make_file: MakeFile, home: Home, later: Callable[[float], None]) -> None:
    path = make_file(8 * MIB)
    assert subprocess.run([sys.executable, "-c", KILLED, home.path, path], check=False).returncode == -9
    assert any(entry.name.startswith(".") for entry in home.shards_dir.iterdir())
    assert shard_count(home) == 5
    later(120)
    shelf.sweep([])
    assert not any(entry.name.startswith(".") for entry in home.shards_dir.iterdir())
    later(4000)
    shelf.sweep([])
    assert shard_count(home) == 0
    assert shelf.usage().stored == 0
    assert b"".join(shelf.open(shelf.ingest(path).capability)) == content(8 * MIB)


LASTING = """
import sys, time
from pathlib import Path
from p2pqueue.home import Home
from p2pqueue.payload import batch
from p2pqueue.payload.shelf import Shelf

batch.BATCH_SIZE = 2 * 1024**2
shelf = Shelf(Home(Path(sys.argv[1])), bytes(range(32)), quota=10**9, reserve=0)

def wait(done, size):
    if done == 5 * 1024**2:
        print("midway", flush=True)
        sys.stdin.readline()

print(shelf.ingest(sys.argv[2], copy=True, on_progress=wait, threads=0).capability)
"""


def test_what_a_killed_process_left_goes_when_a_node_begins(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    kept = shelf.ingest(make_file(MIB, "kept", seed=4))
    assert subprocess.run([sys.executable, "-c", KILLED, home.path, make_file(8 * MIB)], check=False).returncode == -9
    stray, orphan = home.shards_dir / ("ab" * 32), home.path / "outputs" / "0123456789abcdef"
    stray.write_bytes(b"stray")
    orphan.mkdir(parents=True)
    (orphan / "half").write_bytes(bytes(1000))
    assert shelf.clear_leftovers() > 1000
    assert not any(entry.name.startswith(".") for entry in home.shards_dir.iterdir())
    assert not stray.exists()
    assert not orphan.exists()
    shelf.sweep([])
    assert shard_count(home) == 1
    assert b"".join(shelf.open(kept.capability)) == content(MIB, seed=4)


def test_what_another_process_is_taking_in_stays_when_a_node_begins(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    path = make_file(8 * MIB)
    words = [sys.executable, "-c", LASTING, str(home.path), str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as sharing:
        assert sharing.stdin is not None
        assert sharing.stdout is not None
        assert sharing.stdout.readline() == "midway\n"
        assert any(entry.name.startswith(".") for entry in home.shards_dir.iterdir())
        shelf.clear_leftovers()
        shelf.sweep([])
        sharing.stdin.write("\n")
        sharing.stdin.flush()
        capability = sharing.stdout.readline().strip()
    assert b"".join(shelf.open(capability)) == content(8 * MIB)


def test_what_lies_in_the_home_and_is_known_stays_when_a_node_begins(shelf: Shelf, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    made = home.work_dir / "job" / "clip.bin"
    made.parent.mkdir(parents=True)
    made.write_bytes(content(2 * MIB))
    monkeypatch.setattr("p2pqueue.payload.shelf.COPY_LIMIT", MIB)
    kept = shelf.adopt(made)
    assert shelf.clear_leftovers() == 0
    assert b"".join(shelf.open(kept.capability)) == content(2 * MIB)


def test_a_file_whose_row_never_came_to_be_is_freed_after_an_hour(shelf: Shelf, home: Home, later: Callable[[float], None]) -> None:
    shelf.sweep([])
    stray = home.shards_dir / ("ab" * 32)
    stray.write_bytes(b"stray")
    note = home.shards_dir / "README"
    note.write_bytes(b"somebody's own")
    shelf.sweep([])
    assert stray.exists()
    later(4000)
    assert shelf.sweep([]) == 5
    assert not stray.exists()
    assert note.exists()


def test_removing_a_file_frees_it_at_once(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    one, two = shelf.ingest(make_file(MIB)), shelf.ingest(make_file(MIB, "other name"))
    both = shelf.bundle({"a": two.capability})
    assert 0 < shelf.remove(one.capability) < 1000  # the chunk is needed by the other
    assert shelf.remove(two.capability) == 0  # it is listed
    assert shelf.holds(both)
    shelf.remove(both)
    assert shelf.remove(two.capability) > MIB
    assert shard_count(home) == 0
    assert shelf.remove(two.capability) == 0


def test_removing_forgets_a_plain_file_and_leaves_it_alone(shelf: Shelf, make_file: MakeFile) -> None:
    path = make_file(MIB)
    stored = shelf.ingest(path, copy=False)
    shelf.remove(stored.capability)
    assert path.read_bytes() == content(MIB)
    assert shelf.locate(stored.capability) is None
    assert shelf.usage().referenced == 0


def test_usage_is_told(shelf: Shelf, make_file: MakeFile) -> None:
    shelf.ingest(make_file(2 * MIB))
    shelf.ingest(make_file(3 * MIB, "other"), copy=False)
    usage = shelf.usage()
    assert usage.files == 2
    assert usage.quota == 1024 * MIB
    assert usage.referenced == 3 * MIB
    assert 2 * MIB < usage.stored < 2 * MIB + 3000
    assert usage.outputs == 0


def test_a_row_that_names_no_manifest_stops_no_sweep(shelf: Shelf, make_file: MakeFile, later: Callable[[float], None]) -> None:
    live = shelf.ingest(make_file(10))
    later(4000)
    shelf.sweep(["", "p2pq1-nonsense", "\ud800", live.capability])
    assert shelf.holds(live.capability)


def test_sweeping_a_home_without_files_does_nothing(tmp_path: Path) -> None:
    shelf = Shelf(Home(tmp_path / "new"), SPACE_KEY)
    assert shelf.sweep([]) == 0
    shelf.close()
    assert sorted(os.listdir(tmp_path / "new")) == ["shelf.spare", "shelf.sqlite"]


def test_what_an_earlier_process_of_the_same_id_left_goes_when_a_node_begins(shelf: Shelf, make_file: MakeFile, home: Home) -> None:
    shelf.ingest(make_file(10))
    before, now = (home.shards_dir / f".{'ab' * 32}.{os.getpid()}-{name}" for name in ("aa", "bb"))
    for path in (before, now):
        path.write_bytes(b"half")
    long_ago = psutil.Process().create_time() - 1000
    os.utime(before, (long_ago, long_ago))
    shelf.clear_leftovers()
    assert not before.exists()
    assert now.exists()
