"""How is one zeroconf kept going while interfaces come, go and change?

zeroconf notices none of that by itself. `Responder` wraps one running instance with its browser: it is moved to other
addresses, where the sockets may stay, and otherwise closed and opened again by its owner.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from zeroconf import ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from p2pqueue.net.announcement import SERVICE, Announcement
from p2pqueue.net.interfaces import Interface

Host = tuple[int, str]  # the index of an interface and the address that multicast goes out from
Heard = Callable[[str, bool], None]  # the full name of an instance, and whether it is there still

PORT = 5353
CLOSE_LIMIT = 2.0  # seconds for the goodbyes
_TYPE_TXT, _CLASS_IN = 16, 1  # RFC 1035, 3.2
_ASK_FOR = 3000  # milliseconds that an instance has to answer


class NoMulticast(OSError):
    """None of the interfaces took part in multicast."""


def hosts(interfaces: Sequence[Interface]) -> tuple[Host, ...]:
    """The address of each interface that mDNS uses: IPv4, or IPv6 where no interface has IPv4.

    One per interface: a second socket can't join the group on it. Both families at once need a socket for both, and
    not every system lets such a socket join the group of IPv4.
    """
    for version in (4, 6):
        firsts = {i.index: str(address.ip) for i in interfaces for address in reversed(i.addresses) if address.version == version}
        if firsts:
            return tuple(firsts.items())
    return ()


class Responder:
    """A running zeroconf on some addresses: it browses, and announces a service where it is given one.

    :param heard: called with every instance that comes, changes or says goodbye.

    Raises `OSError` where the port can't be shared.
    """

    def __init__(self, where: tuple[Host, ...], *, heard: Heard) -> None:
        self._hosts = where
        self._heard = heard
        _try_port(where)
        self._zeroconf = AsyncZeroconf(interfaces=[address for _, address in where])
        self._browser: AsyncServiceBrowser | None = None
        self._told: AsyncServiceInfo | None = None
        self._name = ""

    async def start(self, told: Announcement | None) -> None:
        """Browses and announces. Raises `NoMulticast` where no interface lets it."""
        await self._zeroconf.zeroconf.async_wait_for_start()
        await self._begin(told)

    def can_move(self, where: tuple[Host, ...]) -> bool:
        """Says whether the sockets can stay: an interface that went and came back has lost its memberships."""
        before = {address: index for index, address in self._hosts}
        same_family = (":" in self._hosts[0][1]) == (":" in where[0][1])
        return same_family and all(before.get(address, index) == index for index, address in where)

    async def move(self, where: tuple[Host, ...], told: Announcement | None) -> None:
        """Goes to other addresses, or takes a new look on the same; asks and announces again."""
        self._hosts = where
        if told is not None and told.name == self._name:  # or the old addresses would be announced on the new sockets
            self._told = _info(told)
            self._zeroconf.zeroconf.registry.async_update(self._told)
        await self._zeroconf.async_update_interfaces([address for _, address in where])
        await self._begin(told)

    async def announce(self, told: Announcement | None) -> None:
        """Tells the LAN, three times within half a second; of what was told under another name it tells nothing more.

        There is no probing for the name first, which would take a second: it is random, so nobody else can have it
        (RFC 6762, 8.1). Nor is there a goodbye to the other name, which may be another's.
        """
        if self._told is not None and (told is None or told.name != self._name):
            self._zeroconf.zeroconf.registry.async_remove(self._told)
            self._told = None
        if told is None:
            return
        first, self._told, self._name = self._told is None, _info(told), told.name
        if first:
            await (await self._zeroconf.async_register_service(self._told, cooperating_responders=True))
        else:
            await (await self._zeroconf.async_update_service(self._told))

    def recall(self, name: str) -> AsyncServiceInfo | None:
        """What is known of an instance without asking; `None` where that isn't all, or too old."""
        info = AsyncServiceInfo(SERVICE, name)
        return info if info.load_from_cache(self._zeroconf.zeroconf) else None

    def texts(self, name: str) -> list[bytes]:
        """Every TXT record that is known under a name; there are several where several devices have it."""
        records = self._zeroconf.zeroconf.cache.get_all_by_details(name, _TYPE_TXT, _CLASS_IN)
        return [text for record in records if isinstance(text := getattr(record, "text", None), bytes)]

    async def ask(self, name: str) -> AsyncServiceInfo | None:
        """Asks an instance for its records; `None` where nobody answers within three seconds."""
        info = AsyncServiceInfo(SERVICE, name)
        return info if await info.async_request(self._zeroconf.zeroconf, _ASK_FOR) else None

    async def close(self, *, goodbye: bool = True) -> None:
        """Stops, and takes back what was announced."""
        if self._told is not None and not goodbye:
            self._zeroconf.zeroconf.registry.async_remove(self._told)
        if self._browser is not None:
            await self._browser.async_cancel()
            self._browser = None
        async with asyncio.timeout(CLOSE_LIMIT):
            await self._zeroconf.async_close()

    async def _begin(self, told: Announcement | None) -> None:
        if not self._zeroconf.zeroconf.engine.senders:
            raise NoMulticast("no interface takes part in multicast")
        if self._browser is not None:
            await self._browser.async_cancel()
        self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE, handlers=[self._on_change])
        await self.announce(told)

    def _on_change(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        self._heard(name, state_change is not ServiceStateChange.Removed)


def _try_port(where: tuple[Host, ...]) -> None:
    """Binds the port as zeroconf will, which forgets to close its socket where that fails."""
    family = socket.AF_INET6 if ":" in where[0][1] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        trial.bind(("", PORT))


def _info(told: Announcement) -> AsyncServiceInfo:
    return AsyncServiceInfo(
        SERVICE,
        f"{told.name}.{SERVICE}",
        port=told.port,
        properties=told.text,
        server=f"{told.name}.local.",
        host_ttl=told.lifetime,
        parsed_addresses=list(told.addresses),
    )
