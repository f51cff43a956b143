"""The rows of a replica say who belongs to the space; a chain of certificates says it of a device that no row tells of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from p2pqueue.errors import AmbiguousId, BadSignature, NoSuchDevice
from p2pqueue.home import Home
from p2pqueue.identity import members
from p2pqueue.identity.certificate import Role, device_id, issue
from p2pqueue.identity.chain import follow
from p2pqueue.identity.enrolling import enrol, forget, rename
from p2pqueue.identity.keys import Identity
from p2pqueue.identity.members import Member, Members, Refusal
from p2pqueue.identity.pairing import Newcomer
from p2pqueue.identity.roles import RIGHTS, ROLES, allows, lower, may_give, relays
from p2pqueue.jobs.opening import open_replica
from p2pqueue.replica.replica import Replica


@pytest.fixture
def replica(home: Home, identity: Identity) -> Iterator[Replica]:
    with open_replica(home, identity) as opened:
        yield opened


def newcomer(identity: Identity, label: str = "laptop", role: Role = "member") -> Newcomer:
    assert identity.root is not None
    key = bytes(SigningKey.generate().verify_key)
    certificate = issue(identity.root, space_id=identity.space_id, public_key=key, role=role)
    return Newcomer(device_id(key), key, label, role, certificate, identity.owner)


def certified(by: SigningKey, identity: Identity, role: Role) -> tuple[SigningKey, bytes]:
    signing = SigningKey.generate()
    return signing, issue(by, space_id=identity.space_id, public_key=bytes(signing.verify_key), role=role)


def stand(replica: Replica, device: str, issuer: str, role: str | None) -> None:
    replica.write(
        lambda w: w.put("standings", f"{device}/{issuer}", "standing", {"device": device, "issuer": issuer, "role": role, "last": b"\x80"})
    )


def test_a_new_space_has_one_member_and_an_enrolled_device_is_the_second(replica: Replica, identity: Identity) -> None:
    (own,) = replica.read(members.read)
    assert (own.device_id, own.label, own.role, own.public_key) == (identity.device_id, "here", "owner", identity.public_key)
    assert own.wrote_at is not None
    new = newcomer(identity)
    replica.write(lambda writer: enrol(writer, new))
    found = members.find(replica.read(members.read), "laptop")
    assert (found.device_id, found.role, found.certificate, found.wrote_at) == (new.device_id, "member", new.certificate, None)
    replica.write(lambda writer: rename(writer, new.device_id, "big box"))
    assert members.find(replica.read(members.read), "BIG box").device_id == new.device_id


def test_a_forgotten_device_is_hidden_until_something_is_heard_of_it(replica: Replica, identity: Identity) -> None:
    new = newcomer(identity)
    replica.write(lambda writer: enrol(writer, new))
    replica.write(lambda writer: forget(writer, new.device_id))
    replica.write(lambda writer: forget(writer, identity.device_id))
    by_id = {each.device_id: each for each in replica.read(members.read)}
    assert by_id[new.device_id].hidden
    assert Members(identity, list(by_id.values())).known() == {}
    hidden = [Member("a" * 32, "old", "member", b"", wrote_at=at, forgotten_at=7).hidden for at in (None, 6, 7, 8)]
    assert hidden == [True, True, True, False]


def test_members_are_found_by_id_label_and_prefix() -> None:
    known = [Member(f"{digit}" * 32, label, "member", b"") for digit, label in (("a", "box"), ("b", "Box"), ("c", "lap"), ("d", "abc"))]
    assert members.find(known, "a" * 32).label == "box"
    assert members.find(known, "box").device_id == "a" * 32
    assert members.find(known, "CCC").label == "lap"
    with pytest.raises(AmbiguousId, match="names 2 devices"):
        members.find(known, "BOX")
    for unknown in ("xyz", "a", "aa", ""):
        with pytest.raises(NoSuchDevice):
            members.find(known, unknown)


def test_a_device_that_has_just_joined_knows_whom_it_was_let_in_by(identity: Identity) -> None:
    joined = dataclasses.replace(identity, inviter=("ab" * 16, "box"))
    (own,) = [Member(identity.device_id, "here", "member", identity.public_key)]
    assert Members(joined, [own]).known() == {"ab" * 16: "box"}
    revoked = Member("ab" * 16, "box", "member", b"", revoked=True)
    assert Members(joined, [own, revoked]).known() == {}


def test_a_device_without_a_row_is_admitted_by_its_chain(identity: Identity) -> None:
    assert identity.root is not None
    signing, certificate = certified(identity.root, identity, "viewer")
    admitted = Members(identity).admit([certificate])
    assert isinstance(admitted, Member)
    assert (admitted.device_id, admitted.role, admitted.label) == (device_id(bytes(signing.verify_key)), "viewer", "")


def test_a_chain_leads_over_an_admin_and_no_further_than_its_role_goes(identity: Identity) -> None:
    assert identity.root is not None
    admin, of_admin = certified(identity.root, identity, "admin")
    member, of_member = certified(admin, identity, "member")
    _, by_member = certified(member, identity, "member")
    _, too_high = certified(admin, identity, "owner")
    whose = {"space_id": identity.space_id, "root_public": identity.root_public}
    assert follow([of_member, of_admin], **whose).role == "member"  # type: ignore[arg-type]
    for chain in ([by_member, of_member, of_admin], [too_high, of_admin], [of_member], [], [of_admin, of_admin], [of_member, of_member]):
        with pytest.raises(BadSignature):
            follow(chain, **whose)  # type: ignore[arg-type]


def test_strangers_and_copies_of_this_device_are_refused_in_words(identity: Identity, tmp_path: Path) -> None:
    assert identity.root is not None
    kept = Members(identity)
    _, foreign = certified(SigningKey.generate(), identity, "owner")
    other_space = issue(identity.root, space_id="ab" * 16, public_key=bytes(SigningKey.generate().verify_key), role="member")
    for chain, why in (
        ([foreign], "root"), ([other_space], "another space"), ([b""], ""), ([], "chain"),
        ([identity.certificate], "key of this device"), ([b"\xc0" * 2000], "bytes"), ([identity.certificate] * 9, "chain"),
    ):  # fmt: skip
        refused = kept.admit(chain)
        assert isinstance(refused, Refusal)
        assert why in refused.words


def test_a_standing_lowers_a_role_and_a_revoked_device_is_refused(replica: Replica, identity: Identity) -> None:
    lowered, revoked = newcomer(identity, "lowered"), newcomer(identity, "revoked")
    for each in (lowered, revoked):
        replica.write(lambda writer, each=each: enrol(writer, each))  # type: ignore[misc]
    stand(replica, lowered.device_id, identity.device_id, "viewer")
    stand(replica, revoked.device_id, identity.device_id, None)
    kept = Members(identity, replica.read(members.read))
    assert kept.known() == {lowered.device_id: "lowered"}
    admitted = kept.admit([lowered.certificate])
    assert isinstance(admitted, Member)
    assert (admitted.role, admitted.label) == ("viewer", "lowered")
    refused = kept.admit([revoked.certificate])
    assert isinstance(refused, Refusal)
    assert "was revoked" in refused.words


def test_a_standing_counts_only_if_whom_it_names_wrote_it_and_may(replica: Replica, identity: Identity) -> None:
    victim, viewer = newcomer(identity, "victim"), newcomer(identity, "viewer", "viewer")
    for each in (victim, viewer):
        replica.write(lambda writer, each=each: enrol(writer, each))  # type: ignore[misc]
    stand(replica, victim.device_id, viewer.device_id, None)  # this device's hand, the viewer's name
    assert Members(identity, replica.read(members.read)).known().keys() == {victim.device_id, viewer.device_id}


@pytest.mark.parametrize(
    ("role", "rights"),
    [
        ("owner", "read enqueue cancel work relay invite revoke certify"),
        ("admin", "read enqueue cancel work relay invite revoke certify"),
        ("member", "read enqueue cancel work relay"),
        ("worker", "read work"),
        ("viewer", "read"),
        ("store", ""),
        ("king", ""),
    ],
)
def test_each_role_may_what_the_table_says(role: str, rights: str) -> None:
    everything = {"read", "enqueue", "cancel", "work", "relay", "invite", "revoke", "certify"}
    assert {right for right in everything if allows(role, right)} == set(rights.split())  # type: ignore[arg-type]
    assert relays(role) == (role in ("owner", "admin", "member"))
    assert allows(role, "space key") == (role in RIGHTS and role != "store")
    assert allows(role, "root key") == (role in ("owner", "admin"))


def test_nobody_gives_a_role_above_its_own() -> None:
    given = {giver: [role for role in (*ROLES, "king") if may_give(giver, role)] for giver in ROLES}
    assert given == {
        "owner": list(ROLES), "admin": list(ROLES[1:]), "member": [], "worker": [], "viewer": [], "store": [],
    }  # fmt: skip
    assert (lower("owner", "viewer"), lower("viewer", "owner"), lower("king", "store")) == ("viewer", "viewer", "king")
