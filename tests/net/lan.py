"""A real network on one machine: hosts on a bridge, with cables that can be pulled.

Every host is a Linux network namespace with an `eth0` of its own, the end of a veth pair. The other ends are the ports
of a bridge in one more namespace, so that nothing is ever changed on the machine's own network. All of it, and every
process inside, is removed when the `with` ends::

    with Lan() as lan:
        h1, h2 = lan.add("h1"), lan.add("h2")     # 10.77.0.1/24 and 10.77.0.2/24
        h1.run("ping", h2.address)                # waits, raises CalledProcessError with what it said
        node = h1.start("p2pqueue", "run")        # a Popen, killed with the LAN
        h2.cut()                                  # pulls the cable: h2 sees its carrier go
        h2.cut(silent=True)                       # the switch forgets h2: packets vanish, nobody is told
        h2.mend()
        h2.readdress("10.77.0.9/24")              # the lease of the old address has ended
        h2.block_udp(but=(5353,))                 # "to", "from" or "both" ways; UDP except mDNS is dropped
        h2.block_tcp(7433)                        # nothing reaches that port of h2; connections that h2 opened stand
        h2.unblock()
        h2.narrow(1200)                           # the path eats larger packets and tells nobody
        h2.ip("link", "set", "lo", "down")        # anything else that `ip` does inside the host
        h2.unplug(); h2.plug("10.77.0.2/24")      # takes `eth0` away, as a removed USB card; puts one in again
        far.join(h1, "10.78.0.1/24")              # h1 has an `eth1` in another `Lan` as well, and passes packets on
        h2.move(far, "10.78.0.2/24", by="10.78.0.1")   # h2 lives there from now on, and reaches all else by h1

Needs root, Linux and iproute2; `obstacle()` says what is missing. The fixture `lan` skips with that reason.
`Lan` sweeps away what a killed run left behind.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from typing import Any, Literal

PREFIX = "p2pq-test"
SUBNET = ipaddress.ip_network("10.77.0.0/24")
_COMMAND_LIMIT = 60.0  # seconds: a busy machine starts a Python program in ten
_numbers = itertools.count(1)


def ip(*arguments: str) -> str:
    """Runs `ip` and returns what it printed; raises `RuntimeError` with its words."""
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@functools.cache
def obstacle() -> str | None:
    """Why no LAN can be made here, in words; `None` where it can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "the commands ip and tc (iproute2) are missing"
    try:
        with Lan() as lan:
            lan.add("probe")
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"this machine makes no network namespaces: {error}"
    return None


class Lan:
    """A bridge and its hosts."""

    def __init__(self) -> None:
        self.name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Lan:
        _sweep()
        try:
            ip("netns", "add", self.name)
            ip("-n", self.name, "link", "set", "lo", "up")
            # Without snooping every port gets all multicast, and without a delay a port forwards at once, as cheap switches do.
            ip("-n", self.name, "link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
            ip("-n", self.name, "link", "set", "br0", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, name: str, address: str | None = None) -> Host:
        """A further host; its address is the next free one of 10.77.0.0/24, or the one given (`HOST/PREFIX`)."""
        host = Host(self, name)
        self.hosts[name] = host
        ip("netns", "add", host.namespace)
        host.ip("link", "set", "lo", "up")
        host.plug(address or f"{SUBNET[len(self.hosts)]}/{SUBNET.prefixlen}")
        return host

    def join(self, router: Host, address: str) -> None:
        """Puts a second card, `eth1`, into a host of another LAN; it is the router between the two then."""
        port = f"to-{router.name}"[:15]
        ip("-n", self.name, "link", "add", port, "type", "veth", "peer", "name", "eth1", "netns", router.namespace)
        ip("-n", self.name, "link", "set", port, "master", "br0", "up")
        router.ip("link", "set", "eth1", "up")
        router.ip("addr", "add", address, "dev", "eth1")
        router.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def close(self) -> None:
        """Kills what runs inside and removes everything."""
        for host in self.hosts.values():
            host.kill_all()
        for namespace in [*(host.namespace for host in self.hosts.values()), self.name]:
            _remove(namespace)
        self.hosts.clear()


class Host:
    """One host of a LAN. `address` is the one that it has now, without the prefix length."""

    def __init__(self, lan: Lan, name: str) -> None:
        self.lan = lan
        self.name = name
        self.namespace = f"{lan.name}-{name}"
        self.address = ""
        self.processes: list[subprocess.Popen[Any]] = []
        self._port = f"to-{name}"[:15]  # the bridge's end of the cable
        self._mac = f"02:70:32:70:71:{len(lan.hosts) + 1:02x}"  # a card that is put in again is the same card

    # -- what runs there ----------------------------------------------------------------------------------------

    def command(self, *command: str) -> list[str]:
        """The command line that runs a command inside the host."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def run(self, *command: str, timeout: float = _COMMAND_LIMIT, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; what it prints is in the result."""
        options = {"capture_output": True, "text": True} | options
        return subprocess.run(self.command(*command), timeout=timeout, check=check, **options)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        """Starts a command; its pid is that of the command itself, so signals reach it."""
        process = subprocess.Popen(self.command(*command), **options)
        self.processes.append(process)
        return process

    def kill_all(self) -> None:
        """Kills every process inside, the children of children too."""
        with contextlib.suppress(RuntimeError):
            for pid in ip("netns", "pids", self.namespace).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.kill()
            process.wait(_COMMAND_LIMIT)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        self.processes.clear()

    # -- its network --------------------------------------------------------------------------------------------

    def ip(self, *arguments: str) -> str:
        """Runs `ip` on the host's own interfaces."""
        return ip("-n", self.namespace, *arguments)

    def plug(self, address: str | None) -> None:
        """Puts a network card in, with a cable to the bridge."""
        self._lan_ip("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "address", self._mac, "netns", self.namespace)
        self._lan_ip("link", "set", self._port, "master", "br0", "up")
        self.ip("link", "set", "eth0", "up")
        if address is not None:
            self._take(address)

    def unplug(self) -> None:
        """Takes the network card out."""
        self.ip("link", "del", "eth0")

    def move(self, lan: Lan, address: str, *, by: str) -> None:
        """Takes the host to another LAN; `by` is the router there."""
        self.unplug()
        self.lan = lan
        self.plug(address)
        self.ip("route", "add", "default", "via", by)

    def cut(self, *, silent: bool = False) -> None:
        """Pulls the cable, and the carrier goes; or, silently, lets every packet vanish while the carrier stays."""
        self._lan_ip("link", "set", self._port, *(["nomaster"] if silent else ["down"]))

    def mend(self) -> None:
        """Puts the cable back, however it was cut."""
        self._lan_ip("link", "set", self._port, "master", "br0", "up")

    def readdress(self, address: str) -> None:
        """Gives it another address, `HOST/PREFIX`, in place of all that it has."""
        self.ip("-4", "addr", "flush", "dev", "eth0", "scope", "global")
        self._take(address)

    def narrow(self, mtu: int | None) -> None:
        """Lets packets beyond `mtu` bytes vanish on the way, both ways and untold, as a broken tunnel does; `None` ends it."""
        self._lan_ip("link", "set", self._port, "mtu", str(mtu or 1500))

    def block_udp(self, way: Literal["to", "from", "both"] = "both", *, but: Collection[int] = (5353,)) -> None:
        """Drops UDP to the host, from it, or both, except that to the given ports."""
        self.unblock()
        self._tc("qdisc", "add", "dev", self._port, "clsact")
        # What comes in at the bridge's end of the cable was sent by the host.
        hooks = {"to": ["egress"], "from": ["ingress"], "both": ["ingress", "egress"]}[way]
        for hook, (family, match) in itertools.product(hooks, (("ip", "ip"), ("ipv6", "ip6"))):
            where = ("filter", "add", "dev", self._port, hook, "protocol", family)
            first = 1 if family == "ip" else 101
            for priority, port in enumerate(but, first):
                ports = ("match", match, "protocol", "17", "0xff", "match", match, "dport", str(port), "0xffff")
                self._tc(*where, "prio", str(priority), "u32", *ports, "flowid", "1:1")
            self._tc(*where, "prio", str(first + 99), "u32", "match", match, "protocol", "17", "0xff", *self._dropping())

    def block_tcp(self, port: int) -> None:
        """Drops what is sent to a TCP port of the host."""
        self.unblock()
        self._tc("qdisc", "add", "dev", self._port, "clsact")
        match = ("match", "ip", "protocol", "6", "0xff", "match", "ip", "dport", str(port), "0xffff")
        self._tc("filter", "add", "dev", self._port, "egress", "protocol", "ip", "prio", "1", "u32", *match, *self._dropping())

    def unblock(self) -> None:
        """Lets UDP and TCP pass again."""
        with contextlib.suppress(RuntimeError):
            self._tc("qdisc", "del", "dev", self._port, "clsact")

    def _dropping(self) -> tuple[str, ...]:
        """The action that drops a packet: sent to a card that is down, which kernels without act_gact can do as well."""
        with contextlib.suppress(RuntimeError):
            self._lan_ip("link", "add", "sink", "type", "veth", "peer", "name", "sink-end")
        return ("action", "mirred", "egress", "redirect", "dev", "sink")

    def _take(self, address: str) -> None:
        self.ip("addr", "add", address, "dev", "eth0")
        self.address = address.partition("/")[0]

    def _lan_ip(self, *arguments: str) -> str:
        return ip("-n", self.lan.name, *arguments)

    def _tc(self, *arguments: str) -> str:
        return _run("tc", "-n", self.lan.name, *arguments)


def _remove(namespace: str) -> None:
    for _ in range(50):
        with contextlib.suppress(RuntimeError):
            ip("netns", "del", namespace)
        if namespace not in ip("netns", "list").split():
            return
        time.sleep(0.05)
    raise RuntimeError(f"the network namespace {namespace} can't be removed")


def _sweep() -> None:
    """Removes the namespaces of test runs that are no more."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0] if line.strip() else ""
        pid = name.removeprefix(f"{PREFIX}-").partition("-")[0]
        if name.startswith(f"{PREFIX}-") and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            for inside in ip("netns", "pids", name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(inside), signal.SIGKILL)
            _remove(name)
