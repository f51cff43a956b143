"""How settings are shown and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pqueue.settings import TABLE, TABLE_BY_NAME
from tests.integration.cli.conftest import CommandLine


def test_settings_are_shown_with_units_and_given_to_programs_without(p2p: CommandLine) -> None:
    assert p2p("config", "set", "retention", "30d").err == "retention = 30d\n"
    assert p2p("config", "get", "log_limit").out == "8MiB\n"
    assert p2p("config", "get", "--json").json["settings"]["retention"] == 30 * 86400
    assert "must be at least 1d" in p2p("config", "set", "retention", "2h", check=2).err


def test_a_setting_is_taken_out_and_its_neighbours_stay(p2p: CommandLine) -> None:
    p2p("config", "set", "slots", "3")
    file = Path(p2p("config", "path").out.strip())
    file.write_text(f"# mine\n{file.read_text()}grace = 5\n")
    assert p2p("config", "unset", "slots").err.startswith("slots = ")
    assert file.read_text() == "# mine\ngrace = 5\n"
    assert "it was not set" in p2p("config", "unset", "slots").err
    p2p("config", "unset", "slotz", check=2)


@pytest.mark.parametrize("name", [each.name for each in TABLE])
def test_the_text_of_a_setting_is_read_back_as_it_was(name: str) -> None:
    setting = TABLE_BY_NAME[name]
    values = {"duration": (0.25, 90.0, 86400.0, 90061.5), "size": (1024, 1500000, 123457, 3 * 1024**3)}.get(setting.kind, ())
    for value in (setting.default, *values):
        if not isinstance(value, (int, float)) or value >= setting.least:
            assert setting.parse(setting.text(value)) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slots = ", "is no TOML"),
        ("slotz = 3\n", "there is no setting 'slotz'; did you mean slots"),
        ("slots = 'many'\n", "is no whole number"),
        ("lanes = ['pigeon']\n", "lanes: pigeon"),
    ],
)
def test_settings_with_which_no_node_starts_are_told_by_status(p2p: CommandLine, text: str, words: str) -> None:
    assert p2p("status", "--json").json["settings"]["trouble"] is None
    assert "Settings" not in p2p("status").out
    file = Path(p2p("config", "path").out.strip())
    file.write_text(text)
    (told,) = (line for line in p2p("status").out.splitlines() if line.startswith("Settings:"))
    assert words in told
    assert p2p("status", "--json").json["settings"]["trouble"] in told
    assert words in p2p("run", "--no-work", "--burst", check=2).err
    if "slot" in text:
        assert str(file) in told
