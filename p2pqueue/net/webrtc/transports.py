"""What do aiortc's DTLS and SCTP transports need so that nothing of theirs fails unseen or lives on?

Stock, an exception in one of their tasks is told to nobody, a packet that can't be read ends the receiving,
and a timer of a closed association may start itself again. Private names are overridden here; where a later
aiortc lacks one, its own behaviour stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from OpenSSL import SSL

from p2pqueue.net.webrtc.ortc import RTCDtlsParameters, RTCDtlsTransport, RTCSctpCapabilities, RTCSctpTransport

INITIAL_RTO = 1.0  # seconds: a lost first packet waits this long; the standard's 3 s eat up the time to connect
PACKET = 1160  # bytes of data in a full one
FLIGHT_LIMIT = 160 * PACKET  # bytes under way: what fits a socket's buffer of 416 KiB, Linux's default limit; beyond it whole rows are lost
TOGETHER = 4  # packets that one acknowledgement may cover: as many as aiortc sends in answer to one
HELD_LIMIT = 8 * 1024 * 1024  # bytes of unfinished messages of a peer that ignores the window of 1 MiB

_log = logging.getLogger(__name__)


def accepted_sizes() -> RTCSctpCapabilities:
    """The message sizes that a device of ours takes."""
    return RTCSctpTransport.getCapabilities()


class DtlsTransport(RTCDtlsTransport):
    """DTLS for data alone; `failure` says why it didn't connect."""

    failure = "the encryption was not agreed on with that device"

    async def start(self, remoteParameters: RTCDtlsParameters) -> None:
        """Shakes hands and checks the peer's fingerprint."""
        await super().start(remoteParameters)
        if self._task is not None:
            self._task.add_done_callback(_note_end)

    async def stop(self) -> None:
        """Closes it, and waits for its task."""
        task = self._task
        await super().stop()
        if task is not None:
            await asyncio.wait([task])

    def _setup_srtp(self) -> None:
        """Sets up no media."""

    def _validate_peer_identity(self, remoteParameters: RTCDtlsParameters) -> None:
        super()._validate_peer_identity(remoteParameters)
        if self.state == "failed":
            self.failure = "whoever answered is not the device that was expected: its certificate is another"

    async def _send_data(self, data: bytes) -> None:
        try:
            await super()._send_data(data)
        except (ConnectionError, SSL.Error) as error:  # the state change tells the same; a timer's task would die of it unseen
            _log.debug("a packet was not sent: %r", error)


class SctpTransport(RTCSctpTransport):
    """SCTP that stays closed once closed, and tells `on_broken` when a peer sends what can't be accepted."""

    on_broken: Callable[[str], None] | None = None

    def __init__(self, transport: RTCDtlsTransport, *, waiting: Callable[[], int] = lambda: 0) -> None:
        """`waiting` says how many datagrams have arrived and not been looked at."""
        super().__init__(transport)
        self._behind = waiting
        self._unacknowledged = 0  # packets since the last acknowledgement that we sent
        self._rto = INITIAL_RTO
        self._sacked = self._last_sacked_tsn
        self.moved_at = 0.0  # when the peer last acknowledged anything new, by the loop's clock

    def widen(self) -> None:
        """Both ends are in one network that takes packets of 1,500 bytes; aiortc's packets are of one size."""

    async def _handle_data(self, data: bytes) -> None:
        try:
            await super()._handle_data(data)
        except Exception as error:  # noqa: BLE001  asserts and struct errors at a peer's bytes
            _log.debug("a packet that SCTP can't read: %r", error)
            self._break("the other device sent a packet that can't be read")
        else:
            if self._advertised_rwnd < -HELD_LIMIT:
                self._break("the other device sends a message without end")
            if self._sacked != self._last_sacked_tsn:
                self._sacked, self.moved_at = self._last_sacked_tsn, asyncio.get_running_loop().time()

    async def _send_sack(self) -> None:
        """One acknowledgement for packets that have come together, unless any is missing: half the work of both sides is theirs."""
        self._unacknowledged += 1
        if self._unacknowledged < TOGETHER and self._behind() and not self._sack_misordered and not self._sack_duplicates:
            return
        self._unacknowledged = 0
        await super()._send_sack()

    async def _receive_sack_chunk(self, chunk: Any) -> None:
        """Lets the window grow by every packet that is acknowledged, as if each had been by itself."""
        packets, before = (chunk.cumulative_tsn - self._last_sacked_tsn) % (1 << 32), self._cwnd
        await super()._receive_sack_chunk(chunk)
        if 1 < packets <= TOGETHER and self._cwnd > before <= self._ssthresh:
            self._cwnd += (packets - 1) * PACKET

    async def _transmit(self) -> None:
        if self.state != "closed":
            self._cwnd = min(self._cwnd, FLIGHT_LIMIT)  # the peer's window says nothing of its socket
            await super()._transmit()

    def _break(self, why: str) -> None:
        if self.on_broken is not None:
            self.on_broken(why)


def _note_end(task: asyncio.Future[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.debug("receiving has ended: %r", task.exception())
