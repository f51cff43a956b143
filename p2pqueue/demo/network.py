"""On which network does the demo play: on hosts of its own, whose cables can be pulled, or on this machine's loopback?

A host is a Linux network namespace with an `eth0`, whose cable leads to a bridge in the namespace of the demo itself.
None of the namespaces has a name: each is there as long as a process is in it, and so nothing of them can be left behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal, Protocol

Kind = Literal["namespaces", "lo"]

WORDS: dict[Kind, str] = {
    "namespaces": "three hosts of their own (network namespaces on a bridge), whose cables are really pulled",
    "lo": "on the loopback interface of this machine; instead of pulling a cable, `p2pqueue offline`",
}
LIMIT = 20.0  # seconds for one command that changes the network; it takes some milliseconds
_WAYS_IN = (  # as root, and as anybody where the system lets everybody have namespaces
    ("--net", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"),
    ("--user", "--map-root-user", "--net", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"),
)
_PROBE = (  # all kinds of what is made later
    "ip link add br0 type bridge forward_delay 0 mcast_snooping 0 && ip link set br0 up && "
    "ip link add to-probe type veth peer name eth0 && ip link set to-probe master br0 up && unshare --net true"
)
_TOOLS = os.pathsep.join(["/usr/sbin", "/sbin", "/usr/bin", "/bin"])  # on the PATH of few users stand the first two


class NetworkFailed(Exception):
    """The network of the demo could not be made or changed."""


class Network(Protocol):
    """Where devices are, as hosts of these names."""

    kind: Kind

    def add(self, name: str) -> None:
        """A further host."""

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """What runs a command on that host."""

    def settings(self, name: str) -> dict[str, str]:
        """Variables of the environment that a device needs there."""

    def cut(self, name: str) -> bool:
        """Pulls the cable of a host; says whether there is one."""

    def mend(self, name: str) -> bool:
        """Puts the cable back; says whether there is one."""

    def close(self) -> None:
        """Ends it."""


def way_in() -> list[str] | None:
    """The command that runs another one inside a network namespace of its own, with leave to change it; None: there is none here."""
    if sys.platform != "linux" or not all(_tool(name) for name in ("unshare", "nsenter", "ip")):
        return None
    for flags in _WAYS_IN:
        command = [_tool("unshare") or "", *flags, "--"]
        try:
            probe = subprocess.run([*command, "/bin/sh", "-c", _PROBE], capture_output=True, env=_environment(), timeout=LIMIT, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
        if probe.returncode == 0:
            return command
    return None


def network_of(kind: Kind) -> Network:
    """The network of a kind; hosts are made only inside of `way_in`. Raises `NetworkFailed`."""
    return Hosts() if kind == "namespaces" else Loopback()


class Loopback:
    """All devices on 127.0.0.0/8: mDNS, ICE and everything else."""

    kind: Kind = "lo"

    def add(self, name: str) -> None:
        """Nothing has to be made."""

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """The command itself."""
        return list(words)

    def settings(self, name: str) -> dict[str, str]:
        """Keeps everything on this machine."""
        return {"P2PQUEUE_INTERFACES": "lo"}

    def cut(self, name: str) -> bool:
        """There is no cable."""
        return False

    def mend(self, name: str) -> bool:
        """There is no cable."""
        return False

    def close(self) -> None:
        """Nothing was made."""


class Hosts:
    """Network namespaces on a bridge."""

    kind: Kind = "namespaces"

    def __init__(self) -> None:
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        _run("ip", "link", "set", "lo", "up")
        # Without snooping every port gets all multicast, and without a delay a port forwards at once, as cheap switches do.
        _run("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        _run("ip", "link", "set", "br0", "up")

    def add(self, name: str) -> None:
        """A namespace, held by a process that does nothing, and its cable to the bridge."""
        holder = subprocess.Popen(
            [_tool("unshare") or "unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()
        )  # fmt: skip
        self._holders[name] = holder
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        holder.stdout.readline()  # it is inside
        inside, port = str(holder.pid), f"to-{name}"
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", inside)
        _run("ip", "link", "set", port, "master", "br0", "up")
        for words in (
            ("link", "set", "lo", "up"), ("addr", "add", f"10.77.0.{len(self._holders)}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
        ):  # fmt: skip
            _run(*self.command(name, ("ip", *words)))

    def command(self, name: str, words: Sequence[str]) -> list[str]:
        """The command inside the namespace; its process is that of the command itself, so that signals reach it."""
        return [_tool("nsenter") or "nsenter", f"--target={self._holders[name].pid}", "--net", "--", *words]

    def settings(self, name: str) -> dict[str, str]:
        """A host is like any other."""
        return {}

    def cut(self, name: str) -> bool:
        """Pulls the cable: the host sees its carrier go."""
        _run("ip", "link", "set", f"to-{name}", "down")
        return True

    def mend(self, name: str) -> bool:
        """Puts it back."""
        _run("ip", "link", "set", f"to-{name}", "up")
        return True

    def close(self) -> None:
        """Lets the namespaces go; those of processes that are still inside go with these."""
        for holder in self._holders.values():
            holder.kill()
            holder.communicate()
        self._holders.clear()


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=_environment(), timeout=LIMIT, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise NetworkFailed(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise NetworkFailed(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def _tool(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_TOOLS)


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", ""), _TOOLS]), "LC_ALL": "C"}
