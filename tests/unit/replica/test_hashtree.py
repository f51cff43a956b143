"""Bodies under one signature: each holds by itself, and nothing else holds in its place."""

from __future__ import annotations

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey, VerifyKey

from p2pqueue.replica.signatures.hashtree import MOST, SIGNATURE_SIZE, Trees, is_signature, sign_together

KEY = SigningKey(b"k" * 32)
PUBLIC = bytes(KEY.verify_key)


def sign(body: bytes) -> bytes:
    return KEY.sign(body).signature


def bodies_of(number: int) -> list[bytes]:
    return [b"body %d" % place * (place + 1) for place in range(number)]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 8, 15, 16, 17, 200])
def test_every_body_holds_alone_and_among_the_others(number: int) -> None:
    bodies = bodies_of(number)
    signatures = sign_together(bodies, sign)
    together = Trees()
    assert [together.holds(PUBLIC, *each) for each in zip(bodies, signatures, strict=True)] == [True] * number
    assert [Trees().holds(PUBLIC, *each) for each in zip(bodies, signatures, strict=True)] == [True] * number
    assert all(map(is_signature, signatures))


@pytest.mark.parametrize(("number", "made"), [(1, 1), (MOST, 1), (MOST + 1, 2), (10 * MOST, 10)])
def test_one_signature_is_made_for_sixteen_bodies(number: int, made: int) -> None:
    calls: list[bytes] = []
    sign_together(bodies_of(number), lambda body: calls.append(body) or sign(body))  # type: ignore[func-returns-value]
    assert len(calls) == made


def test_a_body_alone_is_signed_as_ever() -> None:
    (signature,) = sign_together([b"alone"], sign)
    assert VerifyKey(PUBLIC).verify(b"alone", signature) == b"alone"


@given(st.integers(2, 70), st.data())
def test_whatever_is_changed_in_a_signature_it_holds_no_longer(number: int, data: st.DataObject) -> None:
    bodies = bodies_of(number)
    signatures = sign_together(bodies, sign)
    place = data.draw(st.integers(0, number - 1))
    signature = bytearray(signatures[place])
    at = data.draw(st.integers(0, len(signature) - 1))
    signature[at] ^= data.draw(st.integers(1, 255))
    assert not Trees().holds(PUBLIC, bodies[place], bytes(signature))
    knowing = Trees()
    for each in zip(bodies, signatures, strict=True):
        assert knowing.holds(PUBLIC, *each)
    assert not knowing.holds(PUBLIC, bodies[place], bytes(signature))


@given(st.integers(2, 70), st.data())
def test_no_body_holds_under_the_signature_of_another(number: int, data: st.DataObject) -> None:
    bodies = bodies_of(number)
    signatures = sign_together(bodies, sign)
    trees = Trees()
    assert trees.holds(PUBLIC, bodies[0], signatures[0])
    one, other = data.draw(st.lists(st.integers(0, number - 1), min_size=2, max_size=2, unique=True))
    assert not trees.holds(PUBLIC, bodies[one], signatures[other])
    assert not trees.holds(PUBLIC, b"never written", signatures[one])
    assert not trees.holds(bytes(SigningKey(b"o" * 32).verify_key), bodies[one], signatures[one])


def test_a_way_that_is_cut_or_lengthened_has_no_form() -> None:
    bodies = bodies_of(MOST)
    signature = sign_together(bodies, sign)[7]
    for size in range(len(signature)):
        assert not Trees().holds(PUBLIC, bodies[7], signature[:size])
    assert not is_signature(signature + bytes(16))
    assert not is_signature(signature[:SIGNATURE_SIZE] + b"\xff" + signature[SIGNATURE_SIZE + 1 :])
    assert not is_signature(bytearray(64))


def test_a_node_of_a_tree_is_no_body_of_it() -> None:
    """Without leaves and nodes hashed apart, two hashes side by side would pass for a body one level up."""
    bodies = bodies_of(4)
    signature = sign_together(bodies, sign)[0]
    made, way = signature[:SIGNATURE_SIZE], signature[SIGNATURE_SIZE + 1 :]
    second = sign_together(bodies, sign)[1][SIGNATURE_SIZE + 1 :][:16]
    forged = second + way[:16]
    assert not Trees().holds(PUBLIC, forged, made + b"\x00" + way[16:])


def test_whether_a_body_holds_does_not_depend_on_what_was_checked_before() -> None:
    """A signer may build a tree by hand, with the hash of one body where a node of a higher level belongs."""
    first, second, beside = b"first", b"second", b"x" * 16
    leaf, high = (blake3(b"\x00" + body).digest(16) for body in (first, second))
    node = blake3(b"\x01" + leaf + beside).digest(16)
    made = sign(b"p2pqueue tree\x01" + blake3(b"\x02" + node + high).digest(16))
    of_first, of_second = made + b"\x00" + beside + high, made + b"\x01" + node
    trees = Trees()
    assert trees.holds(PUBLIC, first, of_first)
    assert not trees.holds(PUBLIC, second, of_second)
    assert not Trees().holds(PUBLIC, second, of_second)


@given(st.integers(2, 40), st.data())
def test_what_comes_together_holds_as_each_does_alone(number: int, data: st.DataObject) -> None:
    bodies = bodies_of(number)
    signed = list(zip(bodies, sign_together(bodies, sign), strict=True))
    first, last = sorted(data.draw(st.tuples(st.integers(0, number), st.integers(0, number))))
    signed = data.draw(st.sampled_from([signed[first:last], signed[first:last][::-1], data.draw(st.permutations(signed))]))
    for place in data.draw(st.sets(st.integers(0, max(0, len(signed) - 1)), max_size=2)) if signed else ():
        body, signature = signed[place]
        forged = bytearray(signature)
        forged[data.draw(st.integers(0, len(forged) - 1))] ^= 1
        signed[place] = data.draw(st.sampled_from([(body, bytes(forged)), (b"never written", signature), (body, signed[0][1])]))
    expected = [Trees().holds(PUBLIC, *each) for each in signed]
    assert Trees().all_hold(PUBLIC, [body for body, _ in signed], [signature for _, signature in signed]) == expected


@pytest.mark.parametrize("step", [1, -1])
def test_whole_trees_are_checked_by_their_signatures_alone(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = bodies_of(2 * MOST + 1)
    signatures = sign_together(bodies, sign)
    monkeypatch.setattr(Trees, "holds", lambda self, key, body, signature: body == bodies[-1])
    assert Trees().all_hold(PUBLIC, bodies[::step], signatures[::step]) == [True] * len(bodies)
