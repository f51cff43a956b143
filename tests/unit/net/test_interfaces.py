"""The interfaces by which peers can be reached are chosen, and a change or a sleep is noticed."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.net.interfaces import Clocks, Interface, InterfaceWatch, Kind, choose, current, is_local, kind_of, read_clocks, slept


def make(name: str, *addresses: str, index: int = 1, up: bool = True, kind: Kind = "ordinary") -> Interface:
    return Interface(name, tuple(ipaddress.ip_interface(address) for address in addresses), index, up, kind)


LO = make("lo", "127.0.0.1/8", "::1/128", kind="loopback")
ETH = make("eth0", "192.168.1.5/24", "fd00::5/64", "fe80::5/64", index=2)
LEFT_OUT = [
    (LO, "nobody else can reach it"),
    (make("docker0", "172.17.0.1/16", kind="docker"), "only containers are behind it"),
    (make("br0", "10.0.0.1/24", kind="bridge"), "only containers are behind it"),
    (make("veth1", "10.0.0.1/24", kind="veth-host"), "it is a port of a bridge"),
    (make("vboxnet0", "192.168.56.1/24", kind="virtual"), "only virtual machines are behind it"),
    (make("eth1", "10.0.0.1/24", up=False), "it is down, or has no carrier"),
    (make("eth1"), "it has no address"),
    (make("eth1", "169.254.3.4/16", "fe80::1/64"), "its addresses lead nowhere beyond it"),
]


@pytest.mark.parametrize(("interface", "why"), LEFT_OUT, ids=[why for _, why in LEFT_OUT])
def test_an_interface_is_left_out_because(interface: Interface, why: str) -> None:
    assert [chosen.name for chosen in choose([interface, ETH])] == ["eth0"], why


def test_a_chosen_interface_keeps_the_addresses_that_others_can_dial() -> None:
    assert [str(address.ip) for address in choose([ETH])[0].addresses] == ["192.168.1.5", "fd00::5"]


def test_a_network_card_comes_before_a_tunnel() -> None:
    tunnel = make("wg0", "10.9.0.1/32", kind="tunnel", index=1)
    assert [interface.name for interface in choose([tunnel, ETH])] == ["eth0", "wg0"]


@pytest.mark.parametrize("wanted", ["docker0", "172.17.0.1"], ids=["its name", "an address of it"])
def test_what_is_asked_for_replaces_the_rule(wanted: str) -> None:
    docker = make("docker0", "172.17.0.1/16", kind="docker", index=3)
    assert choose([LO, ETH, docker], [wanted]) == (docker,)


def test_the_loopback_has_one_name_on_every_system_and_only_ipv4() -> None:
    named_otherwise = make("Loopback Pseudo-Interface 1", "127.0.0.1/8", "::1/128", kind="loopback")
    (chosen,) = choose([named_otherwise, ETH], ["lo"])
    assert [str(address) for address in chosen.addresses] == ["127.0.0.1/8"]


def test_a_link_with_only_its_own_addresses_can_be_asked_for() -> None:
    cable = make("eth1", "169.254.3.4/16")
    assert choose([cable], ["eth1"]) == (cable,)


def test_an_interface_that_is_asked_for_but_not_there_is_replaced_by_none() -> None:
    assert choose([ETH], ["eth7"]) == ()


@given(st.lists(st.sampled_from([LO, ETH, *(interface for interface, _ in LEFT_OUT)]), max_size=12))
def test_only_what_is_there_is_ever_chosen(interfaces: list[Interface]) -> None:
    assert {interface.name for interface in choose(interfaces)} <= {interface.name for interface in interfaces if interface.up}


@pytest.mark.parametrize(
    ("host", "local"),
    [("192.168.1.77", True), ("192.168.2.77", False), ("fd00::9", True), ("fd01::9", False), ("somewhere.example", False), ("", False)],
)
def test_an_address_is_local_where_a_chosen_subnet_holds_it(host: str, local: bool) -> None:
    assert is_local(host, choose([ETH])) is local


def test_this_machine_tells_its_loopback() -> None:
    loopbacks = [interface for interface in current() if interface.kind == "loopback"]
    assert any(address.ip.is_loopback for interface in loopbacks for address in interface.addresses)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("docker0", "docker"), ("br-0123456789ab", "docker"), ("virbr0", "virtual"), ("utun3", "tunnel"), ("tailscale0", "tunnel"),
        ("vEthernet (WSL (Hyper-V firewall))", "virtual"), ("vEthernet (External)", "ordinary"), ("bridge100", "bridge"),
        ("eth0", "ordinary"), ("wlp3s0", "ordinary"), ("en0", "ordinary"), ("br-lan", "ordinary"),
    ],
)  # fmt: skip
def test_a_name_tells_the_kind_where_the_system_tells_nothing(name: str, kind: Kind, tmp_path: Path) -> None:
    assert kind_of(name, 7, sys=tmp_path) == kind


SYS: list[tuple[str, Sequence[str], Kind, str]] = [
    ("br0", ["br0/bridge/", "br0/brif/veth1", "veth1/"], "bridge", "a bridge for containers alone"),
    ("br0", ["br0/bridge/", "br0/brif/eth9", "eth9/device/"], "ordinary", "a bridge over the network card, which has the host's address"),
    ("x1", ["x1/master"], "veth-host", "a port of a bridge"),
    ("eth9", ["eth9/master", "eth9/device/"], "ordinary", "a network card in a bridge"),
    ("x1", ["x1/tun_flags"], "tunnel", "a tunnel"),
    ("x1", ["x1/device/"], "ordinary", "a network card"),
]


@pytest.mark.parametrize(("name", "entries", "kind", "why"), SYS, ids=[why for *_, why in SYS])
def test_linux_tells_the_kind(name: str, entries: Sequence[str], kind: Kind, why: str, tmp_path: Path) -> None:
    for entry in [*entries, f"{name}/"]:
        path = tmp_path / entry
        path.mkdir(parents=True, exist_ok=True) if entry.endswith("/") else (path.parent.mkdir(parents=True, exist_ok=True), path.touch())
    (tmp_path / name / "ifindex").write_text("7\n")
    assert kind_of(name, 7, sys=tmp_path) == kind, why


def test_what_linux_tells_of_another_namespace_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "x1" / "bridge").mkdir(parents=True)
    (tmp_path / "x1" / "ifindex").write_text("8\n")
    assert kind_of("x1", 7, sys=tmp_path) == "ordinary"


@pytest.mark.parametrize(
    ("after", "asleep", "why"),
    [
        (Clocks(102.0, 1002.0), False, "the look came in time"),
        (Clocks(105.0, 1005.0), False, "a busy machine is late"),
        (Clocks(102.0, 1600.0), True, "the machine slept while the process's clock stood still"),
        (Clocks(700.0, 1600.0), True, "the process was stopped"),
        (Clocks(102.0, 400.0), False, "the wall clock was set back"),
    ],
)
def test_a_sleep_shows_in_the_clocks(after: Clocks, asleep: bool, why: str) -> None:
    assert slept(Clocks(100.0, 1000.0), after, expected=2.0) is asleep, why


def test_two_readings_in_a_row_show_no_sleep() -> None:
    assert not slept(read_clocks(), read_clocks(), expected=0.0)


class Machine:
    """Interfaces and clocks that a test moves."""

    def __init__(self) -> None:
        self.interfaces = [ETH]
        self.now = Clocks(0.0, 0.0)

    def watch(self, every: float = 0.01) -> InterfaceWatch:
        return InterfaceWatch(every=every, read=lambda: self.interfaces, clocks=self.step)

    def step(self) -> Clocks:
        self.now = Clocks(self.now.awake + 0.01, self.now.always + 0.01)
        return self.now


async def test_a_later_interface_is_told_to_everybody_who_follows() -> None:
    machine = Machine()
    watch = machine.watch()
    first, second = watch.changes(), watch.changes()
    machine.interfaces = [ETH, make("eth1", "10.0.0.1/24", index=3)]
    for changes in (first, second):
        change = await anext(changes)
        assert [interface.name for interface in change.chosen] == ["eth0", "eth1"]
        assert not change.woke
    assert watch.chosen == change.chosen


async def test_a_change_before_the_first_wait_is_not_missed() -> None:
    machine = Machine()
    watch = machine.watch()
    changes = watch.changes()
    machine.interfaces = []
    watch.look()
    assert (await anext(changes)).chosen == ()


async def test_a_sleep_is_told_though_no_interface_changed() -> None:
    machine = Machine()
    changes = machine.watch().changes()
    machine.now = Clocks(machine.now.awake, 28_800.0)
    change = await anext(changes)
    assert change.woke
    assert change.chosen == choose([ETH])


async def test_an_interface_that_comes_back_under_another_index_is_a_change() -> None:
    machine = Machine()
    changes = machine.watch().changes()
    machine.interfaces = [make("eth0", "192.168.1.5/24", index=9)]
    assert (await anext(changes)).chosen[0].index == 9


async def test_nothing_is_told_while_nothing_changes() -> None:
    changes = Machine().watch().changes()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await anext(changes)
