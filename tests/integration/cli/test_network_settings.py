"""What can't be meant by a setting of networking is refused in words, before anything starts; a slip that may be meant is told."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_pairing_by_node import wait_until

# setting, flag, value, and what is said
REFUSED = [
    ("peers", "--peer", "somewhere:99999", "a port from 1 to 65535"),
    ("peers", "--peer", "two words:7433", "no address"),
    ("peers", "--peer", "192.168.1.20:http", "no address"),
    ("peers", "--peer", "0.0.0.0:7433", "no address"),
    ("peers", "--peer", "[fe80::1:7433", "no address"),
    ("listen", "--listen", "127.0.0.1:70000", "a port from 1 to 65535"),
    ("listen", "--listen", "a host:7433", "no address"),
    ("interfaces", "--interface", "192.168.1.300", "no address of an interface"),
    ("interfaces", "--interface", "192.168.1.0/24", "no address of an interface"),
    ("interfaces", "--interface", "fe80:::1", "no address of an interface"),
    ("interfaces", "--interface", "a\tb", "there are "),
    ("origin", "--origin", "origin.example:7434", "http://TOKEN@HOST:PORT"),
    ("origin", "--origin", "ftp://token@host", "http://TOKEN@HOST:PORT"),
    ("origin", "--origin", "http://token@host:seven", "no URL of an origin"),
    ("origin", "--origin", "http://name:word@host:7434", "http://TOKEN@HOST:PORT"),
    ("lanes", "--lanes", "webrtc,pigeon", "pigeon"),
    ("origin_policy", "--origin-policy", "sometimes", "never, needed, always"),
]


@pytest.mark.parametrize(("setting", "flag", "value", "words"), REFUSED)
def test_it_is_refused_at_the_start_and_by_config_set(p2p: CommandLine, setting: str, flag: str, value: str, words: str) -> None:
    refused = p2p("run", "--no-work", "--no-network", flag, value, check=2)
    assert words in refused.err
    assert setting in refused.err
    assert refused.out == ""
    assert words in p2p("config", "set", setting, value, check=2).err
    assert p2p("config", "get", setting).out == p2p("config", "get", setting, P2PQUEUE_HOME=str(p2p.home / "elsewhere")).out


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere interfaces have other names")
def test_an_interface_that_may_come_later_is_a_warning_that_names_those_that_are_there(p2p: CommandLine) -> None:
    p2p.environment["P2PQUEUE_INTERFACES"] = ""
    warned = p2p("config", "set", "interfaces", "usb0").err
    assert "no interface 'usb0' that is up now" in warned
    assert "lo" in warned
    assert p2p("config", "get", "interfaces").out == "usb0\n"
    with p2p.node("--no-work", "--no-discovery", app=None) as node:
        assert "no interface 'usb0' that is up now" in node.errors.read_text()
    assert "there are" in p2p("run", "--no-work", "--interface", "an interface", check=2).err


@pytest.mark.parametrize("value", ["laptop.local:7433", "192.168.1.20", "[::1]:7433", "::1", "box"])
def test_what_can_be_meant_by_a_peer_is_taken(p2p: CommandLine, value: str) -> None:
    assert p2p("config", "set", "peers", value).err.startswith("peers = ")


@pytest.mark.parametrize("value", ["127.0.0.1:0", ":7433", "0.0.0.0:7433", "[::]:0", "[::1]:0", "localhost"])
def test_where_a_node_can_listen_is_taken(p2p: CommandLine, value: str) -> None:
    assert p2p("config", "set", "listen", value).err.startswith("listen = ")


def test_pairing_refuses_the_same(p2p: CommandLine) -> None:
    assert "no address of an interface" in p2p("invite", "--interface", "1.2.3", check=2).err
    assert "listen: " in p2p("invite", "--listen", "1.2.3.4:99999", check=2).err
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    assert "no address of an interface" in other("join", "7-orbit-velvet", "--interface", "1.2.3", check=2).err


def test_a_peer_that_never_answers_is_told_by_status_until_it_is_linked(p2p: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    peer = f"127.0.0.1:{port}"
    with p2p.node("--no-work", "--no-discovery", "--interface", "lo", "--listen", "127.0.0.1:0", "--peer", peer, app=None):
        wait_until(lambda: [each["tries"] for each in unreached(p2p)] > [1])
        (told,) = unreached(p2p)
        assert told["address"] == ["127.0.0.1", port]
        assert "refused" in told["why"]
        shown = p2p("status").out
        assert f"{peer}: Connection refused; tried " in shown
        other = CommandLine(p2p.home.parent / "other", p2p.environment)
        invitation = p2p.start("invite", "--json")
        assert invitation.stdout is not None
        said = json.loads(invitation.stdout.readline())
        other("join", said["code"], "--peer", said["addresses"][0])
        invitation.communicate()
        with other.node("--no-work", "--no-discovery", "--interface", "lo", "--listen", peer, app=None):
            wait_until(lambda: not unreached(p2p))
            assert "Connection refused" not in p2p("status").out


def unreached(p2p: CommandLine) -> Any:
    return p2p("status", "--json").json["node"]["network"]["unreached"]
