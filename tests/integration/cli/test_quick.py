"""A plain list is printed without click; nobody can tell but by the time it takes."""

from __future__ import annotations

import os
import re

import pytest

from p2pqueue.cli import quick
from tests.integration.cli.conftest import CommandLine, Outcome

UNDERSTOOD = [
    ["list"],
    ["list", "--json"],
    ["--json", "list", "--limit", "1"],
    ["list", "--status", "queued", "-q"],
    ["list", "--status", "failed"],
    ["list", "--status", "failed", "--quiet"],
    ["list", "--task", "later", "--queue", "default", "--no-color"],
]
LEFT = [
    ["list", "--help"],
    ["list", "list"],
    ["list", "--limit"],
    ["list", "--limit", "0"],
    ["list", "--limit", "1" * 5000],
    ["list", "--status", "lost"],
    ["list", "--task", ""],
    ["list", "--device", "nobody"],
    ["list", "--task", "\x1b[2J"],
    ["list", "--home", ""],
    ["list", "--since", "2 fortnights"],
    ["list", "--nothing"],
    ["--task", "later", "list"],
    ["--version"],
    [],
]


@pytest.fixture
def filled(p2p: CommandLine) -> CommandLine:
    p2p("enqueue", "later", "who=you", "--title", "Straße")
    p2p("exec", "--title", "quiet", "--", "true")
    return p2p


def ageless(outcome: Outcome) -> Outcome:
    return Outcome(outcome.code, re.sub(r" +(?:AGE|[\d.]+ s)  +", " AGE ", outcome.out), outcome.err)


@pytest.mark.parametrize("words", UNDERSTOOD, ids=" ".join)
def test_a_plain_list_is_the_same_with_and_without_click(filled: CommandLine, words: list[str]) -> None:
    assert ageless(filled(*words)) == ageless(filled("-v", *words))  # -v is for click


@pytest.mark.parametrize("words", UNDERSTOOD, ids=" ".join)
def test_a_plain_list_is_answered_at_once(filled: CommandLine, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PQUEUE_HOME", str(filled.home))
    assert quick.answer(words)


@pytest.mark.parametrize("words", LEFT, ids=lambda words: " ".join(words)[:20])
def test_all_other_words_are_left_to_click(
    filled: CommandLine, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("P2PQUEUE_HOME", str(filled.home))
    assert not quick.answer(words)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("variable", ["P2PQUEUE_LIST_LIMIT", "P2PQUEUE_JSON", "_P2PQUEUE_COMPLETE"])
def test_a_variable_that_only_click_understands_is_heeded(filled: CommandLine, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PQUEUE_HOME", str(filled.home))
    monkeypatch.setenv(variable, "1")
    assert not quick.answer(["list"])


def test_what_goes_wrong_is_told_as_ever(empty: CommandLine) -> None:
    plain, full = empty("list", check=1), empty("list", "--since", "1d", check=1)  # --since is for click
    assert plain.err == full.err
    assert "p2pqueue init" in plain.err
    assert plain.out == ""


@pytest.mark.skipif(os.name == "nt", reason="has no pseudo terminals")
def test_a_terminal_gets_colours_unless_it_wants_none(filled: CommandLine) -> None:
    painted = on_terminal(filled, "list")
    assert b"\x1b[36mqueued\x1b[0m" in painted
    assert painted.count(b"\x1b[1m") == 1  # the headers
    assert b"\x1b" not in on_terminal(filled, "list", "--no-color")
    assert b"\x1b" not in on_terminal(filled, "list", NO_COLOR="1")


def on_terminal(p2p: CommandLine, *words: str, **environment: str) -> bytes:
    """What a command writes to a terminal."""
    import pty

    ours, theirs = pty.openpty()
    command = CommandLine(p2p.home, {**p2p.environment, "TERM": "xterm", **environment})
    process = command.start(*words, stdout=theirs)
    os.close(theirs)
    shown = b""
    while piece := _read(ours):
        shown += piece
    os.close(ours)
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # what Linux says where others give the end
        return b""
