"""What stands at the other end of `network_rtc`? A process of its own that takes what is sent, and tells what it saw.

It reads one JSON object a line and answers each with one: `{"open": kind, "signal": …}` with its own signal,
`{"bytes": n}` with the seconds until n bytes had come, `{"delays": true}` with those of the signals so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any

from p2pqueue.errors import ChannelClosed
from p2pqueue.net.webrtc.bulk import BULK_BUFFER, BulkChannel
from p2pqueue.net.webrtc.candidates import own_addresses, worth_trying
from p2pqueue.net.webrtc.channel import CONTROL_BUFFER, ControlChannel
from p2pqueue.net.webrtc.connection import RtcConnection, make_certificate
from p2pqueue.net.webrtc.ice import Gatherer, IceTransport, Path
from p2pqueue.net.webrtc.ortc import (
    RTCCertificate,
    RTCDataChannel,
    RTCDataChannelParameters,
    RTCDtlsFingerprint,
    RTCDtlsParameters,
    RTCDtlsTransport,
    RTCSctpCapabilities,
    RTCSctpTransport,
)
from p2pqueue.net.webrtc.signal import RtcSignal

DRAINED = 8  # datagrams a wake-up, the same for everybody


class Bare:
    """A data channel of stock aiortc over a drained socket: what ours is measured against."""

    def __init__(self, *, controlling: bool, certificate: RTCCertificate) -> None:
        self._certificate = certificate
        self.path = Path(controlling=controlling, addresses=lambda: own_addresses((), loopback=True), drain=DRAINED)
        self._gatherer = Gatherer(self.path)
        self.ice = IceTransport(self._gatherer)
        self._dtls = RTCDtlsTransport(self.ice, [certificate])
        self._sctp = RTCSctpTransport(self._dtls)
        self.channel = RTCDataChannel(self._sctp, RTCDataChannelParameters(label="bare", negotiated=True, id=0))
        self.on_message: Callable[[bytes], None] = lambda message: None
        self.channel.on("message", lambda message: self.on_message(message))
        self._room = asyncio.Event()
        self.channel.on("bufferedamountlow", self._room.set)
        self.channel.bufferedAmountLowThreshold = BULK_BUFFER - 64 * 1024

    async def offer(self) -> RtcSignal:
        await self._gatherer.gather()
        parameters = self._gatherer.getLocalParameters()
        sha256 = next(entry.value for entry in self._certificate.getFingerprints() if entry.algorithm == "sha-256")
        candidates = self._gatherer.candidates()
        return RtcSignal(str(parameters.usernameFragment), str(parameters.password), candidates, bytes.fromhex(sha256.replace(":", "")))

    async def connect(self, remote: RtcSignal) -> None:
        opened = asyncio.Event()
        self.channel.on("open", opened.set)
        await self.ice.try_candidates(remote, worth_trying(remote.candidates, (), loopback=True))
        await self._dtls.start(RTCDtlsParameters([RTCDtlsFingerprint("sha-256", remote.fingerprint.hex(":").upper())]))
        await self._sctp.start(RTCSctpCapabilities(262144), remote.sctp_port)
        await opened.wait()

    async def send(self, frame: bytes) -> None:
        while self.channel.bufferedAmount + len(frame) > BULK_BUFFER:
            self._room.clear()
            await self._room.wait()
        self.channel.send(frame)

    async def close(self) -> None:
        await self._sctp.stop()
        await self._dtls.stop()
        await self.ice.stop()


def ours(*, controlling: bool, certificate: RTCCertificate) -> RtcConnection:
    """A connection of ours over 127.0.0.1."""
    return RtcConnection(
        controlling=controlling, certificate=certificate, interfaces=_no_interfaces, loopback=True, drain=DRAINED, high_water=CONTROL_BUFFER
    )


def packed(signal: RtcSignal) -> str:
    return b64encode(signal.pack()).decode()


def unpacked(text: str) -> RtcSignal:
    return RtcSignal.unpack(b64decode(text))


def _no_interfaces() -> Sequence[Any]:
    return ()


class Taker:
    """Takes what comes, counts it, and keeps the delays of signals."""

    def __init__(self) -> None:
        self._certificate = make_certificate()
        self._ends: list[Bare | RtcConnection] = []
        self._arrived = 0
        self._wanted = 0
        self._reached = asyncio.Event()
        self._delays: list[float] = []

    async def serve(self) -> None:
        """Answers every line of stdin until it ends."""
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async with asyncio.TaskGroup() as group:
            while line := await lines.readline():
                await self._answer(json.loads(line), group)
            for end in self._ends:
                await end.close()
            raise SystemExit(0)

    async def _answer(self, request: dict[str, Any], group: asyncio.TaskGroup) -> None:
        if "open" in request:
            await self._open(request["open"], unpacked(request["signal"]), group)
        elif "bytes" in request:
            began, self._arrived, self._wanted = time.perf_counter(), 0, request["bytes"]
            self._reached.clear()
            _say({"ready": True})
            await self._reached.wait()
            _say({"seconds": time.perf_counter() - began})
        elif "delays" in request:
            _say({"delays": self._delays})
            self._delays = []

    async def _open(self, kind: str, remote: RtcSignal, group: asyncio.TaskGroup) -> None:
        make = Bare if kind == "bare" else ours
        end = make(controlling=False, certificate=self._certificate)
        _say({"signal": packed(await end.offer())})
        self._ends.append(end)
        await end.connect(remote)
        if isinstance(end, Bare):
            end.on_message = self._count
        elif kind == "bulk":
            group.create_task(self._take(BulkChannel(end)))
        elif kind == "control":
            ControlChannel(end, on_message=self._note, on_closed=lambda why: None)
        _say({"open": True})

    async def _take(self, channel: BulkChannel) -> None:
        with contextlib.suppress(ChannelClosed):
            while True:
                frame = await channel.receive()
                self._count(frame)
                channel.grant(len(frame))

    def _count(self, frame: bytes) -> None:
        self._arrived += len(frame)
        if self._arrived >= self._wanted:
            self._reached.set()

    def _note(self, topic: int, message: bytes) -> None:
        self._delays.append((time.monotonic_ns() - int.from_bytes(message, "big")) / 1e6)


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(Taker().serve())
