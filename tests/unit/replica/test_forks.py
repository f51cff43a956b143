"""A copied or restored database goes on under a new author and loses nothing."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from p2pqueue.errors import DamagedHome
from p2pqueue.replica.file.backup import backup, restore
from p2pqueue.replica.merging.merged import stamp_text
from p2pqueue.replica.replica import Replica
from p2pqueue.replica.stamp import Stamp
from p2pqueue.replica.write import Write
from tests.unit.replica.kit import NOW, Clock, Device, Space, clip, everything, make_clip, open_replica, state, sync, write_of


def titled(replica: Replica, key: str, title: str) -> Stamp:
    return replica.write(lambda writer: writer.put("clips", key, "title", {"title": title}))


def title_of(replica: Replica, key: str) -> str | None:
    row = clip(replica, key)
    assert row is not None
    title: str | None = row["title"]
    return title


@pytest.fixture
def space() -> Space:
    return Space()


@pytest.fixture
def device(space: Space) -> Device:
    return space.device("here")


def copy_of(path: Path) -> Path:
    target = path.with_name(f"copy of {path.name}")
    shutil.copy(path, target)
    return target


def test_the_same_file_keeps_its_author(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with open_replica(device, path=path) as replica:
        author = replica.author
    with open_replica(device, path=path) as replica:
        assert replica.author == author
        assert replica.fork_reason is None


def test_a_moved_file_keeps_its_author(device: Device, tmp_path: Path) -> None:
    with open_replica(device, path=tmp_path / "a.sqlite") as replica:
        author = replica.author
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.sqlite").rename(tmp_path / "elsewhere" / "a.sqlite")
    with open_replica(device, path=tmp_path / "elsewhere" / "a.sqlite") as replica:
        assert replica.author == author


def test_a_copied_file_takes_a_new_author_and_closes_the_old(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with open_replica(device, path=path) as replica:
        key = replica.write(make_clip)
        old, last = replica.author, replica.heads()[replica.author].seq
    with open_replica(device, path=copy_of(path)) as replica:
        assert replica.fork_reason == "the file is a copy"
        assert replica.author > old
        assert clip(replica, key) is not None
        assert replica.falls == 1
        closed = replica.read(lambda c: c.execute("SELECT author, closed_last FROM authors WHERE closed_last IS NOT NULL").fetchall())
        assert closed == [(old.hex(), last)]
        author = replica.author
    with open_replica(device, path=tmp_path / f"copy of {path.name}") as replica:
        assert replica.author == author


def test_a_file_on_another_machine_takes_a_new_author(device: Device, tmp_path: Path) -> None:
    with open_replica(device, path=tmp_path / "a.sqlite") as replica:
        old = replica.author
    with open_replica(device, path=tmp_path / "a.sqlite", machine="another") as replica:
        assert replica.author != old
        assert replica.fork_reason == "it comes from another machine"


def test_a_restored_backup_takes_a_new_author(device: Device, tmp_path: Path) -> None:
    with open_replica(device, path=tmp_path / "a.sqlite") as replica:
        old, key = replica.author, replica.write(make_clip)
        backup(tmp_path / "a.sqlite", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "b.sqlite")
    with open_replica(device, path=tmp_path / "b.sqlite") as replica:
        assert replica.author != old
        assert clip(replica, key) is not None


def test_no_two_writes_of_two_copies_share_author_and_number(device: Device, space: Space, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with open_replica(device, path=path) as replica:
        replica.write(make_clip)
    with open_replica(device, path=copy_of(path)) as copy, open_replica(device, path=path) as original, space.replica("peer") as peer:
        for replica in (copy, original):
            replica.write(make_clip)
        contents: dict[tuple[bytes, int], Write] = {}
        for write in (*everything(copy), *everything(original)):
            assert contents.setdefault((write.stamp.author, write.seq), write) == write
        for _ in range(2):
            for sender, receiver in ((copy, peer), (original, peer), (peer, copy), (peer, original)):
                sync(sender, receiver)
        assert state(copy)["clips"] == state(original)["clips"] == state(peer)["clips"]
        assert peer.counts("clips") == {"new": 3}


def test_backup_write_sync_restore_write_again_loses_neither_side(device: Device, space: Space) -> None:
    with open_replica(device) as original, space.replica("peer") as peer:
        key = original.write(make_clip)
        image = original.image()
        after = original.write(lambda writer: make_clip(writer, "after the backup"))
        sync(original, peer)
        author = original.author
        with open_replica(device, image=image) as restored:
            again = restored.write(lambda writer: make_clip(writer, "after the restore"))
            assert restored.author == author  # nothing showed yet that it is a copy
            restored.fork("a peer knows another commit under a number that was given here")
            for _ in range(2):
                sync(restored, peer)
                sync(peer, restored)
            for replica in (restored, peer):
                assert {key, after, again} <= {write.key for write in everything(replica)}
            assert restored.heads() == peer.heads()
            assert state(restored) == state(peer)


def test_a_merge_that_brings_an_own_number_never_given_shows_the_fork(device: Device, space: Space) -> None:
    with open_replica(device) as original, space.replica("peer") as peer:
        image = original.image()
        original.write(make_clip)
        sync(original, peer)
        with open_replica(device, image=image) as restored:
            old = restored.author
            merged = restored.merge(everything(peer))
            assert merged.forked
            assert restored.author != old


def test_a_restored_title_overwrites_no_edit_made_after_seeing_it(device: Device, space: Space) -> None:
    still = Clock(NOW)
    with open_replica(device, clock=still) as original, space.replica("peer", clock=still) as peer:
        key = original.write(make_clip)
        titled(original, key, "first")
        image = original.image()
        sync(original, peer)
        edit = titled(peer, key, "after seeing it")  # by one tick of a clock that stands still
        assert edit.hlc == original.hlc + 1
        still.now += 86_400_000
        with open_replica(device, image=image, clock=still) as restored:
            restored.fork("restored")
            sync(restored, peer)
            sync(peer, restored)
            assert title_of(peer, key) == title_of(restored, key) == "after seeing it"


def test_a_reissued_write_beats_its_former_self_everywhere(device: Device, space: Space) -> None:
    with open_replica(device) as replica, space.replica("peer") as peer:
        key = replica.write(make_clip)
        sync(replica, peer)
        before = clip(peer, key)
        new = replica.fork("restored")
        sync(replica, peer)
        assert clip(peer, key) == before
        assert {write.stamp.author for write in everything(peer) if write.key == key} == {new}
        assert peer.unverified() == 0


def test_what_every_peer_acknowledged_is_not_issued_again(device: Device, space: Space) -> None:
    with open_replica(device) as replica, space.replica("peer") as peer:
        seen = replica.write(make_clip)
        sync(replica, peer)
        old, floor = replica.author, replica.heads()[replica.author]
        replica.acknowledge("peer", floor.seq)
        unseen = replica.write(make_clip)
        replica.write(make_clip)
        new = replica.fork("restored")
        assert replica.heads()[old] == floor
        authors = {write.key: write.stamp.author for write in everything(replica)}
        assert (authors[seen], authors[unseen]) == (old, new)


def test_the_least_that_any_peer_has_decides(device: Device) -> None:
    with open_replica(device) as replica:
        replica.write(make_clip)
        old = replica.author
        replica.acknowledge("one", replica.heads()[old].seq)
        replica.acknowledge("two", 1)
        replica.fork("restored")
        assert old not in replica.heads()  # 1 ends no commit, and nothing ends below


def test_values_that_name_a_stamp_follow_it(device: Device) -> None:
    with open_replica(device) as replica:
        key = replica.write(make_clip)
        other = replica.write(make_clip)
        for name in (key, other):
            (made,) = [write for write in everything(replica) if (write.key, write.register) == (name, "made")]
            if name == key:
                cover = {"cover": b"\x01", "for_made": stamp_text(made.stamp)}
                replica.write(lambda writer, cover=cover: writer.put("clips", key, "cover", cover))  # type: ignore[misc]
            else:  # somebody else's write that names our stamp
                replica.merge([write_of(b"o" * 16, 1, "cover", (b"\x02", stamp_text(made.stamp)), table="clips", key=other)])
        replica.fork("restored")
        counts = replica.read(lambda c: c.execute("SELECT id, cover, cover_counts FROM clips ORDER BY id").fetchall())
        assert counts == [(key, b"\x01", 1), (other, b"\x02", 1)]


def test_a_fork_changes_no_count(device: Device) -> None:
    with open_replica(device) as replica:
        for _ in range(3):
            replica.write(make_clip)
        replica.fork("restored")
        assert replica.counts("clips") == {"new": 3}


def test_a_done_of_a_round_before_the_fall_moves_nothing(device: Device, space: Space) -> None:
    with open_replica(device) as replica, space.replica("peer") as peer:
        falls = replica.falls
        replica.fork("restored")
        assert replica.move_heads(peer.heads(), falls=falls) is None
        assert peer.author not in replica.heads()
        assert replica.move_heads(peer.heads(), falls=replica.falls) == ()


def test_rows_of_a_closed_author_are_never_answered_as_ended(device: Device, space: Space) -> None:
    with open_replica(device) as replica, space.replica("peer", clock=Clock(NOW + 10 * 86_400_000)) as peer:
        key = replica.write(make_clip)
        sync(replica, peer)
        (made,) = [write for write in everything(replica) if write.key == key]
        row = ("clips", key, made.stamp.author, made.seq)
        peer.drop_ended([row])
        assert clip(peer, key) is None
        assert [each.key for each in peer.ended_of([row])] == [key]
        replica.acknowledge("peer", made.seq)
        replica.fork("restored")
        sync(replica, peer)
        assert peer.ended_of([row]) == []
        assert peer.merge([made], repair=True).applied == 1
        assert clip(peer, key) is not None


def test_a_home_that_lost_its_replica_wins_over_its_own_past(device: Device, space: Space) -> None:
    clock = Clock()
    with open_replica(device, clock=clock) as original, space.replica("peer", clock=clock) as peer:
        key = original.write(make_clip)
        titled(original, key, "before")
        sync(original, peer)
        with open_replica(device, clock=clock) as reset:  # the same keys, a new database
            sync(peer, reset)
            titled(reset, key, "after the reset")
            sync(reset, peer)
            assert title_of(peer, key) == "after the reset"
            assert reset.counts("clips") == {"new": 1}


def test_many_forks_in_a_row_end_well(device: Device, space: Space) -> None:
    with open_replica(device) as replica, space.replica("peer") as peer:
        key = replica.write(make_clip)
        authors = [replica.fork("again") for _ in range(40)]
        assert authors == sorted(set(authors))
        sync(replica, peer)
        assert clip(peer, key) is not None


def test_a_machine_that_has_no_id_is_no_other_machine(device: Device, tmp_path: Path) -> None:
    for machine in ("machine", "", "machine", ""):
        with open_replica(device, path=tmp_path / "a.sqlite", machine=machine) as replica:
            assert replica.fork_reason is None


@pytest.mark.parametrize(("table", "register"), [("clips", "nothing"), ("nowhere", "title"), ("clips", "title")])
def test_a_copy_with_a_change_that_has_no_values_says_that_it_is_damaged(device: Device, tmp_path: Path, table: str, register: str) -> None:
    path = tmp_path / "replica.sqlite"
    with open_replica(device, path=path) as replica:
        titled(replica, replica.write(make_clip), "a title")
    copy = copy_of(path)
    connection = sqlite3.connect(copy)
    with connection:
        connection.execute("UPDATE changes SET tbl = ?, key = 'no row', register = ? WHERE register = 'title'", (table, register))
    connection.close()
    with pytest.raises(DamagedHome, match="a change in it has no values"):
        open_replica(device, path=copy)
