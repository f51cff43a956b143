"""A home that was copied: two running devices with one key take no jobs and enqueue none, until one of them is gone or renewed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.integration.cli.conftest import CommandLine, RunningNode
from tests.integration.cli.test_pairing import invited
from tests.integration.cli.test_pairing_by_node import wait_until

NET = ("--interface", "lo", "--no-discovery", "--listen", "127.0.0.1:0")


def trouble(p2p: CommandLine) -> Any:
    return p2p("status", "--json").json["node"]["network"]["trouble"]


def shown(p2p: CommandLine, job: str) -> Any:
    return p2p("show", job, "--json").json


def address(node: RunningNode) -> str:
    return str(node.ready["addresses"][0])


@pytest.fixture
def copy(p2p: CommandLine) -> CommandLine:
    """A copy of the home, as a cloned disk is one."""
    home = p2p.home.parent / "copy"
    shutil.copytree(p2p.home, home)
    return CommandLine(home, p2p.environment)


@contextmanager
def both_running(p2p: CommandLine, copy: CommandLine) -> Iterator[Callable[[], int]]:
    """Nodes on both homes that have met; what it gives stops the copy's."""
    with p2p.node(*NET) as node, ExitStack() as stack:
        twin = stack.enter_context(copy.node(*NET, "--peer", address(node)))
        wait_until(lambda: all(trouble(each) for each in (p2p, copy)))
        yield twin.stop


@pytest.mark.timeout(120)
def test_both_refuse_jobs_in_words_and_the_one_that_is_left_takes_them_again(p2p: CommandLine, copy: CommandLine) -> None:
    with both_running(p2p, copy) as stop_copy:
        for each in (p2p, copy):
            assert "identity renew" in trouble(each)
            found = {check["check"]: check for check in each("doctor", "--json", check=1).json["checks"]}
            assert (found["key"]["verdict"], "identity renew" in found["key"]["mend"]) == ("wrong", True)
            refused = each("enqueue", "echo", check=1)
            assert "has the key of this one" in refused.err
            assert "identity renew" in refused.err
            assert each("exec", "--", "true", check=1).err == refused.err
        stop_copy()
        wait_until(lambda: trouble(p2p) is None)
        assert p2p("enqueue", "echo", "text=again", "--wait", "--json").json["result"] == "again"


@pytest.mark.timeout(120)
def test_a_third_device_that_both_dial_tells_them_of_one_another(p2p: CommandLine) -> None:
    third = CommandLine(p2p.home.parent / "third", p2p.environment)
    with invited(p2p) as invitation:
        third("join", invitation.code, "--peer", invitation.address, "--label", "third")
        invitation.ended()
    copy = CommandLine(p2p.home.parent / "copy", p2p.environment)
    shutil.copytree(p2p.home, copy.home)
    with third.node(*NET, "--no-work", app=None) as node, ExitStack() as stack:
        twins = [stack.enter_context(each.node(*NET, "--peer", address(node))) for each in (p2p, copy)]
        wait_until(lambda: all(trouble(each) for each in (p2p, copy)))
        for each in (p2p, copy):
            assert "third has met both" in trouble(each)
            assert "has the key of this one" in each("enqueue", "echo", check=1).err
        job = third("enqueue", "echo", "text=by one").id
        assert third("show", job, "--json").json["status"] == "queued"
        twins[1].stop()
        wait_until(lambda: trouble(p2p) is None)
        wait_until(lambda: third("show", job, "--json").json["status"] == "succeeded")


@pytest.mark.timeout(120)
def test_what_runs_waits_without_losing_an_attempt_until_the_copy_has_a_key_of_its_own(p2p: CommandLine, copy: CommandLine) -> None:
    with p2p.node(*NET) as node:
        job = p2p("enqueue", "sleep", "seconds=60").id
        wait_until(lambda: shown(p2p, job)["status"] == "running")
        with copy.node(*NET, "--peer", address(node)):
            wait_until(lambda: shown(p2p, job)["status"] == "queued")
            wait_until(lambda: shown(p2p, job)["why"] == "another running device has the key of box")
        assert shown(p2p, job)["attempt"] == 0
        copy("identity", "renew")
        with copy.node(*NET, "--no-work", app=None):
            wait_until(lambda: shown(p2p, job)["status"] == "running")
            assert trouble(copy) is None


@pytest.mark.timeout(120)
def test_a_mark_that_a_killed_node_left_keeps_nobody_from_enqueueing(p2p: CommandLine, copy: CommandLine) -> None:
    with p2p.node(*NET) as node, copy.node(*NET, "--peer", address(node)):
        wait_until(lambda: trouble(p2p) is not None)
        assert p2p("enqueue", "echo", check=1).out == ""
        node.process.kill()
        node.process.wait()
        assert p2p("enqueue", "echo").id
