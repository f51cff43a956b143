"""Odd network interfaces beside the good one: a node starts, and uses none that leads nowhere."""

from __future__ import annotations

import pytest

from tests.net.conftest import Space
from tests.net.device import Device, pace
from tests.net.lan import Host
from tests.net.meeting import equal, linked, networking

# Not run often enough beside other work to stand in CI.
pytestmark = [pytest.mark.root, pytest.mark.timeout(300), pytest.mark.soak]


def clutter(host: Host) -> None:
    """What a machine with containers, a VPN and a second card has, most of it leading nowhere."""
    host.ip("link", "add", "br0", "type", "bridge")  # no carrier: no port is in it
    host.ip("addr", "add", "172.17.0.1/16", "dev", "br0")
    host.ip("link", "set", "br0", "up")
    host.ip("link", "add", "bare", "type", "veth", "peer", "name", "bare-end")  # up, without an address
    host.ip("link", "set", "bare", "up")
    host.ip("link", "set", "bare-end", "up")
    host.ip("link", "add", "idle", "type", "veth", "peer", "name", "idle-end")  # an address, and switched off
    host.ip("addr", "add", "192.168.7.1/24", "dev", "idle")
    host.ip("tuntap", "add", "tun0", "mode", "tun")  # a tunnel to nobody
    host.ip("addr", "add", "10.8.0.5/32", "dev", "tun0")
    host.ip("link", "set", "tun0", "up")
    host.ip("link", "add", "six", "type", "veth", "peer", "name", "six-end")  # an IPv6 network with nobody else in it
    host.ip("addr", "add", f"fd00:{host.name[1:]}::1/64", "dev", "six", "nodad")
    host.ip("link", "set", "six", "up")
    host.ip("link", "set", "six-end", "up")


def test_a_node_among_dead_and_odd_interfaces_links_over_the_good_one(space: Space) -> None:
    """N01: it starts, warns at most, offers no address of a dead or containers' interface, and works."""
    h1, h2 = devices = space(2)
    for device in devices:
        clutter(device.host)
    ready = h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=30 * pace(), path="webrtc")
    told = {address.rpartition(":")[0] for address in ready["addresses"]}
    assert h1.host.address in told
    assert told.isdisjoint({"172.17.0.1", "192.168.7.1"})
    for device, other in ((h1, h2), (h2, h1)):
        network = networking(device)
        assert [each["address"][0] for each in network["peers"]] == [other.host.address]
        assert network["interfaces"][0]["name"] == "eth0"
        assert {each["name"] for each in network["interfaces"]}.isdisjoint({"br0", "idle", "bare", "tun0"})
        assert "Traceback" not in device.words()
    job = h1("enqueue", "echo", "text=through", "--wait", "--wait-timeout", "60")
    assert (job["result"], job["worker_label"]) == ("through", "h2")
    equal(devices, within=20 * pace())


def test_interfaces_that_come_and_go_cost_no_link(space: Space) -> None:
    """N01: a container engine that starts and stops while the node runs."""
    h1, h2 = devices = space(2)
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=30 * pace(), path="webrtc")
    since = links_since(h1)
    for _ in range(2):
        clutter(h1.host)
        assert h1("enqueue", "echo", "text=more", "--wait", "--wait-timeout", "60")["result"] == "more"
        for name in ("br0", "bare", "idle", "six"):
            h1.host.ip("link", "del", name)
        h1.host.ip("tuntap", "del", "tun0", "mode", "tun")
        assert h1("enqueue", "echo", "text=fewer", "--wait", "--wait-timeout", "60")["result"] == "fewer"
    assert links_since(h1) >= since
    equal(devices, within=20 * pace())


def links_since(device: Device) -> float:
    """For how many seconds its one link has stood."""
    since: float = networking(device)["peers"][0]["since"]
    return since
