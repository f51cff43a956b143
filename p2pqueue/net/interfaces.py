"""Which network interfaces does a node use, and when do they change?

`current` reads what the machine has, `choose` (pure) takes those by which peers can be reached, and `InterfaceWatch`
tells when that choice changes, and when the machine woke from sleep.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Literal

import ifaddr
import psutil

Kind = Literal["ordinary", "loopback", "bridge", "docker", "veth-host", "virtual", "tunnel"]
Address = IPv4Interface | IPv6Interface

POLL_EVERY = 2.0  # seconds between two looks at the interfaces
STOOD_STILL = 5.0  # seconds by which a look may be late, or a clock ahead, before it counts as sleep: no busy machine is that late

_CHOSEN_KINDS: tuple[Kind, ...] = ("ordinary", "tunnel")  # in this order; a tunnel rarely carries multicast
_SYS = Path("/sys/class/net")
_NAMES: tuple[tuple[Kind, str], ...] = (  # where the system doesn't tell, the name does
    ("docker", r"docker\d*|br-[0-9a-f]{12}|cni\d*|cni-.+|flannel.*|podman\d*|lxc(br)?\d+|lxdbr\d+|cali.+|nerdctl\d+"),
    ("virtual", r"virbr\d+(-nic)?|vmnet\d+|vboxnet\d+|VirtualBox.*|VMware.*|vEthernet \((WSL|Default Switch|nat).*"),
    ("bridge", r"bridge\d+"),
    ("veth-host", r"vnet\d+|vmenet\d+"),
    ("tunnel", r"u?tun\d*|wg.*|tailscale\d*|zt.{8,}|ppp\d+|ipsec\d+|gif\d+|stf\d+|sit\d+|nordlynx|proton\d+"),
)


@dataclass(frozen=True)
class Interface:
    """One network interface. `up` says that it is switched on and has a carrier."""

    name: str
    addresses: tuple[Address, ...]
    index: int
    up: bool
    kind: Kind
    mtu: int = 0  # bytes; 0 where the system doesn't tell

    @property
    def networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """The subnets that its addresses lie in."""
        return tuple(address.network for address in self.addresses)


@dataclass(frozen=True)
class Change:
    """What an `InterfaceWatch` tells: the choice from now on, and whether the machine slept before."""

    chosen: tuple[Interface, ...]
    woke: bool


def choose(interfaces: Sequence[Interface], wanted: Sequence[str] = ()) -> tuple[Interface, ...]:
    """The interfaces by which peers may be reached, the best first, each with those of its addresses that are of use.

    `wanted` holds names or addresses and replaces the rule: then exactly those are taken, whatever kind they are, and
    `lo` stands for the loopback with its IPv4 addresses. Left out are always those without carrier or address.
    """
    usable = [interface for interface in interfaces if interface.up and interface.addresses]
    if wanted:
        return tuple(_wanted(interface) for interface in usable if _is_wanted(interface, wanted))
    ordinary = [interface for interface in map(_routable, usable) if interface.addresses and interface.kind in _CHOSEN_KINDS]
    return tuple(sorted(ordinary, key=lambda interface: (_CHOSEN_KINDS.index(interface.kind), interface.index)))


def is_local(host: str, interfaces: Iterable[Interface]) -> bool:
    """Says whether an address lies in a subnet of one of the interfaces, so that no router stands between."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for interface in interfaces for network in interface.networks)


def _is_wanted(interface: Interface, wanted: Sequence[str]) -> bool:
    names = {interface.name, *(str(address.ip) for address in interface.addresses)}
    if interface.kind == "loopback":
        names.add("lo")  # whatever the system calls it
    return not names.isdisjoint(wanted)


def _wanted(interface: Interface) -> Interface:
    if interface.kind == "loopback":
        return replace(interface, addresses=tuple(address for address in interface.addresses if address.version == 4))
    routable = _routable(interface)
    return routable if routable.addresses else interface


def _routable(interface: Interface) -> Interface:
    return replace(interface, addresses=tuple(address for address in interface.addresses if not address.ip.is_link_local))


def current() -> tuple[Interface, ...]:
    """What the machine has now, by index. Empty where the system refuses to tell; never raises."""
    try:
        adapters = list(ifaddr.get_adapters())
    except (OSError, ValueError):
        return ()
    try:
        states = {name: (stats.isup, stats.flags, stats.mtu) for name, stats in psutil.net_if_stats().items()}
    except OSError:
        states = {}
    names = _windows_names() if os.name == "nt" else {}
    found = []
    for adapter in adapters:
        name, index = next((names[ip.ip] for ip in adapter.ips if ip.ip in names), str(adapter.nice_name)), adapter.index or 0
        up, flags, mtu = states.get(name, (True, "", 0))
        addresses = tuple(address for ip in adapter.ips if (address := _address(ip)) is not None)
        kind = kind_of(name, index, loopback="loopback" in flags or any(address.ip.is_loopback for address in addresses))
        found.append(Interface(name, addresses, index, up, kind, mtu))
    return tuple(sorted(found, key=lambda interface: (interface.index, interface.name)))


def _windows_names() -> dict[object, str]:
    """The names that people know there, by IPv4 address; ifaddr tells the model of the card."""
    try:
        return {address.address: name for name, addresses in psutil.net_if_addrs().items() for address in addresses}
    except OSError:
        return {}


def _address(ip: ifaddr.IP) -> Address | None:
    try:
        text = ip.ip if isinstance(ip.ip, str) else ip.ip[0].partition("%")[0]
        return ipaddress.ip_interface(f"{text}/{ip.network_prefix}")
    except ValueError:
        return None


def kind_of(name: str, index: int, *, loopback: bool = False, sys: Path = _SYS) -> Kind:
    """What an interface is, by its name and by what Linux says of it in `/sys/class/net`."""
    if loopback:
        return "loopback"
    told = next((kind for kind, names in _NAMES if re.fullmatch(names, name)), None)
    return told or _kind_by_sys(sys, name, index)


def _kind_by_sys(sys: Path, name: str, index: int) -> Kind:
    folder = sys / name
    try:
        if int((folder / "ifindex").read_text()) != index:
            return "ordinary"  # /sys shows another network namespace
        if (folder / "master").exists():
            return "ordinary" if (folder / "device").exists() else "veth-host"
        if (folder / "tun_flags").exists():
            return "tunnel"
        if (folder / "bridge").is_dir():  # a bridge over the network card has the address of the host itself
            return "ordinary" if any((sys / port.name / "device").exists() for port in (folder / "brif").iterdir()) else "bridge"
    except (OSError, ValueError):
        pass  # no Linux, or it went away meanwhile
    return "ordinary"


@dataclass(frozen=True)
class Clocks:
    """Readings, in seconds, of a clock that stands still during sleep, and of one that goes on."""

    awake: float
    always: float


def read_clocks() -> Clocks:
    """The clocks of this machine; where none goes on during sleep, wall time does (setting it counts as sleep then)."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)  # of Linux
    return Clocks(time.monotonic(), time.time() if boottime is None else time.clock_gettime(boottime))


def slept(before: Clocks, after: Clocks, *, expected: float) -> bool:
    """Says whether the machine slept, or the process stood still, between two readings meant to be `expected` apart."""
    awake, always = after.awake - before.awake, after.always - before.always
    return awake > expected + STOOD_STILL or always - awake > STOOD_STILL


class InterfaceWatch:
    """Looks at the interfaces every two seconds for whoever iterates over `changes`.

    :param wanted: what `choose` is asked for.
    :param read: reads the interfaces; tests give their own.
    """

    def __init__(
        self,
        wanted: Sequence[str] = (),
        *,
        every: float = POLL_EVERY,
        read: Callable[[], Sequence[Interface]] = current,
        clocks: Callable[[], Clocks] = read_clocks,
    ) -> None:
        self.wanted = tuple(wanted)
        self.chosen: tuple[Interface, ...] = choose(read(), self.wanted)
        self._every = every
        self._read = read
        self._clocks = clocks
        self._looked = clocks()
        self._version = 0
        self._wakes = 0

    def look(self) -> None:
        """Looks now; several who follow the changes share one look."""
        now = self._clocks()
        if slept(self._looked, now, expected=self._every):
            self._wakes += 1
            self._version += 1
        elif now.awake - self._looked.awake < self._every / 2:
            return
        self._looked = now
        chosen = choose(self._read(), self.wanted)
        if chosen != self.chosen:
            self.chosen = chosen
            self._version += 1

    def changes(self) -> AsyncIterator[Change]:
        """What changes from this call on; a change that comes while nobody waits is told with the next."""
        return self._follow(self._version, self._wakes)

    async def _follow(self, version: int, wakes: int) -> AsyncIterator[Change]:
        while True:
            await asyncio.sleep(self._every)
            self.look()
            if self._version != version:
                change = Change(self.chosen, woke=self._wakes != wakes)
                version, wakes = self._version, self._wakes
                yield change
