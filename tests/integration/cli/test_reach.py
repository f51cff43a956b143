"""What `doctor` finds out of the network: it tries the port, datagrams, multicast and the origin, and names the mend."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from p2pqueue.cli.commands.reach import network
from p2pqueue.net import trying
from p2pqueue.settings import Settings
from tests.integration.cli.conftest import CommandLine

LO = Settings(interfaces=("lo",))


def checks(p2p: CommandLine, *, code: int = 0, **environment: str) -> dict[str, Any]:
    """The findings, by the names of the checks."""
    return {each["check"]: each for each in p2p("doctor", "--json", check=code, **environment).json["checks"]}


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {name: found[name]["verdict"] for name in ("interfaces", "port", "udp", "mdns") if name in found}


@contextmanager
def taken_port(kind: socket.SocketKind = socket.SOCK_STREAM, host: str = "127.0.0.1") -> Iterator[int]:
    """A port that another program holds."""
    with closing(socket.socket(socket.AF_INET, kind)) as held:
        held.bind((host, 0))
        if kind == socket.SOCK_STREAM:
            held.listen()
        yield held.getsockname()[1]


def test_without_a_node_everything_is_tried(p2p: CommandLine) -> None:
    found = checks(p2p, P2PQUEUE_LISTEN="127.0.0.1:0")
    assert verdicts(found) == {"interfaces": "ok", "port": "ok", "udp": "ok", "mdns": "ok"}
    assert "127.0.0.1" in found["interfaces"]["words"]
    assert "multicast is sent and heard" in found["mdns"]["words"]
    assert found["settings"]["words"] == "by P2PQUEUE_LISTEN, P2PQUEUE_INTERFACES"
    assert "clocks" not in found


def test_the_port_of_a_running_node_is_its_own(p2p: CommandLine) -> None:
    with p2p.node("--no-work", "--no-discovery", "--listen", "127.0.0.1:0", app=None) as node:
        found = checks(p2p, P2PQUEUE_DISCOVERY="false")
        port = node.ready["addresses"][0].rpartition(":")[2]
        assert found["port"]["words"] == f"{port}, where this home's node listens and answers"
        assert "switched off" in found["mdns"]["words"]
        p2p("offline")
        assert "p2pqueue online" in checks(p2p)["port"]["mend"]


def test_a_node_by_itself_listens_nowhere_and_that_is_well(worked: tuple[CommandLine, Any]) -> None:
    assert "once another device is known" in checks(worked[0])["port"]["words"]


def test_a_port_that_another_program_holds_is_told_with_the_mend(p2p: CommandLine) -> None:
    with taken_port() as port:
        found = checks(p2p, code=1, P2PQUEUE_LISTEN=f"127.0.0.1:{port}")
    assert found["port"]["verdict"] == "wrong"
    assert f"127.0.0.1:{port}" in found["port"]["words"]
    assert "setting `listen`" in found["port"]["mend"]


def test_an_interface_that_is_not_there_is_told_with_those_that_are(p2p: CommandLine) -> None:
    found = checks(p2p, P2PQUEUE_INTERFACES="usb0")
    assert found["interfaces"]["verdict"] == found["settings"]["verdict"] == "warning"
    assert "none of usb0 is up; there are lo" in found["interfaces"]["words"]
    assert "mdns" not in found


def test_a_setting_that_cant_be_meant_is_wrong_and_nothing_is_tried_with_it(p2p: CommandLine) -> None:
    found = checks(p2p, code=1, P2PQUEUE_PEERS="box:99999")
    assert (found["settings"]["verdict"], "port" in found) == ("wrong", False)
    assert found["network"]["words"] == "not tried, as the settings can't be meant"


def test_a_named_peer_that_does_not_answer_is_told_and_one_that_does_too(p2p: CommandLine) -> None:
    with taken_port() as port:
        assert checks(p2p, P2PQUEUE_PEERS=f"127.0.0.1:{port}")["peers"]["words"] == f"127.0.0.1:{port}: somebody listens"
    found = checks(p2p, P2PQUEUE_PEERS=f"127.0.0.1:{port}")["peers"]
    assert (found["verdict"], f"127.0.0.1:{port} doesn't answer (" in found["words"]) == ("warning", True)
    assert "setting `peers`" in found["mend"]
    assert "peers" not in checks(p2p)


def test_a_device_that_is_to_be_by_itself_tries_nothing(p2p: CommandLine) -> None:
    assert verdicts(checks(p2p, P2PQUEUE_NETWORK="false")) == {}


def test_the_origin_is_asked_with_its_token(p2p: CommandLine) -> None:
    process = p2p.start("origin", "--store", str(p2p.home.parent / "store"), "--listen", "127.0.0.1:0", "--json")
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert "takes the token" in checks(p2p, P2PQUEUE_ORIGIN=url)["origin"]["words"]
        refused = checks(p2p, code=1, P2PQUEUE_ORIGIN=f"http://wrong@{url.partition('@')[2]}")["origin"]
        assert (refused["verdict"], "401" in refused["words"]) == ("wrong", True)
        assert "with the token" in refused["mend"]
    finally:
        process.terminate()
        process.communicate()
    gone = checks(p2p, P2PQUEUE_ORIGIN=url)["origin"]
    assert (gone["verdict"], "can't be reached" in gone["words"]) == ("warning", True)


def test_multicast_that_is_not_heard_is_a_warning_that_names_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken_port(socket.SOCK_DGRAM, host="") as port:
        monkeypatch.setattr(trying, "MDNS_PORT", port)
        (found,) = (each for each in network(LO, None) if each.check == "mdns")
    assert found.verdict == "warning"
    assert str(port) in found.mend
    assert "peers" in found.mend


@pytest.mark.parametrize(
    ("offsets", "verdict", "words"),
    [
        ((), None, ""),
        ((None,), None, ""),
        ((0.01, -0.2), "ok", "2 linked devices, at most 0.2 s apart"),
        ((90.0, 0.0), "warning", "d0 is 90 s ahead"),
        ((-3600.0, -3599.0), "warning", "d0 is 3600 s behind, d1 is 3599 s behind"),
    ],
)
def test_clocks_that_are_far_apart_are_told(offsets: tuple[float | None, ...], verdict: str | None, words: str) -> None:
    peers = [{"label": f"d{number}", "device": "f" * 64, "clock_offset": offset} for number, offset in enumerate(offsets)]
    told = {"listening": None, "wanted": True, "trouble": None, "peers": peers}
    found = [each for each in network(Settings(interfaces=("lo",), discovery=False), told) if each.check == "clocks"]
    assert [(each.verdict, each.words) for each in found] == ([(verdict, words)] if verdict else [])
    if words.startswith("d0 is 3600"):
        assert "this device's clock" in found[0].mend
