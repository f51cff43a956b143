"""A device that was cloned with its disk goes on under a key of its own, and its old rows stay good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from p2pqueue.errors import AlreadyInitialised, HomeInUse, NotAllowed
from p2pqueue.home import Home
from p2pqueue.identity import keys, members
from p2pqueue.identity.certificate import Role
from p2pqueue.identity.codes import Code
from p2pqueue.identity.keys import Identity, JoinedSpace
from p2pqueue.identity.pairing import Inviter, Joiner
from p2pqueue.jobs.opening import open_replica
from p2pqueue.nodelock import NodeLock
from p2pqueue.peers import renewal
from p2pqueue.peers.renewal import renew

CODE = Code("7", "orbit", "velvet")


def paired(identity: Identity, role: Role = "member") -> JoinedSpace:
    a = Joiner(CODE, label="laptop", protocols=(1, 1), random=os.urandom)
    b = Inviter(CODE, identity=identity, role=role, protocols=(1, 1), random=os.urandom)
    message = b.begin(a.begin())
    while (answer := a.receive(message)) is not None:
        message = b.receive(answer) or b""
    assert a.space is not None
    return a.space


def test_the_owner_renews_and_is_another_device_whose_rows_hold(home: Home, identity: Identity, tmp_path: Path) -> None:
    with open_replica(home, identity) as replica:
        author = replica.author
        replica.write(lambda writer: writer.put("space", "motto", "setting", {"value": b"before"}))
    renewed = renew(home)
    assert (renewed.space_id, renewed.root, renewed.role, renewed.label) == (identity.space_id, identity.root, "owner", "here")
    assert renewed.device_id != identity.device_id
    assert keys.load(home) == renewed
    other = keys.join(Home(tmp_path / "other"), paired(identity))
    with open_replica(home, renewed) as replica, open_replica(Home(tmp_path / "other"), other) as peer:
        assert replica.author != author
        replica.write(lambda writer: writer.put("space", "motto", "setting", {"value": b"after"}))
        assert peer.merge(replica.live_writes(above={})).refused == ()
        assert peer.verify_pending() == ()
        assert peer.read(lambda c: c.execute("SELECT value FROM space WHERE name = 'motto'").fetchone()) == (b"after",)
        assert {each.device_id for each in peer.read(members.read)} == {renewed.device_id, identity.device_id, other.device_id}


def test_a_crash_between_the_new_key_and_the_new_author_is_made_good_at_the_next_opening(home: Home, identity: Identity) -> None:
    with open_replica(home, identity) as replica:
        author = replica.author
    renewal._expect_new_author(home)
    renewed = keys.renew(home)
    with open_replica(home, renewed) as replica:
        assert replica.author != author
        assert replica.fork_reason == "its device has a new key"


def test_without_the_root_key_a_code_is_needed_of_the_same_space(home: Home, identity: Identity, tmp_path: Path) -> None:
    member_home = Home(tmp_path / "member")
    member = keys.join(member_home, paired(identity), "laptop")
    open_replica(member_home, member).close()
    with pytest.raises(NotAllowed, match="identity renew CODE"):
        renew(member_home)
    stranger = keys.create(Home(tmp_path / "stranger"))
    with pytest.raises(NotAllowed, match="another space"):
        renew(member_home, paired(stranger))
    assert keys.load(member_home) == member
    renewed = renew(member_home, paired(identity, "worker"))
    assert (renewed.role, renewed.label, renewed.space_id) == ("worker", "laptop", identity.space_id)
    assert renewed.device_id != member.device_id


def test_a_running_node_keeps_its_key(home: Home, identity: Identity) -> None:
    open_replica(home, identity).close()
    with NodeLock(home.node_lock_file), pytest.raises(HomeInUse):
        renew(home)
    assert keys.load(home) == identity


def test_a_home_that_has_a_space_is_not_joined_to_another(home: Home, identity: Identity, tmp_path: Path) -> None:
    space = paired(keys.create(Home(tmp_path / "elsewhere")))
    with pytest.raises(AlreadyInitialised):
        keys.join(home, space)
    assert keys.load(home) == identity
    stray = Home(tmp_path / "stray")
    stray.ensure()
    stray.replica_file.touch()
    with pytest.raises(AlreadyInitialised):
        keys.join(stray, space)


def test_what_was_joined_is_private_and_shows_no_key(identity: Identity, tmp_path: Path) -> None:
    space = paired(identity, "admin")
    joined = keys.join(Home(tmp_path / "joined"), space, "  tab\tlet\n ")
    assert joined.label == "tab let"
    assert os.name == "nt" or Home(tmp_path / "joined").identity_file.stat().st_mode & 0o777 == 0o600
    assert space.root is not None
    for secret in (space.space_key, space.root, bytes(space.signing)):
        assert secret.hex() not in repr(space) + repr(joined)
        assert repr(secret) not in repr(space) + repr(joined)
    assert keys.load(Home(tmp_path / "joined")) == joined
