"""Two devices prove who they are; nobody else learns or gets anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.errors import LinkRefused, MalformedMessage, PeerError
from p2pqueue.net.handshake import CHAIN_LIMIT, FIRST_LIMIT, Credentials, Initiator, Responder
from p2pqueue.net.sealing import Opener, Sealer
from tests.unit.net.kit import Space, credentials

SPACE = Space()
ONE, TWO = SPACE.identities("one", "two")
HELLOS = (b"hello of the initiator", b"hello of the responder")
SECRETS = (bytes(range(32)), bytes(range(32, 64)))


def initiator(mine: Credentials | None = None, hellos: tuple[bytes, bytes] = HELLOS) -> Initiator:
    return Initiator(mine or credentials(ONE), secret=SECRETS[0], hellos=hellos)


def responder(mine: Credentials | None = None, hellos: tuple[bytes, bytes] = HELLOS) -> Responder:
    return Responder(mine or credentials(TWO), secret=SECRETS[1], hellos=hellos)


def frames() -> tuple[Initiator, Responder, list[bytes]]:
    """A whole handshake, and what was said in it."""
    first, second = initiator(), responder()
    said = [first.begin()]
    said.append(second.answer(said[-1]))
    said.append(first.prove(said[-1]))
    second.check(said[-1])
    said.append(second.prove(b"about the responder"))
    return first, second, said


def test_both_sides_learn_who_the_other_is_and_share_keys() -> None:
    first, second = initiator(), responder()
    proof = first.prove(second.answer(first.begin()))
    dialled = second.check(proof)
    assert (dialled.device_id, dialled.public_key, dialled.chain) == (ONE.device_id, ONE.public_key, list(ONE.chain))
    answered = first.finish(second.prove(b"about the responder"))
    assert (answered.device_id, answered.about) == (TWO.device_id, b"about the responder")
    assert answered.instance != dialled.instance
    assert Opener(second.keys.receiving).open(Sealer(first.keys.sending).seal(b"there")) == b"there"
    assert Opener(first.keys.receiving).open(Sealer(second.keys.sending).seal(b"back")) == b"back"
    assert len({first.keys.sending, first.keys.receiving}) == 2


def test_nothing_that_tells_space_or_device_is_said_in_clear() -> None:
    _, _, said = frames()
    spoken = b"".join(said)
    secrets = [SPACE.space_id.encode(), bytes.fromhex(SPACE.space_id), bytes(SPACE.root.verify_key), ONE.public_key, TWO.public_key]
    secrets += [ONE.certificate, bytes.fromhex(ONE.device_id), bytes.fromhex(TWO.device_id), b"one", b"two", b"about the responder"]
    assert [secret for secret in secrets if secret in spoken] == []


@pytest.mark.parametrize(
    "other",
    [Space(), None],
    ids=["of another space", "that only knows the space's id"],
)
def test_a_stranger_that_dials_learns_nothing(other: Space | None) -> None:
    stranger = (other or Space()).identity("stranger")
    mine = credentials(stranger)
    if other is None:
        mine = replace(mine, space_id=SPACE.space_id)
    first, second = initiator(mine), responder()
    with pytest.raises(LinkRefused, match="another space"):
        second.check(first.prove(second.answer(first.begin())))
    with pytest.raises(AttributeError):  # it has nothing with which to prove itself to whom it doesn't know
        second.prove(b"")


def test_a_stranger_that_answers_learns_nothing_but_that_somebody_dialled() -> None:
    first, stranger = initiator(), responder(credentials(Space().identity("stranger")))
    proof = first.prove(stranger.answer(first.begin()))
    with pytest.raises(LinkRefused):
        stranger.check(proof)
    with pytest.raises(LinkRefused):
        first.finish(os.urandom(300))


def test_a_device_of_the_space_cant_pass_for_another() -> None:
    mine = replace(credentials(ONE), chain=TWO.chain, device_id=TWO.device_id)  # the certificate of another, its own signature
    first, second = initiator(mine), responder()
    with pytest.raises(PeerError, match="signature"):
        second.check(first.prove(second.answer(first.begin())))


def test_a_device_of_the_space_cant_pass_a_proof_on_as_its_own() -> None:
    """Two connections, to each side one, with a device of the space in the middle that knows the common key."""
    first, middle_for_first = initiator(), Responder(credentials(Space().identity("m")), secret=os.urandom(32), hellos=HELLOS)
    proof = first.prove(middle_for_first.answer(first.begin()))
    middle_for_second, second = Initiator(credentials(ONE), secret=os.urandom(32), hellos=HELLOS), responder()
    second.answer(middle_for_second.begin())
    with pytest.raises(PeerError):
        second.check(proof)


def test_other_hellos_than_the_other_side_heard_end_it() -> None:
    """Nobody between them can make both speak an older protocol."""
    first, second = initiator(), responder(hellos=(b"an older hello", HELLOS[1]))
    with pytest.raises(LinkRefused):
        second.check(first.prove(second.answer(first.begin())))


def test_what_was_said_once_is_worth_nothing_again() -> None:
    _, _, said = frames()
    again = Responder(credentials(TWO), secret=os.urandom(32), hellos=HELLOS)
    again.answer(said[0])
    with pytest.raises(LinkRefused):
        again.check(said[2])


def test_reflected_frames_prove_nothing() -> None:
    first = initiator()
    beginning = first.begin()
    proof = first.prove(beginning[1:])
    with pytest.raises(PeerError):
        first.finish(proof)


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)], ids=["zero", "one"])
def test_ephemeral_keys_that_share_no_secret_are_refused(key: bytes) -> None:
    with pytest.raises(MalformedMessage):
        responder().answer(b"L" + key)
    first = initiator()
    first.begin()
    with pytest.raises(MalformedMessage):
        first.prove(key)


def test_a_chain_or_a_proof_beyond_its_limit_is_refused() -> None:
    mine = replace(credentials(ONE), chain=[ONE.certificate] * (CHAIN_LIMIT + 1))
    first, second = initiator(mine), responder()
    with pytest.raises(MalformedMessage):
        second.check(first.prove(second.answer(first.begin())))
    with pytest.raises(MalformedMessage):
        second.check(bytes(FIRST_LIMIT + 1))


@given(st.binary(max_size=200))
def test_any_bytes_in_place_of_any_frame_are_refused(frame: bytes) -> None:
    first, second = initiator(), responder()
    with pytest.raises(PeerError):
        second.answer(frame if len(frame) != 33 or frame[:1] != b"L" else b"")
    proof = first.prove(second.answer(first.begin()))
    with pytest.raises(PeerError):
        second.check(frame)
    second.check(proof)
    with pytest.raises(PeerError):
        first.finish(frame)


@given(st.integers(0, 3), st.data())
def test_a_changed_bit_in_any_frame_ends_it(which: int, data: st.DataObject) -> None:
    def passed(number: int, frame: bytes) -> bytes:
        if number != which:
            return frame
        at = data.draw(st.integers(0, 8 * len(frame) - 1))
        return bytes(byte ^ (1 << at % 8 if place == at // 8 else 0) for place, byte in enumerate(frame))

    with pytest.raises(PeerError):
        shake_hands(passed)


def shake_hands(passed: Callable[[int, bytes], bytes]) -> None:
    first, second = initiator(), responder()
    answer = passed(1, second.answer(passed(0, first.begin())))
    second.check(passed(2, first.prove(answer)))
    first.finish(passed(3, second.prove(b"about")))
    Opener(second.keys.receiving).open(Sealer(first.keys.sending).seal(b""))
