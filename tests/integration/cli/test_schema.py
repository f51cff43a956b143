"""Every JSON object that a command prints says by which schema it is read."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.conftest import CommandLine, RunningNode

Worked = tuple[CommandLine, RunningNode]
COMMANDS = [
    ["list"], ["show", "JOB"], ["watch", "JOB"], ["logs", "JOB"], ["result", "JOB"], ["enqueue", "echo"], ["enqueue", "echo", "--wait"],
    ["exec", "--", "true"],
    ["tasks"], ["status"], ["devices"], ["doctor"], ["config", "get"], ["config", "path"], ["config", "set", "score", "0"],
    ["config", "unset", "score"], ["devices", "rename", "box", "box"], ["retry", "JOB"], ["cancel", "--all", "--dry-run"],
    ["delete", "JOB", "--yes"], ["prune"], ["offline"], ["online"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_says_its_schema(worked: Worked, words: list[str]) -> None:
    p2p, _ = worked
    job = p2p("enqueue", "echo", "--wait").id
    printed = p2p(*(job if word == "JOB" else word for word in words), "--json").out if "--" not in words else p2p("--json", *words).out
    assert printed
    assert [json.loads(line)["schema"] for line in printed.splitlines()] == [1] * len(printed.splitlines())


def test_a_node_and_an_origin_say_it_when_they_are_ready(p2p: CommandLine) -> None:
    with p2p.node(app=None) as node:
        assert node.ready["schema"] == 1
    origin = p2p.start("origin", "--store", str(p2p.home.parent / "store"), "--listen", "127.0.0.1:0", "--json")
    assert origin.stdout is not None
    assert json.loads(origin.stdout.readline())["schema"] == 1
    origin.terminate()
    origin.communicate()
