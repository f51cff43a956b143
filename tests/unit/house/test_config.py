"""Settings come from a file, variables and flags, and every bad one is told in words."""

from __future__ import annotations

import dataclasses
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from p2pqueue.config import Settings, get_setting, load_settings, set_setting
from p2pqueue.errors import ConfigError
from p2pqueue.home import Home
from p2pqueue.settings import TABLE, Value, find_setting, parse_duration, parse_size


@pytest.fixture(autouse=True)
def no_variables(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even those that keep other tests on this host."""
    for setting in TABLE:
        monkeypatch.delenv(setting.variable, raising=False)


def test_a_home_without_a_file_has_the_defaults(home: Home) -> None:
    assert load_settings(home) == Settings()


def test_a_flag_outranks_a_variable_and_a_variable_the_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.config_file.write_text('slots = 3\ngrace = "1m"\ntags = ["gpu"]\n')
    monkeypatch.setenv("P2PQUEUE_SLOTS", "5")
    monkeypatch.setenv("P2PQUEUE_GRACE", "2m")
    found = load_settings(home, {"slots": 7, "grace": None})
    assert (found.slots, found.grace, found.tags) == (7, 120.0, ("gpu",))


def test_an_empty_variable_counts_as_none(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P2PQUEUE_SLOTS", "")
    assert load_settings(home) == Settings()


def test_every_setting_says_what_it_is_and_has_a_field() -> None:
    assert [setting.name for setting in TABLE] == [field.name for field in dataclasses.fields(Settings)]
    for setting in TABLE:
        assert setting.doc.endswith(".")
        assert setting.parse(setting.default) == setting.default
        assert setting.parse(list(setting.default) if isinstance(setting.default, tuple) else setting.default) == setting.default


BAD = [
    ("slots = 0", "at least 1"),
    ('slots = "many"', "no whole number"),
    ("slots = 2.5", "no whole number"),
    ("slots = true", "no whole number"),
    ("slots = 9223372036854775808", "too large"),
    ("grace = -1", "at least 0"),
    ("grace = nan", "finite"),
    ("grace = inf", "finite"),
    ('grace = "soon"', "such as 10m"),
    ("grace = true", "no duration"),
    ('retention = "1h"', "at least 1d"),
    ("work = 1", "neither true nor false"),
    ('tags = [1, "a"]', "no list of texts"),
    ('max_input = "5 parsecs"', "no size"),
    ("colour = 1", "no setting 'colour'"),
    ("slot = 1", "did you mean slots"),
    ("[slots]\nn = 1", "no whole number"),
    ("beat_every = 45", "below stale_after"),
    ("slots = ", "no TOML"),
    ("slots = 1\nslots = 2", "no TOML"),
]


@pytest.mark.parametrize(("text", "why"), BAD, ids=[text for text, _ in BAD])
def test_a_bad_value_is_told_in_words(text: str, why: str, home: Home) -> None:
    home.config_file.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load_settings(home)


def test_an_error_says_where_the_bad_value_stands(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="--max-input: 'x'"):
        load_settings(home, {"max_input": "x"})
    monkeypatch.setenv("P2PQUEUE_MAX_INPUT", "y")
    with pytest.raises(ConfigError, match="P2PQUEUE_MAX_INPUT: 'y'"):
        load_settings(home)
    home.config_file.write_text("max_input = 'z'")
    with pytest.raises(ConfigError, match=r"config\.toml: max_input: 'z'"):
        load_settings(home)


def test_a_file_that_is_no_text_is_told_in_words(home: Home) -> None:
    home.config_file.write_bytes(b"slots = 1 # \xff\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_settings(home)
    home.config_file.unlink()
    home.config_file.mkdir()
    with pytest.raises(Exception, match="can't be read"):
        load_settings(home)


def test_a_setting_that_was_written_is_read_back_from_a_private_file(tmp_path: Path) -> None:
    fresh = Home(tmp_path / "home")
    assert set_setting(fresh, "stale-after", "90s") == 90.0
    assert set_setting(fresh, "tags", "gpu, ffmpeg") == ("gpu", "ffmpeg")
    assert get_setting(fresh, "stale_after") == 90.0
    assert get_setting(fresh, "tags") == ("gpu", "ffmpeg")
    assert stat.S_IMODE(fresh.config_file.stat().st_mode) == 0o600
    assert [path.name for path in fresh.path.iterdir()] == ["config.toml"]


def test_writing_a_setting_leaves_comments_and_other_keys(home: Home) -> None:
    home.config_file.write_text("# mine\nslots = 2  # two\n\n# how long\ngrace = 5\n")
    set_setting(home, "slots", 4)
    set_setting(home, "work", "no")
    assert home.config_file.read_text() == "# mine\nslots = 4\n\n# how long\ngrace = 5\nwork = false\n"


def test_a_value_over_several_lines_is_written_anew(home: Home) -> None:
    home.config_file.write_text('tags = [\n  "a",\n  "slots = 1",\n]\nslots = 2\n')
    set_setting(home, "tags", ["b"])
    assert tomllib.loads(home.config_file.read_text()) == {"tags": ["b"], "slots": 2}


def test_a_bad_value_is_never_written(home: Home) -> None:
    home.config_file.write_text("slots = 2\n")
    for name, raw in (("slots", "0"), ("beat_every", "50"), ("colour", "red"), ("tags", ["\ud800"])):
        with pytest.raises(ConfigError):
            set_setting(home, name, raw)
    assert home.config_file.read_text() == "slots = 2\n"


def test_a_broken_file_is_not_overwritten(home: Home) -> None:
    home.config_file.write_text("slots = ")
    with pytest.raises(ConfigError):
        set_setting(home, "slots", 3)
    assert home.config_file.read_text() == "slots = "


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
raw_values = {
    "slots": st.integers(1, 2**40),
    "grace": st.floats(0, 1e12),
    "work": st.booleans(),
    "tags": st.lists(texts).map(tuple),
    "max_input": st.integers(0, 2**60),
}
changes = st.one_of(*(st.tuples(st.just(name), value) for name, value in raw_values.items()))


@given(st.lists(changes, max_size=5))
@hypothesis_settings(max_examples=30)  # each step is an fsync
def test_whatever_is_written_is_read_back(steps: list[tuple[str, Value]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        fresh = Home(Path(folder) / "home")
        wanted: dict[str, Value] = {}
        for name, value in steps:
            set_setting(fresh, name, value)
            wanted[name] = value
            found = load_settings(fresh)
            assert all(getattr(found, key) == expected for key, expected in wanted.items())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5h", 5400), ("1h30m", 5400), ("250ms", 0.25), (" 2D ", 172_800), ("1w", 604_800), (3, 3), (0.5, 0.5)],
)
def test_a_duration_is_a_number_with_a_unit(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "1 h 30", "-5", "1y", "1e9", "9" * 400, None, [], True])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("500", 500), ("64MiB", 64 * 1024**2), ("2 GB", 2 * 1000**3), ("1.5kib", 1536), (7, 7), ("1tib", 1024**4)]
)
def test_a_size_is_a_number_with_a_unit(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 furlong", "1X", None, 1.5, True])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


def test_a_setting_knows_its_flag_and_its_variable() -> None:
    setting = find_setting("max-input")
    assert (setting.flag, setting.variable, setting.unit) == ("--max-input", "P2PQUEUE_MAX_INPUT", "bytes")
