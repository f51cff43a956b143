"""How do packets of SCTP reach the socket, and come from it, many at a time?

aiortc shakes hands; then what is application data goes past it: sealed and opened by `Records`, sent and
received in bursts by the path. Everything else of DTLS, a farewell for one, stays with aiortc.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from p2pqueue.net.webrtc.burst import TOGETHER
from p2pqueue.net.webrtc.ice import IceTransport, Path
from p2pqueue.net.webrtc.ortc import RTCCertificate, RTCDtlsParameters
from p2pqueue.net.webrtc.records import APPLICATION_DATA, VERSION, Records
from p2pqueue.net.webrtc.transports import DtlsTransport

_log = logging.getLogger(__name__)


class Receiver(Protocol):
    """Whoever gets the packets."""

    def take_packets(self, packets: Sequence[bytes]) -> None:
        """Takes what came together."""


class TunedDtls(DtlsTransport):
    """DTLS that seals and opens in bursts once it is connected."""

    def __init__(self, transport: IceTransport, certificates: list[RTCCertificate], *, path: Path) -> None:
        super().__init__(transport, certificates)
        self._path = path
        self._records: Records | None = None
        self.receiver: Receiver | None = None
        self.gathers = False  # whether packets come several at once

    async def start(self, remoteParameters: RTCDtlsParameters) -> None:
        """Shakes hands; from then on the path's records come here."""
        await super().start(remoteParameters)
        assert self._ssl is not None
        if self.state == "connected" and self._ssl.get_protocol_version_name() == VERSION:
            self._records = Records(self._ssl)
            self.gathers = self._path.gather()
            self._path.on_records = self._take_records

    @property
    def bursts(self) -> bool:
        """Whether `send_packets` can be used."""
        return self._records is not None

    def _set_state(self, state: Any) -> None:
        if state != self._state:  # it was connected, or isn't yet
            self._path.on_records = self._records = None
        super()._set_state(state)

    def send_packets(self, packets: Sequence[bytes]) -> None:
        """Sends packets, each in a datagram of its own; nothing where it isn't connected any more."""
        for first in range(0, len(packets), TOGETHER):
            if self._records is None:
                return
            try:
                block, lengths = self._records.seal(packets[first : first + TOGETHER])
            except ConnectionError as error:
                _log.debug("packets were not sent: %s", error)
                return
            self._path.send_together(block, lengths)

    def _take_records(self, records: Sequence[bytes]) -> None:
        if self._records is None or self.receiver is None:
            self._path.leave(records)
            return
        rest = [record for record in records if record[0] != APPLICATION_DATA]
        packets = self._records.open([record for record in records if record[0] == APPLICATION_DATA] if rest else records)
        block, lengths = self._records.pending()
        if lengths:
            self._path.send_together(block, lengths)
        if packets:
            self.receiver.take_packets(packets)
        if rest:
            self._path.leave(rest)
