"""What a device tells of others that are gone, and how it begins when others are known."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_pairing import invited
from tests.integration.cli.test_pairing_by_node import online, wait_until
from tests.integration.cli.test_twin import NET, address


@pytest.fixture
def other(p2p: CommandLine) -> CommandLine:
    """Another device of the same space, whose node doesn't run."""
    laptop = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        laptop("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    return laptop


def laptop_at(p2p: CommandLine) -> Any:
    return next(each for each in p2p("devices", "--json").json["devices"] if each["label"] == "laptop")


@pytest.mark.parametrize("end", ["killed", "left behind"])
def test_a_device_that_is_gone_was_last_seen_when_it_was_last_heard(p2p: CommandLine, other: CommandLine, end: str) -> None:
    net = (*NET, "--no-work", "--lanes", "http")
    with p2p.node(*net, app=None) as node, other.node(*net, "--peer", address(node), app=None) as gone:
        wait_until(lambda: online(p2p) == {"box": True, "laptop": True})
        since, rtt = time.time(), laptop_at(p2p)["rtt"]
        wait_until(lambda: laptop_at(p2p)["rtt"] != rtt)  # it was heard once more
        if end == "killed":
            gone.process.kill()
            wait_until(lambda: online(p2p)["laptop"] is False)
        else:
            node.stop()
        wait_until(lambda: laptop_at(p2p)["seen_at"] >= _rfc3339(since))
        assert laptop_at(p2p)["seen_at"] <= _rfc3339(time.time())


def test_without_a_network_a_node_begins_without_hearing_others_first(p2p: CommandLine, other: CommandLine) -> None:
    with p2p.node("--no-network"):
        assert "has just started" not in p2p("show", p2p("enqueue", "echo").id).out
        p2p("enqueue", "echo", "--wait")


def _rfc3339(at: float) -> str:
    from p2pqueue.cli import quantities

    return quantities.rfc3339(int(at * 1000)) or ""
