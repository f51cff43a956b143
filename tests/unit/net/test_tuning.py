"""The tuned transports serve where aiortc's insides are known, and the ordinary ones elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pqueue.net.webrtc import records, tuning
from p2pqueue.net.webrtc.ortc import RTCDtlsTransport, RTCSctpTransport
from p2pqueue.net.webrtc.transports import SctpTransport
from p2pqueue.net.webrtc.tuned_sctp import TunedSctp
from tests.unit.net.connected import connected, inbox, nothing_unseen

pytestmark = pytest.mark.usefixtures(nothing_unseen.__name__)


@pytest.fixture(autouse=True)
def looked_at_anew() -> Iterator[None]:
    tuning.obstacle.cache_clear()
    yield
    tuning.obstacle.cache_clear()


class Foreign(RTCSctpTransport):
    """As if a later aiortc did one thing in another way."""

    async def _send_sack(self) -> None:
        """Sends none."""


class Poorer:
    """As if a later aiortc had nothing of it."""


async def test_with_the_pinned_aiortc_the_tuned_transports_serve() -> None:
    pinned = Path(__file__).parents[3] / "constraints.txt"
    assert any(f"aiortc=={known.partition(' ')[2]}" in pinned.read_text() for known in tuning._KNOWN.values())
    assert tuning.obstacle() is None
    async with connected() as (one, _):
        assert isinstance(one._sctp, TunedSctp)


@pytest.mark.parametrize("insides", [Foreign, Poorer])
def test_insides_that_are_not_known_are_an_obstacle(insides: type) -> None:
    assert "version of aiortc" in (tuning._first_obstacle(insides, RTCDtlsTransport) or "")


def test_so_is_an_openssl_that_lacks_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_NEEDED", ("SSL_write", "SSL_write_many"))
    assert tuning.obstacle() == "pyOpenSSL lacks SSL_write_many"


async def test_with_other_insides_the_ordinary_transports_serve_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tuning, "_KNOWN", {})
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            async with connected() as (one, other):
                assert type(one._sctp) is SctpTransport
                messages = inbox(other)
                one.send(bytes(100_000))
                assert await messages.get() == bytes(100_000)
    assert [record.name for record in caplog.records if "slower than they could be" in record.getMessage()] == [
        "p2pqueue.net.webrtc.tuning"
    ]


def test_the_source_of_a_method_is_read_whole() -> None:
    source = tuning._source(RTCSctpTransport._receive_sack_chunk)
    assert source.startswith("async def _receive_sack_chunk(")
    assert source.endswith("await self._transmit()")
