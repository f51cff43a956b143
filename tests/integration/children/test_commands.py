from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from p2pqueue import wire
from p2pqueue.workers.children.protocol import Failed, FileGrant, Outcome, OutputFile, Stopped, Succeeded, TimedOut
from p2pqueue.workers.running.pool import Pool
from tests.integration.children.stage import Stage, lives

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare_pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pool]:
    """A pool without an application: that of a node which runs only programs."""
    pool = Pool(None, home=tmp_path_factory.mktemp("home"), size=1)
    assert await pool.start() == []
    yield pool
    await pool.close()


@pytest.fixture
def bare(bare_pool: Pool, tmp_path: Path) -> Stage:
    return Stage(tmp_path, bare_pool)


async def perform(stage: Stage, argv: list[str], key: str = "this", *, limits: dict[str, Any] | None = None, **command: Any) -> Outcome:
    args = command.pop("args", {})
    files = {name: FileGrant(path, None, Path(path).name, None) for name, path in command.pop("files", {}).items()}
    args |= {name: {"__file__": name} for name in files}
    return await stage.run("exec", key, options={"command": {"argv": argv} | command, "files": files} | (limits or {}), **args)


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


async def test_a_program_without_outputs_gives_what_it_printed(bare: Stage) -> None:
    outcome = await perform(bare, ["echo", "hello", "$HOME", "*"])
    assert outcome == Succeeded(wire.pack("hello $HOME *"))
    assert bare.log("this") == "hello $HOME *\n"


async def test_inputs_arguments_and_outputs_take_their_places(bare: Stage, tmp_path: Path) -> None:
    source = tmp_path / "a file; rm -rf ~.txt"
    source.write_text("content")
    copy = "import sys; open(sys.argv[2], 'w').write(open(sys.argv[1]).read() * int(sys.argv[3]))"
    outcome = await perform(
        bare, python(copy, "{1}", "{out}", "{times}"), outputs=["copy.txt"], files={"1": str(source)}, args={"times": 3}
    )
    assert isinstance(outcome, Succeeded)
    assert wire.unpack(outcome.result) == {"__file__": "result"}
    (output,) = outcome.outputs
    assert output == OutputFile("result", str(tmp_path / "work" / "this" / "copy.txt"), label="copy.txt")
    assert output.path is not None
    assert Path(output.path).read_text() == "content" * 3


async def test_several_outputs_are_named(bare: Stage) -> None:
    outcome = await perform(bare, ["touch", "{out1}", "b.txt"], outputs=["a.txt", "b.txt"])
    assert isinstance(outcome, Succeeded)
    assert wire.unpack(outcome.result) == {"a.txt": {"__file__": "a.txt"}, "b.txt": {"__file__": "b.txt"}}
    assert [output.name for output in outcome.outputs] == ["a.txt", "b.txt"]


async def test_an_exit_status_is_a_failure_with_the_last_lines(bare: Stage) -> None:
    outcome = await perform(bare, ["sh", "-c", "echo at work; echo no such codec >&2; exit 3"])
    assert isinstance(outcome, Failed)
    assert outcome.error == "sh ended with exit status 3: at work | no such codec"
    assert outcome.log_tail == "at work\nno such codec\n"
    assert outcome.traceback is None


async def test_a_failure_quotes_no_more_than_the_last_few_lines_that_say_something(bare: Stage) -> None:
    outcome = await perform(bare, ["sh", "-c", "for n in 1 2 3 4 5 6; do echo line $n; echo; done; exit 3"])
    assert isinstance(outcome, Failed)
    assert outcome.error == "sh ended with exit status 3: line 2 | line 3 | line 4 | line 5 | line 6"


async def test_a_placeholder_without_a_value_fails_for_good_before_the_program_starts(bare: Stage, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    outcome = await perform(bare, ["touch", str(trace), "{height}"], defaults={})
    assert isinstance(outcome, Failed)
    assert outcome.final
    assert "nothing was given for {height}" in outcome.error
    assert not trace.exists()


async def test_a_program_that_is_not_there_fails_in_words(bare: Stage) -> None:
    outcome = await perform(bare, ["no-such-program"])
    assert isinstance(outcome, Failed)
    assert outcome.error == "the program 'no-such-program' can't be started here: No such file or directory"


async def test_a_missing_output_is_a_failure(bare: Stage) -> None:
    outcome = await perform(bare, ["true"], outputs=["never.txt"])
    assert isinstance(outcome, Failed)
    assert outcome.error == "the program ended well but did not write never.txt"


async def test_progress_is_read_from_what_the_program_prints(bare: Stage) -> None:
    code = "import time\nfor n in (25, 50, 100):\n  print(f'{n}% done', end='\\r', flush=True)\n  time.sleep(0.1)"
    outcome = await perform(bare, python(code), progress=r"(\d+)%")
    assert isinstance(outcome, Succeeded)
    assert [fraction for fraction, _ in bare.progress] == [0.25, 0.5, 1.0]


async def test_a_shell_reads_the_words_only_where_asked_and_values_are_quoted_for_it(bare: Stage) -> None:
    outcome = await perform(bare, ["echo {word} | tr a-z A-Z"], shell=True, args={"word": "it's; echo no"})
    assert outcome == Succeeded(wire.pack("IT'S; ECHO NO"))


async def test_a_program_runs_in_the_folder_of_its_attempt(bare: Stage, tmp_path: Path) -> None:
    assert await perform(bare, ["pwd"]) == Succeeded(wire.pack(str(tmp_path / "work" / "this")))


@pytest.mark.parametrize("talks", [None, "json"])
async def test_a_program_finds_the_environment_that_its_task_names(bare: Stage, talks: str | None) -> None:
    argv = ["sh", "-c", """printf '{{"result": "%s"}}' "$WORD" """]
    outcome = await perform(bare, argv, env={"WORD": "given"}, defaults={}, talks=talks)
    assert outcome == Succeeded(wire.pack("given" if talks else '{"result": "given"}'))


async def test_a_program_that_takes_too_long_is_ended(bare: Stage) -> None:
    outcome = await perform(bare, ["sh", "-c", "echo $$; sleep 60"], limits={"deadline": 0.3})
    assert isinstance(outcome, TimedOut)
    assert not lives(int(bare.log("this")))


async def test_a_stopped_program_is_ended(bare: Stage) -> None:
    asyncio.get_running_loop().call_later(0.3, bare.pool.stop, "this", "held")
    assert await perform(bare, ["sleep", "60"]) == Stopped("held")


@pytest.mark.parametrize(
    "command", [{"argv": []}, {"argv": "rm -rf /"}, {"argv": ["a"], "outputs": ["../x"]}, {"argv": ["a"], "progress": "("}]
)
async def test_a_command_that_is_none_fails_in_words(bare: Stage, command: dict[str, Any]) -> None:
    outcome = await bare.run("exec", options={"command": command})
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("p2pqueue.errors.ConfigError: ")
