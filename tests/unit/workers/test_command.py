from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from p2pqueue.errors import ArgumentError, ConfigError
from p2pqueue.workers.children.command import Command, fill, placeholders
from p2pqueue.workers.children.protocol import TaskDescription
from p2pqueue.workers.commandfile import CommandTask, read_commands

FOLDER = PurePosixPath("/folder")


@pytest.mark.parametrize(
    ("argv", "expected", "reason"),
    [
        (["ffmpeg", "-i", "{input}", "{output}"], ["ffmpeg", "-i", "/in/a.mov", "/folder/o.mp4"], "one input, one output"),
        (["x", "{1}", "{2}", "{out}", "{out2}"], ["x", "/in/a.mov", "/in/b.srt", "/folder/o.mp4", "/folder/o.jpg"], "by their numbers"),
        (["x", "{video}", "{subtitles}"], ["x", "/in/a.mov", "/in/b.srt"], "by their names"),
        (["x", "scale=-2:{height}"], ["x", "scale=-2:720"], "an argument within a word"),
        (["x", "{flag}", "{nothing}"], ["x", "true", ""], "values that are no text"),
        (["x", "{odd}"], ["x", "a b; rm -rf ~ {height}"], "a value is one word, and never read again"),
        (["awk", "{print $1}", "{unknown}", "{}"], ["awk", "{print $1}", "{unknown}", "{}"], "what is no placeholder of ours stays"),
        (["x", "{{height}}", "{{{height}}}"], ["x", "{height}", "{720}"], "braces by doubling them"),
    ],
)
def test_placeholders_are_filled(argv: list[str], expected: list[str], reason: str) -> None:
    command = Command(tuple(argv), inputs=("video", "subtitles"), outputs=("o.mp4", "o.jpg"))
    values: dict[str, Any] = {
        "video": "/in/a.mov", "subtitles": "/in/b.srt", "height": 720, "flag": True, "nothing": None, "odd": "a b; rm -rf ~ {height}",
    }  # fmt: skip
    assert command.words(values, FOLDER) == expected, reason


def test_values_are_quoted_for_a_shell() -> None:
    command = Command(("cat {input} | grep {word}",), inputs=("input",), shell=True)
    assert command.words({"input": "/a b", "word": "x'; rm"}, FOLDER) == ["/bin/sh", "-c", "cat '/a b' | grep 'x'\"'\"'; rm'"]


def test_defaults_stand_for_arguments_that_a_job_does_not_name() -> None:
    defaults = {"height": 720, "none": 0, "off": False, "empty": "", "word": "a; b"}
    command = Command(("x", "{height}", "{none}", "{off}", "{empty}", "{word}"), defaults=defaults)
    assert command.words({}, FOLDER) == ["x", "720", "0", "false", "", "a; b"]
    assert command.words({"height": 480, "off": True}, FOLDER) == ["x", "480", "0", "true", "", "a; b"]
    assert Command(("echo {word}",), shell=True, defaults=defaults).words({}, FOLDER)[2] == "echo 'a; b'"


def test_a_placeholder_without_a_value_never_reaches_the_program() -> None:
    with pytest.raises(ArgumentError, match=r"nothing was given for \{height\}, \{2\}"):
        Command(("x", "{{kept}}", "{height}", "{1}", "{2}"), inputs=("video",), defaults={}).words({"video": "/in/a.mov"}, FOLDER)
    with pytest.raises(ArgumentError, match=r"\{out2\}"):
        Command(("x", "{print}", "${HOME}", "{out2}"), outputs=("a",)).words({}, FOLDER)


def test_parameters_are_what_placeholders_ask_for() -> None:
    words = ("x", "{input}", "{height}", "{out}", "{output2}", "{1}", "{{no}}", "{height}")
    command = Command(words, inputs=("input",), outputs=("a", "b"))
    assert command.parameters() == ["input", "height"]


def test_a_command_survives_its_map() -> None:
    command = Command(("a", "b"), ("i",), ("o",), progress="(x)", defaults={"height": 720})
    assert Command.from_map(command.to_map()) == command
    command = Command(("a",), talks="json")
    assert Command.from_map(command.to_map()) == command


@pytest.mark.parametrize(
    "plain",
    [
        {}, {"argv": []}, {"argv": "text"}, {"argv": [1]}, {"argv": ["a"], "outputs": ["a/b"]}, {"argv": ["a"], "outputs": [".."]},
        {"argv": ["a"], "outputs": ["x", "x"]}, {"argv": ["a", "b"], "shell": True}, {"argv": ["a"], "progress": "("},
    ],
)  # fmt: skip
def test_a_command_that_is_none_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Command.from_map(plain)


def test_fill_and_placeholders_agree() -> None:
    assert placeholders("{a}{{b}}{1}{c d}") == ["a", "1"]
    assert fill("{a}{{b}}{1}{c d}", {"a": "x", "1": "y"}) == "x{b}y{c d}"


# -- the file that declares them -----------------------------------------------------------------------------------------

FILE = r"""
queue = "media"

[tasks.shrink]
command = ["ffmpeg", "-y", "-i", "{input}", "-vf", "scale=-2:{height}", "-crf", "{quality}", "{output}"]
output = "small.mp4"
args = { height = 720 }
progress = 'Duration: (?P<total>[\d:.]+)|time=(?P<done>[\d:.]+)'
needs = ["ffmpeg"]
timeout = "2h"
max_input = "10 GiB"
memory_limit = "1GiB"
backoff = { first = "10s", factor = 3 }
doc = "Makes it small."

[tasks.mux]
command = ["mkvmerge", "-o", "{out}", "{video}", "{subtitles}"]
inputs = ["video", "subtitles"]
outputs = ["muxed.mkv"]
"""


def commands(tmp_path: Path, text: str) -> dict[str, CommandTask]:
    path = tmp_path / "tasks.toml"
    path.write_text(text)
    return read_commands(path)


def test_a_file_declares_command_tasks(tmp_path: Path) -> None:
    tasks = commands(tmp_path, FILE)
    shrink = TaskDescription.from_map(tasks["shrink"].describe())
    assert (shrink.queue, shrink.timeout, shrink.needs, shrink.max_attempts) == ("media", 7200.0, frozenset({"ffmpeg"}), 3)
    assert (shrink.max_input, shrink.memory_limit, shrink.doc) == (10 << 30, 1 << 30, "Makes it small.")
    assert shrink.backoff is not None
    assert '"first": 10' in shrink.backoff
    assert shrink.command is not None
    assert Command.from_map(shrink.command).words({"input": "/in/a.mov", "quality": 23}, FOLDER)[5] == "scale=-2:720"
    assert list(shrink.parameters) == [
        {"name": "input", "annotation": "File", "is_file": True, "required": True},
        {"name": "height", "annotation": "int", "is_file": False, "required": False, "default": 720},
        {"name": "quality", "annotation": "str", "is_file": False, "required": True},
    ]
    mux = TaskDescription.from_map(tasks["mux"].describe())
    assert [(parameter["name"], parameter["is_file"]) for parameter in mux.parameters] == [("video", True), ("subtitles", True)]


def test_the_folder_of_the_file_takes_its_place_and_is_nothing_that_a_job_can_say(tmp_path: Path) -> None:
    folder = tmp_path / "a {folder} it's"
    folder.mkdir()
    text = """[tasks.a]\ncommand = ["sh", "{here}/x.sh", "{{here}}", "{word}"]\n"""
    task = commands(folder, text + """[tasks.b]\nshell = true\ncommand = "cat {here}/x"\n""")
    assert task["a"].command.words({"word": "{here}", "here": "/etc"}, FOLDER) == ["sh", f"{folder}/x.sh", "{here}", "{here}"]
    assert [each["name"] for each in task["a"].describe()["parameters"]] == ["word"]
    assert task["b"].command.words({}, FOLDER)[2] == f"cat {shlex.quote(str(folder))}/x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "is no TOML"),
        ("", "declares no task"),
        ("[tasks]", "declares no task"),
        ("[tasks.a]\nx = 1", "there is no key 'x'"),
        ("[tasks.a]\ncomand = ['a']", "did you mean 'command'"),
        ("[tasks.a]\ndoc = 'x'", "command is a list of words"),
        ("[tasks.a]\ncommand = 'rm -rf {input}'", "say shell = true"),
        ("[tasks.a]\ncommand = ['a', 1]", "a list of texts"),
        ("[tasks.a]\ncommand = ['a']\noutput = '/etc/passwd'", "an output is a plain file name"),
        ("[tasks.a]\ncommand = ['a']\ntimeout = 'soon'", "is no duration"),
        ("[tasks.a]\ncommand = ['a']\ntimeout = 0", "timeout is above 0"),
        ("[tasks.a]\ncommand = ['a']\nmax_attempts = 0", "max_attempts is at least 1"),
        ("[tasks.a]\ncommand = ['a']\nmax_attempts = true", "max_attempts is a int"),
        ("[tasks.a]\ncommand = ['a']\nneeds = 'gpu'", "needs is a list"),
        ("[tasks.a]\ncommand = ['a']\nbackoff = { last = 1 }", "backoff has the keys"),
        ("[tasks.a]\ncommand = ['a']\nprogress = '('", "no regular expression"),
        ("[tasks.a]\ncommand = ['a']\ntalks = 'xml'", 'talks is "json"'),
        ("[tasks.a]\ncommand = ['a']\nenv = { A = 1 }", "env holds names with a text each"),
        ("[tasks.a]\ncommand = ['a']\nenv = { 'A=B' = 'c' }", "env holds names with a text each"),
        ("[tasks.a]\ncommand = ['a']\ntalks = true", "talks is a str"),
        ("[tasks.a]\ncommand = ['a']\ntalks = 'json'\nprogress = '([0-9]+)%'", "tells its progress in a line of JSON"),
    ],
)
def test_a_file_that_can_not_be_used_says_where_and_why(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        commands(tmp_path, text)
    assert "tasks.toml" in str(caught.value)
