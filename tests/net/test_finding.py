"""Devices of a LAN find one another by real multicast, whatever happens to the network meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.net.lan import Host, Lan
from tests.net.seekers import Seeker

pytestmark = pytest.mark.root

FOUND_WITHIN = 3.0  # seconds, from the start of the later one
HOLD_5353 = "import socket,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('',5353)); print(flush=True); time.sleep({})"


def two(lan: Lan) -> tuple[Host, Host, Seeker, Seeker]:
    """Two hosts whose devices have found one another."""
    h1, h2 = lan.add("h1"), lan.add("h2")
    first, second = Seeker(h1), Seeker(h2)
    first.sighting(h2.address)
    second.sighting(h1.address)
    return h1, h2, first, second


def hold_port(host: Host, seconds: float) -> subprocess.Popen[str]:
    """Takes the port of mDNS as a program does that shares it with nobody."""
    holder = host.start(sys.executable, "-c", HOLD_5353.format(seconds), stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


def test_two_that_start_together_find_one_another_in_three_seconds(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    first, second = Seeker(h1), Seeker(h2)
    began = max(first.wait("started")["at"], second.wait("started")["at"])
    assert first.sighting(h2.address)["at"] - began < FOUND_WITHIN
    assert second.sighting(h1.address)["at"] - began < FOUND_WITHIN
    for seeker in (first, second):
        seeker.close()
        assert seeker.warnings() == []


def test_one_that_starts_later_finds_and_is_found_in_three_seconds(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    first = Seeker(h1)
    first.wait("started")
    first.silence("sighting", seconds=1.5)
    second = Seeker(h2)
    began = second.wait("started")["at"]
    assert second.sighting(h1.address)["at"] - began < FOUND_WITHIN
    assert first.sighting(h2.address)["at"] - began < FOUND_WITHIN


def test_another_space_on_the_same_lan_is_seen_as_such(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    first, stranger = Seeker(h1), Seeker(h2, "--space", "theirs")
    assert first.wait("sighting")["ours"] is False
    assert stranger.wait("sighting")["ours"] is False


def test_an_interface_that_comes_later_is_used(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    h2.unplug()
    first, second = Seeker(h1), Seeker(h2)
    assert second.wait("started")["chosen"] == []
    first.wait("started")
    h2.plug("10.77.0.2/24")
    first.sighting("10.77.0.2")
    second.sighting(h1.address)
    assert second.warnings() == []


def test_a_further_interface_is_announced_as_well(lan: Lan) -> None:
    _, h2, first, _ = two(lan)
    h2.ip("link", "add", "eth1", "type", "veth", "peer", "name", "elsewhere")
    h2.ip("link", "set", "elsewhere", "up")
    h2.ip("link", "set", "eth1", "up")
    h2.ip("addr", "add", "10.99.0.1/24", "dev", "eth1")
    # Whose subnet isn't ours comes last; the free end of that cable has no address and is left out.
    first.sighting(h2.address, "10.99.0.1")


def test_a_changed_address_replaces_the_old_one(lan: Lan) -> None:
    _, h2, first, second = two(lan)
    h2.readdress("10.77.0.9/24")
    first.sighting("10.77.0.9")
    h2.readdress("10.77.0.10/24")
    first.sighting("10.77.0.10")
    assert second.warnings() == []


def test_a_card_that_was_taken_out_and_put_in_again_hears_again(lan: Lan) -> None:
    _, h2, first, second = two(lan)
    h2.unplug()
    h2.plug(f"{h2.address}/24")
    time.sleep(4.5)  # two looks at the interfaces: nothing would tell of a card that came back deaf
    third = Seeker(lan.add("h3"))
    second.sighting("10.77.0.3")
    third.sighting(h2.address)
    assert first.warnings() == second.warnings() == []


def test_a_cable_that_is_pulled_and_put_back_costs_nobody_the_others(lan: Lan) -> None:
    h1, h2, _, second = two(lan)
    h2.cut()
    time.sleep(3.0)  # until it is noticed
    third = Seeker(lan.add("h3"))
    third.sighting(h1.address)
    h2.mend()
    second.sighting("10.77.0.3")
    third.sighting(h2.address)
    second.close()
    assert second.warnings() == []


def test_one_that_stops_is_gone_at_once_and_back_under_another_name(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    first, second = Seeker(h1), Seeker(h2)
    name = first.sighting(h2.address)["instance"]
    second.sighting(h1.address)
    second.close()
    assert first.wait("lost")["instance"] == name
    Seeker(h2)
    assert first.sighting(h2.address)["instance"] != name


def test_one_that_was_killed_comes_back_beside_its_old_name(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    first, second = Seeker(h1), Seeker(h2)
    name = first.sighting(h2.address)["instance"]
    second.process.send_signal(signal.SIGKILL)
    second.process.wait()
    again = Seeker(h2)
    assert first.sighting(h2.address)["instance"] != name
    again.sighting(h1.address)
    assert again.warnings() == first.warnings() == []


def test_one_that_vanished_without_a_word_is_gone_when_its_records_ran_out(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    first, second = Seeker(h1), Seeker(h2, "--lifetime", "4")
    name = first.sighting(h2.address)["instance"]
    second.process.kill()
    second.process.wait()
    h2.cut()
    assert first.wait("lost")["instance"] == name


def test_one_that_is_still_there_when_its_records_ran_out_is_asked_and_stays(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    first, second = Seeker(h1), Seeker(h2, "--lifetime", "4")
    first.sighting(h2.address)
    first.silence("lost", seconds=17.0)  # past a sweep after the lifetime, and the time to answer
    assert second.warnings() == []


def test_one_that_was_stopped_for_a_while_is_found_and_finds(lan: Lan) -> None:
    h1, h2, _, second = two(lan)
    second.process.send_signal(signal.SIGSTOP)
    third = Seeker(lan.add("h3"))
    third.sighting(h1.address)
    time.sleep(8.0)  # longer than any busy machine delays a look
    second.process.send_signal(signal.SIGCONT)
    third.sighting(h2.address)
    second.sighting("10.77.0.3")


def test_bridges_and_dead_interfaces_are_in_nobodys_way(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    for name, address in (("docker0", "172.17.0.1/16"), ("br-0123456789ab", "172.18.0.1/16"), ("lonely", "172.19.0.1/16")):
        h1.ip("link", "add", name, "type", "bridge")
        h1.ip("addr", "add", address, "dev", name)
        h1.ip("link", "set", name, "up")
    h1.ip("link", "add", "veth1a", "type", "veth", "peer", "name", "inside")
    h1.ip("link", "set", "veth1a", "master", "docker0", "up")  # docker0 has a carrier now
    h1.ip("link", "set", "inside", "up")
    h1.ip("link", "add", "nothing", "type", "bridge")
    h1.ip("link", "add", "down0", "type", "veth", "peer", "name", "down1")
    h1.ip("addr", "add", "10.88.0.1/24", "dev", "down0")
    h1.ip("tuntap", "add", "tun0", "mode", "tun")
    h1.ip("addr", "add", "10.89.0.1/32", "dev", "tun0")
    h1.ip("link", "set", "tun0", "up")
    first, second = Seeker(h1), Seeker(h2)
    assert first.wait("started")["chosen"] == ["eth0"]
    second.sighting(h1.address)
    first.sighting(h2.address)
    assert first.warnings() == []


def test_a_link_with_ipv6_alone_is_no_obstacle_beside_another(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    h1.ip("link", "add", "six", "type", "veth", "peer", "name", "other")
    h1.ip("link", "set", "other", "up")
    h1.ip("link", "set", "six", "up")
    h1.ip("addr", "add", "fd77::1/64", "dev", "six", "nodad")
    first, second = Seeker(h1), Seeker(h2)
    first.sighting(h2.address)
    second.sighting(h1.address, "fd77::1")
    assert first.warnings() == []


def test_a_lan_with_ipv6_alone_works(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    for number, host in enumerate((h1, h2), 1):
        host.ip("-4", "addr", "flush", "dev", "eth0")
        host.ip("addr", "add", f"fd77::{number}/64", "dev", "eth0", "nodad")
    first, second = Seeker(h1), Seeker(h2)
    first.sighting("fd77::2")
    second.sighting("fd77::1")


def test_a_dead_port_is_one_warning_and_found_are_they_when_it_lives(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    second = Seeker(h2)
    holder = hold_port(h1, 600)
    first = Seeker(h1)
    first.wait("log", matching=lambda event: event["level"] == "WARNING")
    time.sleep(2.5)  # two further tries
    first.tell("trouble")
    assert "5353" in first.wait("trouble")["text"]
    assert len(first.warnings()) == 1
    assert "--peer" in first.warnings()[0]
    holder.kill()
    holder.wait()
    first.sighting(h2.address)
    second.sighting(h1.address)
    first.wait("log", matching=lambda event: "again" in event["text"])
    first.tell("trouble")
    assert first.wait("trouble")["text"] is None
    assert len(first.warnings()) == 1


def test_a_name_that_another_has_is_one_warning_and_a_new_name(lan: Lan) -> None:
    h1, h2, h3 = lan.add("h1"), lan.add("h2"), lan.add("h3")
    watcher = Seeker(h3)
    first, second = Seeker(h1, "--name", "twin"), Seeker(h2, "--name", "twin")
    first.sighting(h2.address)
    second.sighting(h1.address)
    watcher.wait("sighting", matching=lambda event: "twin" not in event["instance"])
    warned = first.warnings() + second.warnings()
    assert len([text for text in warned if "itself as twin" in text]) == len(warned) > 0, warned
    assert max(len(first.warnings()), len(second.warnings())) == 1


def test_a_nameplate_shows_while_the_invitation_is_open(lan: Lan) -> None:
    h1, h2 = lan.add("h1"), lan.add("h2")
    inviter = Seeker(h1)
    inviter.wait("started")
    joiner = Seeker(h2, "--seek", "7")
    watcher = Seeker(h2)
    watcher.sighting(h1.address, nameplate=None)
    inviter.tell("nameplate 8")
    watcher.sighting(h1.address, nameplate="8")
    inviter.tell("nameplate 7")
    assert joiner.wait("sighting")["addresses"] == [[h1.address, 7433]]
    assert joiner.process.wait(30) == 0
    inviter.tell("nameplate")
    watcher.sighting(h1.address, nameplate=None)


def test_devices_of_one_host_find_one_another_over_the_loopback(lan: Lan) -> None:
    alone = lan.add("alone")
    alone.unplug()
    first = Seeker(alone, "--interface", "lo", "--port", "7433")
    second = Seeker(alone, "--interface", "lo", "--port", "7434")
    assert first.sighting("127.0.0.1")["addresses"] == [["127.0.0.1", 7434]]
    assert second.sighting("127.0.0.1")["addresses"] == [["127.0.0.1", 7433]]


def test_devices_of_one_host_find_one_another_on_the_lan(lan: Lan) -> None:
    host = lan.add("host")
    first, second = Seeker(host, "--port", "7433"), Seeker(host, "--port", "7434")
    assert first.sighting(host.address)["addresses"] == [[host.address, 7434]]
    assert second.sighting(host.address)["addresses"] == [[host.address, 7433]]


def test_a_host_that_loses_every_interface_says_nothing_and_waits(lan: Lan) -> None:
    _, h2, _, second = two(lan)
    h2.ip("addr", "flush", "dev", "eth0")
    second.silence("log", seconds=5.0)
    second.tell("trouble")
    assert "no network interface" in second.wait("trouble")["text"]
    h2.readdress("10.77.0.2/24")
    third = Seeker(lan.add("h3"))
    second.sighting("10.77.0.3")
    third.sighting(h2.address)
