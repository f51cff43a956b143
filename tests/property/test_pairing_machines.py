"""Whatever happens to the messages of a pairing, nobody comes in but the one that was told the code, and that one whole."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from nacl.signing import SignedMessage, SigningKey

from p2pqueue import wire
from p2pqueue.errors import BadSignature, NotAllowed, PairingFailed, PeerError
from p2pqueue.home import Home
from p2pqueue.identity import pairing
from p2pqueue.identity.certificate import Role, issue, read_certificate
from p2pqueue.identity.codes import Code
from p2pqueue.identity.keys import Identity, create, join
from p2pqueue.identity.pairing import MESSAGE_LIMIT, Inviter, Joiner, PairingRefused, nameplate_of, refusal

CODE = Code("7", "orbit", "velvet")
WRONG = Code("7", "orbit", "violin")


@cache
def owner() -> Identity:
    return create(Home(Path(tempfile.mkdtemp(prefix="p2pq-pairing-")) / "home"), space_name="studio", label="box")


def inviter(code: Code = CODE, role: Role = "member", identity: Identity | None = None) -> Inviter:
    return Inviter(code, identity=identity or owner(), role=role, protocols=(1, 2), random=os.urandom)


def joiner(code: Code = CODE, label: str = "laptop") -> Joiner:
    return Joiner(code, label=label, protocols=(1, 1), random=os.urandom)


@dataclass
class Conversation:
    """A joiner and an inviter; `said` are the messages as they were sent, the first at 0."""

    a: Joiner = field(default_factory=joiner)
    b: Inviter = field(default_factory=inviter)
    said: list[bytes] = field(default_factory=list)

    def run(self, upto: int = 7) -> Conversation:
        """Speaks until so many messages were said and, but for the last, taken."""
        if not self.said and upto:
            self.said.append(self.a.begin())
        while len(self.said) < upto:
            self.said.append(self.take(self.said[-1]))
        return self

    def take(self, message: bytes) -> bytes:
        """Gives a message to whom the last one said was meant; its answer."""
        if len(self.said) == 1:
            return self.b.begin(message)
        if len(self.said) % 2:
            return self.b.receive(message) or b""
        return self.a.receive(message) or self.a.done()

    @property
    def is_over(self) -> bool:
        """Says whether neither side takes anything any more."""
        return self.b.spent and all(refuses(side, message) for side in (self.a, self.b) for message in self.said)


def refuses(side: Joiner | Inviter, message: bytes) -> bool:
    try:
        side.receive(message)
    except PeerError:
        return True
    return False


@pytest.mark.parametrize("role", ["member", "worker", "viewer", "admin", "owner"])
def test_who_was_told_the_code_comes_in_with_all_it_needs(role: Role, tmp_path: Path) -> None:
    pair = Conversation(b=inviter(role=role)).run()
    pair.b.receive(pair.said[-1])
    assert pair.b.finished
    assert pair.a.space is not None
    assert pair.b.newcomer is not None
    identity = join(Home(tmp_path / "home"), pair.a.space, "laptop")
    mine = owner()
    assert (identity.space_id, identity.space_name, identity.space_key) == (mine.space_id, "studio", mine.space_key)
    assert (identity.role, identity.root_public) == (role, mine.root_public)
    assert (identity.root == mine.root) == (role in ("admin", "owner"))
    assert identity.root is None or role in ("admin", "owner")
    assert (pair.b.newcomer.device_id, pair.b.newcomer.label) == (identity.device_id, "laptop")
    assert pair.b.newcomer.certificate == identity.certificate
    assert identity.inviter == (mine.device_id, "box")
    assert (pair.a.their_protocols, pair.b.their_protocols) == ((1, 2), (1, 1))
    assert all(len(message) <= MESSAGE_LIMIT for message in pair.said)


def test_the_longest_names_fit_into_a_message(tmp_path: Path) -> None:
    mine = create(Home(tmp_path / "home"), space_name="🎬" * 64, label="🎬" * 64)
    pair = Conversation(a=joiner(label="🎬" * 64), b=inviter(role="admin", identity=mine)).run()
    assert max(map(len, pair.said)) <= MESSAGE_LIMIT


def test_a_stranger_sees_neither_names_nor_keys_nor_the_space() -> None:
    pair = Conversation(b=inviter(role="admin")).run()
    said, mine = b"".join(pair.said), owner()
    assert pair.a.space is not None
    for secret in (b"studio", b"box", b"laptop", b"orbit", b"velvet", b"admin", mine.space_id.encode(), mine.space_key,
                   mine.public_key, mine.root_public, pair.a.space.certificate, bytes(pair.a.space.signing.verify_key)):  # fmt: skip
        assert secret not in said


DISTURBANCES = ("lost", "flipped", "cut", "longer", "rubbish", "replayed", "reflected", "from another pairing", "a refusal")


@hypothesis_settings(max_examples=300)
@given(at=st.integers(0, 6), how=st.sampled_from(DISTURBANCES), data=st.data())
def test_a_disturbed_message_lets_nobody_in_and_ends_the_code(at: int, how: str, data: st.DataObject) -> None:
    pair = Conversation().run(at + 1)
    good = pair.said[-1]
    bad = disturbed(pair, how, data)
    if bad is None or bad == good:
        return
    with pytest.raises(PeerError):
        go_on(pair, bad)
    assert not pair.b.finished
    assert (pair.a.space is not None) == (at == 6)  # what was given was given; only the last word is missing
    if at > 0:
        assert pair.is_over
    elif not pair.b.spent:  # no guess was made
        Conversation(b=pair.b).run()


def go_on(pair: Conversation, bad: bytes) -> None:
    """Goes on with `bad` instead of the last message: one with another share or version is answered, but not confirmed."""
    pair.said.append(pair.take(bad))
    pair.run()
    pair.take(pair.said[-1])


def disturbed(pair: Conversation, how: str, data: st.DataObject) -> bytes | None:
    good, others = pair.said[-1], pair.said[:-1]
    match how:
        case "lost":
            later = Conversation().run().said[len(pair.said) + 1 :: 2]  # what the same side would say next
            return data.draw(st.sampled_from(later)) if later else None
        case "flipped":
            index, bit = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 7))
            return good[:index] + bytes([good[index] ^ 1 << bit]) + good[index + 1 :]
        case "cut":
            return good[: data.draw(st.integers(0, len(good) - 1))]
        case "longer":
            return good + data.draw(st.binary(min_size=1, max_size=8))
        case "rubbish":
            return data.draw(st.binary(max_size=2 * MESSAGE_LIMIT))
        case "replayed":
            return data.draw(st.sampled_from(others)) if others else None
        case "reflected":
            return others[-1] if others else None
        case "from another pairing":
            return Conversation().run(len(pair.said)).said[-1]
        case _:
            return refusal(PairingFailed("no")) if len(pair.said) % 2 == 0 else None


@pytest.mark.parametrize("wrong", [WRONG, Code("7", "acorn", "velvet")])
def test_a_wrong_code_is_one_guess_and_the_code_is_dead(wrong: Code) -> None:
    b = inviter()
    guess = joiner(wrong)
    with pytest.raises(PairingRefused, match="one guess") as refused:
        b.receive(guess.receive(b.begin(guess.begin())) or b"")
    with pytest.raises(PairingFailed, match="That is not the code"):
        guess.receive(refusal(refused.value))
    assert b.newcomer is None
    with pytest.raises(PairingRefused):
        b.begin(joiner().begin())


def test_an_inviter_that_doesnt_know_the_code_learns_nothing_and_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cheat, a = inviter(WRONG), joiner()
    asked = a.receive(cheat.begin(a.begin()))
    monkeypatch.setattr(pairing.Agreed, "confirms", lambda self, confirmation: True)
    with pytest.raises(PeerError):
        cheat.receive(asked or b"")  # what the joiner said of itself can't be opened
    monkeypatch.undo()
    forged = wire.pack([4, b"\0" * 32, b"\0" * 200])
    with pytest.raises(PairingFailed, match="doesn't know the code"):
        a.receive(forged)
    assert a.space is None


def test_two_devices_with_one_code_are_one_too_many() -> None:
    b, first, second = inviter(), joiner(), joiner(label="other")
    pair = Conversation(first, b).run(4)
    with pytest.raises(PairingRefused, match="for one device"):
        b.begin(second.begin())
    pair.run()
    pair.take(pair.said[-1])
    assert b.finished
    with pytest.raises(PairingRefused):
        b.begin(joiner().begin())


def test_another_nameplate_or_version_is_no_guess() -> None:
    b = inviter()
    with pytest.raises(PairingRefused) as refused:
        b.begin(joiner(Code("8", "orbit", "velvet")).begin())
    assert refused.value.reason == "nameplate"
    first = wire.unpack(joiner().begin())
    with pytest.raises(PairingRefused) as refused:
        b.begin(wire.pack([1, 2, *first[2:]]))
    assert refused.value.reason == "version"
    assert not b.spent
    assert Conversation(b=b).run().a.space is not None


def test_an_ended_invitation_lets_nobody_in_who_is_halfway() -> None:
    pair = Conversation().run(4)
    pair.b.end()
    pair.run(5)
    with pytest.raises(PeerError):
        pair.b.receive(pair.said[-1])
    assert pair.b.newcomer is None


def test_nobody_gives_more_than_it_has() -> None:
    pair = Conversation(b=inviter(role="admin")).run()
    assert pair.a.space is not None
    with tempfile.TemporaryDirectory() as folder:
        admin = join(Home(Path(folder) / "admin"), pair.a.space)
        with pytest.raises(NotAllowed, match="may not let one in as owner"):
            inviter(role="owner", identity=admin)
        assert Conversation(b=inviter(role="member", identity=admin)).run().a.space is not None
    with pytest.raises(NotAllowed, match="no key of the space"):
        inviter(role="store")


def test_a_member_that_invites_all_the_same_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pair = Conversation().run()
    assert pair.a.space is not None
    member = join(Home(tmp_path / "member"), pair.a.space)
    with monkeypatch.context() as patched:
        patched.setattr(pairing, "may_give", lambda giver, role: True)
        rogue = inviter(identity=member)
    victim = Conversation(b=rogue).run(6)
    with pytest.raises(PeerError, match="may not certify"):
        victim.run()
    assert victim.a.space is None


class Claimed:
    """A key of another device: shown, without the secret that goes with it."""

    def __init__(self, shown: bytes) -> None:
        self.verify_key, self._own = shown, SigningKey.generate()

    def sign(self, message: bytes) -> SignedMessage:
        return self._own.sign(message)


def test_a_joiner_that_shows_another_devices_key_gets_no_certificate_for_it() -> None:
    a = joiner()
    a._signing = Claimed(owner().public_key)  # type: ignore[assignment]
    pair = Conversation(a).run(5)
    with pytest.raises(BadSignature, match="joiner's signature"):
        pair.b.receive(pair.said[-1])
    assert pair.b.newcomer is None


def test_an_inviter_that_shows_another_devices_certificate_is_not_believed() -> None:
    class Borrowed(Identity):
        def sign(self, body: bytes) -> bytes:
            return SigningKey.generate().sign(body).signature

    borrowed = Borrowed(**{each.name: getattr(owner(), each.name) for each in fields(Identity)})
    pair = Conversation(b=inviter(identity=borrowed)).run(6)
    with pytest.raises(BadSignature, match="inviter's signature"):
        pair.a.receive(pair.said[-1])
    assert pair.a.space is None


@pytest.mark.parametrize(
    "given", [{"role": "owner"}, {"public_key": b"k" * 32}, {"space_id": "ab" * 16}], ids=lambda given: next(iter(given))
)
def test_a_certificate_for_something_else_than_was_agreed_is_not_taken(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Conversation().run(5)
    with monkeypatch.context() as patched:
        patched.setattr(pairing, "issue", lambda signing, **said: issue(signing, **{**said, **given}))
        pair.run(6)
    with pytest.raises(BadSignature):
        pair.a.receive(pair.said[-1])
    assert pair.a.space is None


def test_the_certificate_names_the_joiners_key_and_role_and_the_root_signed_it() -> None:
    pair = Conversation(b=inviter(role="viewer")).run()
    assert pair.a.space is not None
    said = read_certificate(pair.a.space.certificate)
    assert (said.public_key, said.role, said.issuer) == (bytes(pair.a.space.signing.verify_key), "viewer", owner().root_public)
    assert pair.a.space.issuers == ()


@given(st.binary(max_size=2 * MESSAGE_LIMIT))
def test_a_first_message_of_whatever_bytes_is_answered_or_refused(message: bytes) -> None:
    b = inviter()
    for look in (nameplate_of, b.begin):
        try:
            look(message)
        except PeerError:
            pass
    assert not b.spent
