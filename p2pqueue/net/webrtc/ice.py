"""How does aiortc find the way to a peer, over the interfaces that were chosen and over loopback when asked?

Subclasses of aiortc's ICE classes around one subclass of `aioice.Connection`, which offers the addresses it is
given, drains its sockets, bounds what waits to be read, and lets only the chosen path deliver data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aioice.candidate import Candidate as AioiceCandidate
from aioice.ice import Connection, ConnectionClosed, ConnectionEvent, StunProtocol

from p2pqueue.net.webrtc.drain import Drain
from p2pqueue.net.webrtc.ortc import RTCIceCandidate, RTCIceGatherer, RTCIceParameters, RTCIceTransport
from p2pqueue.net.webrtc.signal import Candidate, RtcSignal

BACKLOG = 2048  # datagrams waiting for DTLS, about 2.4 MB; SCTP sends again what is dropped beyond
_TOP_PRIORITY = 126 << 24  # the type preference of a host candidate (RFC 8445, 5.1.2.1)


class Path(Connection):
    """An ICE connection over the addresses that `addresses` names when it gathers."""

    def __init__(self, *, controlling: bool, addresses: Callable[[], Sequence[str]], drain: int) -> None:
        super().__init__(ice_controlling=controlling)
        self._addresses = addresses
        self._drain = drain
        self._drains: dict[StunProtocol, Drain] = {}
        self.on_records: Callable[[Sequence[bytes]], None] | None = None  # gets what `receive` would give otherwise

    async def get_component_candidates(self, component: int, addresses: list[str], timeout: int = 5) -> list[AioiceCandidate]:
        """Binds the addresses of ours, not those that aioice found, and drains their sockets."""
        known = len(self._protocols)
        found = await super().get_component_candidates(component=component, addresses=list(self._addresses()), timeout=timeout)
        for rank, protocol in enumerate(self._protocols[known:]):
            protocol.local_candidate.priority = _priority(rank)
            self._drains[protocol] = Drain(protocol.transport, protocol, on_data=self._take, limit=self._drain)
        return found

    async def connect(self) -> None:
        """Finds a path. Closed in that very moment, aioice would keep a task that asks for consent for ever."""
        await super().connect()
        if self._closing and self._query_consent_task is not None:
            self._query_consent_task.cancel()
            raise ConnectionError("closed while connecting")

    async def get_event(self) -> ConnectionEvent:
        """The next event. On a closed connection aioice says None, at which aiortc asks again without end."""
        return await super().get_event() or ConnectionClosed()

    def waiting(self) -> int:
        """How many datagrams have arrived and not been looked at."""
        return self._queue.qsize()

    def abort(self) -> None:
        """Closes the sockets without waiting for what they still hold back."""
        for protocol in self._protocols:
            protocol.transport.abort()

    def ends(self) -> tuple[Candidate, Candidate] | None:
        """Our address and the peer's on the chosen path, once there is one."""
        pair = self._nominated.get(1)
        return None if pair is None else (pair.local_addr, pair.remote_addr)

    def gather(self) -> bool:
        """Datagrams of the chosen path may come together from now on: DTLS 1.2 is spoken over it. Says whether they do."""
        drain = self._chosen()
        return drain is not None and drain.gather()

    def send_together(self, block: memoryview, lengths: Sequence[int]) -> None:
        """Sends the datagrams that lie in `block` over the chosen path; nothing where there is none."""
        if (drain := self._chosen()) is not None:
            drain.burst.send(block, lengths, self._nominated[1].remote_addr)

    def leave(self, records: Iterable[bytes]) -> None:
        """Leaves datagrams to whoever receives."""
        for record in records:
            if self._queue.qsize() < BACKLOG:
                self.data_received(record, 1)

    def _chosen(self) -> Drain | None:
        pair = self._nominated.get(1)
        return None if pair is None else self._drains.get(pair.protocol)

    def _take(self, records: Sequence[bytes], addr: tuple[Any, ...]) -> None:
        pair = self._nominated.get(1)
        if pair is not None and pair.remote_addr != (addr[0], addr[1]):
            return
        if self.on_records is not None:
            self.on_records(records)
        else:
            self.leave(records)


class Gatherer(RTCIceGatherer):
    """Gathers over a `Path`; no server is asked."""

    def __init__(self, path: Path) -> None:
        super().__init__(iceServers=[])
        self._connection = path

    def candidates(self) -> tuple[Candidate, ...]:
        """Our addresses and ports, the best first."""
        return tuple((candidate.ip, candidate.port) for candidate in self.getLocalCandidates())


class IceTransport(RTCIceTransport):
    """Checks the ways to a peer and keeps the first that answers."""

    async def try_candidates(self, remote: RtcSignal, candidates: Iterable[Candidate]) -> None:
        """Runs the checks, in the order of the candidates; `state` is "completed" after it, or something else."""
        for rank, (host, port) in enumerate(candidates):
            await self.addRemoteCandidate(_candidate(host, port, rank))
        await self.addRemoteCandidate(None)
        await self.start(RTCIceParameters(usernameFragment=remote.ufrag, password=remote.password))


def _candidate(host: str, port: int, rank: int) -> RTCIceCandidate:
    return RTCIceCandidate(component=1, foundation=str(rank), ip=host, port=port, priority=_priority(rank), protocol="udp", type="host")


def _priority(rank: int) -> int:
    return _TOP_PRIORITY + ((65535 - rank) << 8) + 255
