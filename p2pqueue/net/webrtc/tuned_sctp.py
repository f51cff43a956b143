"""How does SCTP move data as fast as Python can, between two devices and with any other SCTP?

aiortc opens and closes the association and keeps the channels. The data goes past it: what is under way is counted
by `Flight`, what has come by `Inbound`, and packets are written and read in bursts. Private names are overridden
here; `tuning` checks that they are those this was written for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from p2pqueue.errors import MalformedMessage
from p2pqueue.net.webrtc.congestion import Congestion
from p2pqueue.net.webrtc.flight import Flight
from p2pqueue.net.webrtc.ortc import RTCDataChannel
from p2pqueue.net.webrtc.packets import FIRST, HEAD, HEARTBEAT_ACK, LAST, Writer, is_intact, read, read_alone, tag_of
from p2pqueue.net.webrtc.reassembly import Inbound
from p2pqueue.net.webrtc.sounding import WIDE_PAYLOAD, Sounding
from p2pqueue.net.webrtc.transports import HELD_LIMIT, PACKET, TOGETHER, SctpTransport

if TYPE_CHECKING:
    from p2pqueue.net.webrtc.tuned_dtls import TunedDtls

WINDOW = 4 * 1024 * 1024  # bytes that a peer is told to have under way at most
COUNTS_BYTES = 0xBF70  # a parameter of our own: one acknowledgement may cover any number of packets; others skip it (RFC 9260, 3.2.1)
NO_CHECKSUM = 0x8001  # RFC 9653: packets without a checksum are welcome ...
IN_DTLS = (1).to_bytes(4, "big")  # ... where DTLS carries them

BURST = 128  # packets at once: what fits a socket's buffer ...
LINGER = 8  # packets that an acknowledgement waits for where they come one by one
PAUSE = 0.001  # ... and seconds until more may follow without an acknowledgement
BINARY = 53  # what a message of bytes is called in WebRTC
_WRAP = 0xFFFFFFFF

_log = logging.getLogger(__name__)


class TunedSctp(SctpTransport):
    """SCTP over a `TunedDtls`, for channels that are reliable and in order."""

    def __init__(self, transport: TunedDtls, *, waiting: Callable[[], int] = lambda: 0) -> None:
        super().__init__(transport, waiting=waiting)
        self._dtls = transport
        self._turns = asyncio.get_running_loop()
        transport.receiver = self
        self._local_partial_reliability = False
        self._advertised_rwnd = WINDOW
        self._payload = PACKET
        self._sounding = Sounding(self._sound, self._deepen)
        self._peer_counts_bytes = self._unchecked = False
        self._flight: Flight | None = None
        self._inbound: Inbound | None = None
        self._writer: Writer | None = None
        self._known_head = self._local_verification_tag.to_bytes(4, "big") + bytes(4)  # of a packet without a checksum
        self._place = 0  # in the message that is being sent
        self._arrivals = 0  # packets of data since the last acknowledgement
        self._lingers = False
        self._heard = False  # whether an acknowledgement came
        self._alarm: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None  # between two bursts

    # -- opening: aiortc's, with what ours needs to know ----------------------------------------------------------

    def _set_extensions(self, params: list[tuple[int, bytes]]) -> None:
        super()._set_extensions(params)
        params += [(NO_CHECKSUM, IN_DTLS), (COUNTS_BYTES, b"")]

    def _get_extensions(self, params: list[tuple[int, bytes]]) -> None:
        super()._get_extensions(params)
        self._unchecked = (NO_CHECKSUM, IN_DTLS) in params
        self._peer_counts_bytes = any(kind == COUNTS_BYTES for kind, _ in params)

    async def _receive_chunk(self, chunk: Any) -> None:
        if chunk.type == HEARTBEAT_ACK:
            self._sounding.hear(chunk.params)
        await super()._receive_chunk(chunk)
        if self._inbound is not None:
            self._last_received_tsn = (self._inbound.next - 1) & _WRAP  # an INIT that comes late, or twice, begins nothing anew
        elif self._last_received_tsn is not None:
            self._inbound = Inbound(self._last_received_tsn + 1, limit=HELD_LIMIT)
            assert self._remote_port is not None
            self._writer = Writer(self._local_port, self._remote_port, self._remote_verification_tag, checked=not self._unchecked)

    def _set_state(self, state: Any) -> None:
        if state == self.State.ESTABLISHED and self._flight is None:
            self._flight = Flight(self._local_tsn, Congestion(self._payload), window=int(self._ssthresh))
        super()._set_state(state)

    # -- the size of packets --------------------------------------------------------------------------------------

    def widen(self) -> None:
        """Tries larger packets, and takes losses for less of a sign: no router stands between."""
        if self._flight is not None:
            self._flight.congestion.gentle = True
            self._sounding.begin()

    def _sound(self, mark: bytes) -> None:
        if self._writer is not None and self.state == "connected":
            self._send_packets([self._writer.heartbeat(mark)])

    def _deepen(self) -> None:
        self._payload = WIDE_PAYLOAD
        if self._flight is not None:
            self._flight.congestion.payload = WIDE_PAYLOAD

    # -- receiving ------------------------------------------------------------------------------------------------

    async def _handle_data(self, data: bytes) -> None:
        self.take_packets((data,))

    def take_packets(self, packets: Sequence[bytes]) -> None:
        """Takes packets that came together, answers them together, and hands on the messages in them."""
        if self.state == "closed":
            return
        try:
            for packet in packets:
                self._take(packet)
            self._answer()
        except MalformedMessage as error:
            self._break(f"the other device sent {error}")
        except Exception as error:  # noqa: BLE001  asserts and struct errors at a peer's bytes
            _log.debug("a packet that SCTP can't read: %r", error)
            self._break("the other device sent a packet that can't be read")

    def _take(self, packet: bytes) -> None:
        inbound = self._inbound
        if inbound is None or (packet[4:HEAD] != self._known_head and not self._is_ours(packet)):
            _finish(super()._handle_data(packet))
            return
        fragment = read_alone(packet)
        if fragment is not None:
            inbound.take(fragment)
            self._arrivals += 1
            if self._arrivals >= TOGETHER and not self._peer_counts_bytes:
                self._acknowledge(inbound)
            return
        chunks = read(packet)
        if chunks is None:
            _finish(super()._handle_data(packet))
            return
        for chunk in chunks:
            if len(chunk) == 5:
                inbound.take(chunk)
                self._arrivals += 1
            elif self._flight is not None:
                self._note(self._flight.acknowledge(chunk, self._turns.time()))

    def _is_ours(self, packet: bytes) -> bool:
        """Whether the tag is ours and the checksum, if there is one, is right."""
        return tag_of(packet) == self._local_verification_tag and is_intact(packet, unchecked=True)

    async def _receive_data_chunk(self, chunk: Any) -> None:
        if self._inbound is not None:
            self._inbound.take((chunk.tsn, chunk.flags, chunk.stream_id, chunk.protocol, chunk.user_data))
            self._arrivals += 1

    async def _receive_sack_chunk(self, chunk: Any) -> None:
        if self._flight is not None:
            report = chunk.cumulative_tsn, chunk.advertised_rwnd, chunk.gaps, chunk.duplicates
            self._note(self._flight.acknowledge(report, self._turns.time()))

    async def _receive_forward_tsn_chunk(self, chunk: Any) -> None:
        """Nothing is ever given up: it was said at the opening that this is not spoken here."""

    def _note(self, progress: bool) -> None:
        self._heard = True
        if progress:
            self.moved_at = self._turns.time()

    def _answer(self) -> None:
        inbound = self._inbound
        if inbound is None:
            return
        self._last_received_tsn = (inbound.next - 1) & _WRAP
        if self._arrivals and (self._dtls.gathers or self._arrivals >= LINGER or inbound.has_gaps or inbound.duplicates):
            self._acknowledge(inbound)
        elif self._arrivals and not self._lingers:
            self._lingers = True
            self._turns.call_soon(self._linger, inbound, 0)
        if self._heard:
            self._heard = False
            self._pump()
        messages, inbound.messages = inbound.messages, []
        for stream, protocol, data in messages:
            channel = self._data_channels.get(stream)
            if protocol == BINARY and channel is not None:
                channel.emit("message", data)
            else:
                _finish(self._receive(stream, protocol, data))
        if self._reconfig_deferred is not None:
            _finish(self._reset_deferred_streams())

    def _linger(self, inbound: Inbound, seen: int) -> None:
        """Where the loop reads one datagram a turn (Windows): waits for those that come turn by turn, and acknowledges them together."""
        if self._arrivals != seen and self._arrivals and self.state != "closed":
            self._turns.call_soon(self._linger, inbound, self._arrivals)
            return
        self._lingers = False
        if self._arrivals and self.state != "closed":
            self._acknowledge(inbound)

    def _acknowledge(self, inbound: Inbound) -> None:
        self._arrivals = 0
        if self._writer is None:
            return
        gaps = inbound.gaps() if inbound.has_gaps else ()
        duplicates, inbound.duplicates = inbound.duplicates, []
        window = max(0, WINDOW - inbound.held)
        self._send_packets([self._writer.sack((inbound.next - 1) & _WRAP, window, gaps, duplicates)])

    async def _send_sack(self) -> None:
        """It is sent when all that came together has been looked at."""

    # -- sending --------------------------------------------------------------------------------------------------

    def _data_channel_send(self, channel: RTCDataChannel, data: bytes | str) -> None:
        if self._flight is None or not isinstance(data, bytes) or not 0 < len(data) <= self._remote_max_message_size:
            super()._data_channel_send(channel, data)
            return
        channel._addBufferedAmount(len(data))
        self._data_channel_queue.append((channel, BINARY, data))
        self._pump()

    async def _data_channel_flush(self) -> None:
        self._pump()
        await self._transmit_reconfig()

    async def _transmit(self) -> None:
        self._pump()

    def _pump(self) -> None:
        """Sends what may be sent."""
        flight = self._flight
        if flight is None or self.state == "closed":
            return
        now = self._turns.time()
        packets = flight.resend(now, most=BURST) if flight.unsettled else []
        if self._data_channel_queue and not flight.unsettled:
            self._fill(packets, flight, now)
        self._send_packets(packets)
        self._set_alarm(flight)
        if len(packets) >= BURST and self._rest is None:
            self._rest = self._turns.call_later(PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._rest = None
        self._pump()

    def _fill(self, packets: list[bytes], flight: Flight, now: float) -> None:
        assert self._writer is not None
        queue, write = self._data_channel_queue, self._writer.data
        payload, at = self._payload, self._place
        room = min(flight.room, (BURST - len(packets)) * payload)
        while queue and room > 0:
            channel, protocol, data = queue[0]
            stream, size = channel.id, len(data)
            assert stream is not None  # all our channels are negotiated
            sequence = self._outbound_stream_seq.get(stream, 0)
            while at < size and room > 0:
                end = min(at + payload, size)
                flags = (0 if at else FIRST) | (LAST if end == size else 0)
                packet = write(flight.next & _WRAP, flags, stream, sequence, protocol, data[at:end])
                flight.add(packet, end - at, now)
                packets.append(packet)
                room -= end - at
                at = end
            if at == size:
                at = 0
                queue.popleft()
                self._outbound_stream_seq[stream] = (sequence + 1) & 0xFFFF
                if protocol == BINARY:
                    channel._addBufferedAmount(-size)
        self._place = at
        self._local_tsn = flight.next & _WRAP

    def _send_packets(self, packets: list[bytes]) -> None:
        if not packets:
            return
        if self._dtls.bursts:
            self._dtls.send_packets(packets)
            return
        for packet in packets:
            _finish(self._dtls._send_data(packet))

    # -- the one timer --------------------------------------------------------------------------------------------

    def _set_alarm(self, flight: Flight) -> None:
        at = flight.expires_at
        if at is None or (self._alarm is not None and self._alarm.when() <= at):
            return  # an alarm that comes too early looks again
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._turns.call_at(at, self._expire)

    def _expire(self) -> None:
        self._alarm = None
        flight = self._flight
        if flight is None or self.state == "closed":
            return
        now, at = self._turns.time(), flight.expires_at
        if at is not None and at <= now:
            self._send_packets(flight.expire(now))
            self._pump()
        elif at is not None:
            self._alarm = self._turns.call_at(at, self._expire)

    def _t3_cancel(self) -> None:
        """Ends the timers: the association is over."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._sounding.end()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


def _finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine of aiortc that is one by name alone: nothing in it waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("aiortc waits where it never did")
