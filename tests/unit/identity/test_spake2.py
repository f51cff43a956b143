"""Who knows the password shares a key; who doesn't learns nothing from an exchange but that the guess was wrong."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from nacl import bindings

from p2pqueue.errors import MalformedMessage
from p2pqueue.identity.spake2 import MAC_SIZE, SHARE_SIZE, Agreed, Exchange, M, N, derive_point, is_share

IDENTITY = (1).to_bytes(32, "little")
ORDER_2 = (2**255 - 19 - 1).to_bytes(32, "little")
ORDER_4 = bytes(32)
ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
NOT_CANONICAL = (2**255 - 19 + 1).to_bytes(32, "little")
BASE = bindings.crypto_scalarmult_ed25519_base_noclamp((1).to_bytes(32, "little"))
MIXED_ORDER = bytes.fromhex("f93f7b0b5e2c8d1c0d7b1d3c0f7a1e4d5c6b7a8998a7b6c5d4e3f2011223344f")


def both(first: bytes, second: bytes, *, context: tuple[bytes, bytes] = (b"", b"")) -> tuple[Agreed, Agreed]:
    joiner, inviter = Exchange(first, "A", random=os.urandom), Exchange(second, "B", random=os.urandom)
    return joiner.finish(inviter.share, context=context[0]), inviter.finish(joiner.share, context=context[1])


def agree(joiner: Agreed, inviter: Agreed) -> tuple[bool, bool, bool]:
    return joiner.key == inviter.key, joiner.confirms(inviter.confirmation), inviter.confirms(joiner.confirmation)


def test_m_and_n_are_what_the_rfc_derives_from_their_names() -> None:
    assert derive_point(b"edwards25519 point generation seed (M)") == M
    assert derive_point(b"edwards25519 point generation seed (N)") == N


@hypothesis_settings(max_examples=30)
@given(st.binary(max_size=40))
def test_the_same_password_gives_the_same_key(password: bytes) -> None:
    assert agree(*both(password, password)) == (True, True, True)


@hypothesis_settings(max_examples=30)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_another_password_gives_another_key_and_no_confirmation(one: bytes, other: bytes) -> None:
    assert agree(*both(one, other)) == ((one == other),) * 3


def test_another_context_gives_no_confirmation() -> None:
    _, *confirmed = agree(*both(b"p", b"p", context=(b"version 1", b"version 2")))
    assert confirmed == [False, False]


def test_every_exchange_has_a_share_and_a_key_of_its_own() -> None:
    shares = {Exchange(b"p", "A", random=os.urandom).share for _ in range(20)}
    assert len(shares) == 20
    assert both(b"p", b"p")[0].key != both(b"p", b"p")[0].key


def test_a_share_that_is_sent_back_confirms_nothing() -> None:
    joiner = Exchange(b"p", "A", random=os.urandom)
    agreed = joiner.finish(joiner.share, context=b"")
    assert not agreed.confirms(agreed.confirmation)


@pytest.mark.parametrize(
    "share",
    [b"", bytes(31), bytes(33), IDENTITY, ORDER_2, ORDER_4, ORDER_8, NOT_CANONICAL, MIXED_ORDER, b"\xff" * 32],
    ids=["empty", "short", "long", "neutral", "order 2", "order 4", "order 8", "not canonical", "no point", "all ones"],
)
def test_what_is_no_point_of_prime_order_is_refused(share: bytes) -> None:
    assert not is_share(share)
    with pytest.raises(MalformedMessage):
        Exchange(b"p", "B", random=os.urandom).finish(share, context=b"")


def test_a_point_with_a_part_of_small_order_is_refused() -> None:
    crooked = bindings.crypto_core_ed25519_add(BASE, ORDER_8)
    assert is_share(BASE)
    assert not is_share(crooked)


def test_a_share_that_cancels_the_mask_leads_to_no_key() -> None:
    """Whoever guesses the password and sends its mask alone would know the key: the neutral element, for everybody."""
    inviter = Exchange(b"p", "B", random=os.urandom)
    with pytest.raises(MalformedMessage, match="no key"):
        inviter.finish(inviter._their_mask, context=b"")


def test_the_sizes_are_those_that_messages_count_on() -> None:
    joiner, inviter = Exchange(b"p", "A", random=os.urandom), Exchange(b"p", "B", random=os.urandom)
    assert len(joiner.share) == SHARE_SIZE
    assert len(joiner.finish(inviter.share, context=b"").confirmation) == MAC_SIZE


def test_no_key_is_shown_where_it_might_be_logged() -> None:
    agreed, _ = both(b"p", b"p")
    assert agreed.key.hex() not in repr(agreed)
    assert repr(agreed) == "Agreed()"
