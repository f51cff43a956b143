"""A device that goes offline by its own will keeps the job that it runs, and the others say where the job is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.test_pairing import invited
from tests.integration.cli.test_pairing_by_node import online, wait_until
from tests.integration.cli.test_twin import NET, address


def shown(p2p: CommandLine, job: str) -> Any:
    outcome = p2p("show", job, "--json", check=None)
    return outcome.json if outcome.code == 0 else {"status": None, "why": None}


@pytest.mark.timeout(120)
def test_its_job_is_neither_taken_over_nor_lost_and_others_say_where_it_is(p2p: CommandLine) -> None:
    other = CommandLine(p2p.home.parent / "other", p2p.environment)
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address, "--label", "laptop")
    with p2p.node(*NET) as node, other.node(*NET, "--no-work", "--peer", address(node)) as watcher:
        wait_until(lambda: online(other) == {"box": True, "laptop": True})
        job = other("enqueue", "sleep", "seconds=20").id
        wait_until(lambda: shown(other, job)["status"] == "running" and shown(other, job)["why"] is None)
        p2p("offline")
        wait_until(lambda: online(other)["box"] is False)
        wait_until(lambda: "box is out of reach" in (shown(other, job)["why"] or ""))
        assert "box is out of reach" in other("list").out
        assert shown(other, job)["status"] == "running"
        assert "taken over" not in watcher.errors.read_text()
        p2p("online")
        wait_until(lambda: shown(other, job)["status"] == "succeeded")
        ended = shown(other, job)
        assert [(each["attempt"], each["status"], each["worker_label"]) for each in ended["attempts"]] == [(1, "succeeded", "box")]
