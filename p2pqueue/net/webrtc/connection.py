"""How are two devices connected directly: ICE, DTLS, SCTP and one channel, opened in time or failed in words?

    offered ──connect()──> finding a path ─> encrypting ─> opening ─> probing ─> open ──> closed
       └──────────────────────────┴──────────────┴────────────┴──────────┴───────────────────┘
                     the deadline, the peer, `close()`, a stall: closed, with the reason

Each side's first message is a probe as large as a packet gets, answered by the other: a path that lets
small packets through and eats large ones is found out before anything depends on it. Data follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from p2pqueue.errors import ChannelClosed, ConnectFailed
from p2pqueue.net.webrtc.candidates import Addressed, is_roomy, own_addresses, worth_trying
from p2pqueue.net.webrtc.drain import DRAINED
from p2pqueue.net.webrtc.ice import Gatherer, IceTransport, Path
from p2pqueue.net.webrtc.ortc import (
    RTCCertificate,
    RTCDataChannel,
    RTCDataChannelParameters,
    RTCDtlsFingerprint,
    RTCDtlsParameters,
)
from p2pqueue.net.webrtc.signal import RtcSignal
from p2pqueue.net.webrtc.transports import accepted_sizes
from p2pqueue.net.webrtc.tuning import make_transports

CONNECT_TIMEOUT = 8.0  # seconds; on a LAN it takes 0.03, with nine dead addresses before the good one 2
CLOSE_TIMEOUT = 2.0  # seconds after which closing is left to itself
PROBE = bytes(1160)  # with SCTP, DTLS and UDP around it a datagram of 1,240 bytes: the largest we send
ANSWER = b"\x01"
EARLY_LIMIT = 256  # messages that wait for somebody to take them

_WORDS = {
    "finding a path": "no address of that device answers; UDP may be blocked between us",
    "encrypting": "a path was found, but the encryption was not agreed on; UDP may be filtered between us",
    "opening": "a path was found and encrypted, but no channel opened over it",
    "probing": "small packets pass, packets of 1,240 bytes don't; the path's MTU is too small for WebRTC",
}

_log = logging.getLogger(__name__)


def make_certificate() -> RTCCertificate:
    """A certificate to be kept for as long as a node runs; peers know it by the fingerprint in the signal."""
    return RTCCertificate.generateCertificate()


class RtcConnection:
    """One DTLS and SCTP connection with one negotiated data channel.

    `on_message` gets every message; what comes before it is set waits for it. `on_closed` is told once why an
    open connection ended, by whichever side. Exceptions in either are logged, one in `on_message` ends the
    connection. A connection that has failed or ended frees what it held by itself; `close()` waits for that.
    """

    def __init__(
        self,
        *,
        controlling: bool,
        certificate: RTCCertificate,
        interfaces: Callable[[], Sequence[Addressed]],
        loopback: bool,
        drain: int = DRAINED,
        high_water: int,
        towards: str | None = None,
        tuned: bool = True,
    ) -> None:
        self._interfaces = interfaces
        self._loopback = loopback
        self.high_water = high_water
        self._certificate = certificate
        self._path = Path(
            controlling=controlling, addresses=lambda: own_addresses(interfaces(), loopback=loopback, towards=towards), drain=drain
        )
        self._gatherer = Gatherer(self._path)
        self._ice = IceTransport(self._gatherer)
        transports = make_transports(self._ice, certificate, self._path, tuned=tuned)
        self._dtls, self._sctp = transports.dtls, transports.sctp
        self._channel = RTCDataChannel(self._sctp, RTCDataChannelParameters(label="p2pqueue", negotiated=True, id=0))
        self._stage = "offered"
        self._reason: str | None = None
        self._changed = asyncio.Event()
        self._probes = 0  # messages of the opening that have come: the peer's probe, then its answer to ours
        self._closing: asyncio.Task[None] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._early: list[bytes] = []
        self._on_message: Callable[[bytes], None] | None = None
        self.on_closed: Callable[[str], None] | None = None
        self._listen()

    @property
    def open(self) -> bool:
        """Whether messages can be sent."""
        return self._stage == "open"

    @property
    def reason(self) -> str | None:
        """Why it is closed; None while it isn't."""
        return self._reason

    @property
    def buffered(self) -> int:
        """Bytes given to `send` that no packet carries yet."""
        return self._channel.bufferedAmount

    @property
    def moved_at(self) -> float:
        """When the other device last acknowledged a packet, by the loop's clock."""
        return self._sctp.moved_at

    @property
    def ends(self) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """Our address and port and the peer's, while connected."""
        return self._path.ends()

    @property
    def on_message(self) -> Callable[[bytes], None] | None:
        """Who gets the messages."""
        return self._on_message

    @on_message.setter
    def on_message(self, handler: Callable[[bytes], None] | None) -> None:
        self._on_message = handler
        if handler is not None and self._early:  # not from within: whoever sets it is about to keep what it belongs to
            asyncio.get_running_loop().call_soon(self._deliver_early)

    async def offer(self) -> RtcSignal:
        """Binds the sockets and says how to reach this side; raises `ConnectFailed` where no address can be offered."""
        try:
            await self._gatherer.gather()
        except OSError as error:
            await self.close()
            raise ConnectFailed(f"no UDP socket can be opened: {error}") from error
        candidates = self._gatherer.candidates()
        if not candidates:
            await self.close()
            raise ConnectFailed("this device has no address for a direct connection: no network interface is up")
        parameters = self._gatherer.getLocalParameters()
        return RtcSignal(
            ufrag=str(parameters.usernameFragment),
            password=str(parameters.password),
            candidates=candidates,
            fingerprint=_sha256(self._certificate),
            sctp_port=self._sctp.port,
        )

    async def connect(self, remote: RtcSignal, *, timeout: float = CONNECT_TIMEOUT) -> None:
        """Connects to the peer that made this signal, while it does the same.

        Raises `ConnectFailed`, closed by then, after `timeout` seconds or as soon as it can't succeed any more.
        """
        # A timer that closes everything, not a cancel: aiortc's handshake may swallow that one.
        deadline = asyncio.get_running_loop().call_later(timeout, self._give_up)
        try:
            async with asyncio.timeout(timeout + CLOSE_TIMEOUT):
                await self._connect(remote)
        except (ConnectFailed, TimeoutError) as error:
            self.lose(str(error) or "it took too long")
        finally:
            deadline.cancel()
            if not self.open:
                await self.close()
        if self._reason is not None:
            raise ConnectFailed(self._reason)

    def send(self, data: bytes) -> None:
        """Queues one message; raises `ChannelClosed`. The caller keeps `buffered` within bounds."""
        if not self.open:
            raise ChannelClosed(self._reason or "the connection is not open yet")
        self._channel.send(data)

    async def drained(self, below: int) -> None:
        """Waits until at most `below` bytes are buffered; raises `ChannelClosed`."""
        if self._reason is not None:
            raise ChannelClosed(self._reason)
        if self.buffered <= below:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (below, waiter)
        self._waiting.append(entry)
        self._set_threshold()
        try:
            await waiter
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        if self._reason is not None:
            raise ChannelClosed(self._reason)

    async def close(self) -> None:
        """Frees everything; `on_closed` is told unless it was before. Never raises, never takes longer than 2 s."""
        self.lose("closed by this device")
        assert self._closing is not None
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await asyncio.shield(self._closing)
        except TimeoutError:
            _log.warning("a direct connection takes long to close; it is left to itself")

    async def _connect(self, remote: RtcSignal) -> None:
        self._enter("finding a path")
        candidates = worth_trying(remote.candidates, self._interfaces(), loopback=self._loopback)
        if not candidates:
            raise ConnectFailed("that device offers no address that this one can reach")
        await self._ice.try_candidates(remote, candidates)
        if self._ice.state != "completed":
            raise ConnectFailed(_WORDS["finding a path"])
        self._enter("encrypting")
        fingerprint = RTCDtlsFingerprint(algorithm="sha-256", value=remote.fingerprint.hex(":").upper())
        await self._dtls.start(RTCDtlsParameters(fingerprints=[fingerprint]))
        if self._dtls.state != "connected":
            raise ConnectFailed(self._dtls.failure)
        self._enter("opening")
        await self._sctp.start(accepted_sizes(), remote.sctp_port)
        await self._changed.wait()

    def _enter(self, stage: str) -> None:
        if self._reason is not None:
            raise ConnectFailed(self._reason)
        self._stage = stage

    def _give_up(self) -> None:
        self.lose(_WORDS.get(self._stage, "it took too long"))

    def _listen(self) -> None:
        self._channel.on("open", self._opened)
        self._channel.on("message", self._received)
        self._channel.on("bufferedamountlow", self._release)
        self._channel.on("close", lambda: self.lose("the other device closed the connection"))
        self._ice.on("statechange", self._watch_ice)
        self._dtls.on("statechange", self._watch_dtls)
        self._sctp.on_broken = self.lose

    def _watch_ice(self) -> None:
        if self._ice.state == "failed" and self._stage != "finding a path":
            self.lose("the path to that device is gone")

    def _watch_dtls(self) -> None:
        if self._dtls.state == "closed":
            self.lose("the other device closed the connection")

    def _opened(self) -> None:
        if self._reason is None:
            self._stage = "probing"
            self._channel.send(PROBE)
            if self._probes == 1:
                self._channel.send(ANSWER)

    def _received(self, data: Any) -> None:
        if self._reason is not None:
            return
        if self._probes == 2:
            self._deliver(data)
        elif self._probes == 0 and data == PROBE:
            self._probes = 1
            if self._stage == "probing":  # else it came before the last packet of the opening
                self._channel.send(ANSWER)
        elif self._probes == 1 and data == ANSWER:
            self._probes, self._stage = 2, "open"
            self._changed.set()
            if (ends := self.ends) is not None and is_roomy(ends[0][0], ends[1][0], self._interfaces()):
                self._sctp.widen()
        else:
            self.lose("the other device speaks another protocol over its channel")

    def _deliver(self, data: Any) -> None:
        if self._reason is not None:  # closed by a message before this one
            return
        if not isinstance(data, bytes):
            self.lose("the other device sent text where only bytes are spoken")
        elif self._on_message is None or self._early:
            self._early.append(data)
            if len(self._early) > EARLY_LIMIT:
                self.lose("the other device sends more than this one takes")
        else:
            self._hand_over(self._on_message, data)

    def _deliver_early(self) -> None:
        early, self._early = self._early, []
        for data in early:
            self._deliver(data)

    def _hand_over(self, handler: Callable[[bytes], None], data: bytes) -> None:
        try:
            handler(data)
        except Exception:  # noqa: BLE001  aiortc would close this side without a word
            _log.exception("a message from a peer can't be handled; its connection is closed")
            self.lose("a message could not be handled")

    def lose(self, why: str) -> None:
        """Ends the connection at once: `on_closed` is told `why`, and everything is freed in the background."""
        if self._reason is not None:
            return
        was_open, self._reason, self._stage = self.open, why, "closed"
        self._early.clear()
        self._changed.set()
        self._release()
        self._closing = asyncio.get_running_loop().create_task(self._free(), name="p2pqueue-rtc-close")
        if was_open and self.on_closed is not None:
            try:
                self.on_closed(why)
            except Exception:  # noqa: BLE001  it may come out of any callback of aiortc
                _log.exception("the end of a direct connection can't be handled")

    async def _free(self) -> None:
        for stop in (self._sctp.stop, self._dtls.stop, self._ice.stop):
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT / 4):
                    await stop()
            except Exception as error:  # noqa: BLE001  whatever a third party's closing does, the next part is closed as well
                _log.debug("closing a direct connection: %r", error)
        self._path.abort()
        self._channel.remove_all_listeners()

    def _release(self) -> None:
        for below, waiter in self._waiting:
            if not waiter.done() and (self._reason is not None or self.buffered <= below):
                waiter.set_result(None)
        self._waiting = [entry for entry in self._waiting if not entry[1].done()]
        self._set_threshold()

    def _set_threshold(self) -> None:
        self._channel.bufferedAmountLowThreshold = max((below for below, _ in self._waiting), default=0)


def _sha256(certificate: RTCCertificate) -> bytes:
    value = next(fingerprint.value for fingerprint in certificate.getFingerprints() if fingerprint.algorithm == "sha-256")
    return bytes.fromhex(value.replace(":", ""))
