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
