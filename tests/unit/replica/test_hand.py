"""Signatures that are made beside something else are those that would have been made one by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from nacl.signing import VerifyKey

from p2pqueue.replica.hand import Hand
from tests.unit.replica.kit import Device, Space


@pytest.fixture
def device() -> Device:
    return Space().device("here")


@pytest.mark.parametrize("number", [0, 1, 15, 16, 500])
def test_each_body_gets_its_own_signature(device: Device, number: int) -> None:
    hand = Hand(device)
    bodies = [b"%d" % place * (place + 1) for place in range(number)]
    for _ in range(2):
        signatures = hand.begin(bodies)()
        assert signatures == [device.sign(body) for body in bodies]
    for body, signature in zip(bodies, signatures, strict=True):
        VerifyKey(device.public_key).verify(body, signature)
    hand.close()


def test_what_was_begun_and_never_finished_spoils_nothing(device: Device) -> None:
    hand = Hand(device)
    for _ in range(20):
        hand.begin([b"dropped"] * 200)
    bodies = [b"%d" % place for place in range(200)]
    assert hand.begin(bodies)() == [device.sign(body) for body in bodies]
    hand.close()


def test_where_no_thread_can_be_had_it_signs_all_the_same(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ThreadPoolExecutor, *_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    bodies = [b"%d" % place for place in range(50)]
    assert Hand(device).begin(bodies)() == [device.sign(body) for body in bodies]
