"""A device that is renamed is called so everywhere at once: in its keys, in its running node, in new rows, on other devices."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_pairing_by_node import online, wait_until
from tests.integration.cli.test_twin import NET, address


def label_of_next_job(p2p: CommandLine) -> Any:
    return p2p("enqueue", "sleep", "seconds=0.1", "--wait", "--json").json["worker_label"]


def test_a_running_node_works_under_its_new_name_at_once(p2p: CommandLine) -> None:
    with p2p.node():
        assert label_of_next_job(p2p) == "box"
        outcome = p2p("devices", "rename", "box", "big box")
        assert "starts again" not in outcome.err
        wait_until(lambda: label_of_next_job(p2p) == "big box")
        waiting = p2p("exec", "--", "true").id
        wait_until(lambda: "big box runs no programs" in (p2p("show", waiting, "--json").json["why"] or ""))
    assert p2p("status", "--json").json["label"] == "big box"
    with p2p.node() as node:
        assert node.ready["label"] == "big box"


def test_a_name_that_another_device_gives_counts_on_the_device_itself(p2p: CommandLine) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with p2p.node(*NET, "--no-work", app=None) as node:
        inviting = p2p.start("invite", "--json")
        assert inviting.stdout is not None
        code = json.loads(inviting.stdout.readline())["code"]
        other("join", code, "--peer", address(node), "--label", "laptop")
        inviting.communicate(timeout=30)
        with other.node(*NET):
            wait_until(lambda: online(p2p) == {"box": True, "laptop": True})
            p2p("devices", "rename", "laptop", "notebook")
            wait_until(lambda: other("status", "--json").json["label"] == "notebook")
            assert label_of_next_job(other) == "notebook"
            wait_until(lambda: online(p2p) == online(other) == {"box": True, "notebook": True})
