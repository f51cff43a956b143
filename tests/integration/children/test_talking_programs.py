"""Programs that are told their job, and tell of it, by lines of JSON."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from p2pqueue import wire
from p2pqueue.workers.children.protocol import Continued, Failed, FileGrant, Outcome, OutputFile, RetryLater, Stopped, Succeeded, TimedOut
from p2pqueue.workers.running.pool import Pool
from tests.integration.children.stage import Stage, lives, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

READ = "import json, os, signal, sys, time; job = json.loads(sys.stdin.readline())\n"
SAY = "say = lambda **words: print(json.dumps(words, default=str), flush=True)\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare_pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pool]:
    """A pool without an application: that of a node which runs only programs."""
    pool = Pool(None, home=tmp_path_factory.mktemp("home"), size=1)
    await pool.start()
    yield pool
    await pool.close()


@pytest.fixture
def bare(bare_pool: Pool, tmp_path: Path) -> Stage:
    return Stage(tmp_path, bare_pool)


async def perform(stage: Stage, argv: list[str], *, options: dict[str, Any] | None = None, **command: Any) -> Outcome:
    args = command.pop("args", {})
    command = {"argv": argv, "talks": "json", "defaults": {}} | command
    return await stage.run("exec", "this", options={"command": command} | (options or {}), **args)


async def python(stage: Stage, code: str, **command: Any) -> Outcome:
    return await perform(stage, [sys.executable, "-c", READ + SAY + code], **command)


async def shell(stage: Stage, code: str, **command: Any) -> Outcome:
    return await perform(stage, ["sh", "-c", code.replace("{", "{{").replace("}", "}}")], **command)


def value(outcome: Outcome) -> Any:
    assert isinstance(outcome, Succeeded), outcome
    return wire.unpack(outcome.result)


async def test_a_program_is_told_its_job_in_one_line(bare: Stage, tmp_path: Path) -> None:
    source = tmp_path / "a file"
    source.write_text("content")
    args = {"times": 3, "raw": b"\0\xff", "input": {"__file__": "input"}}
    options = {
        "attempt": 2, "deadline": 60.0, "resume_from": wire.pack({"at": 7}), "files": {"input": FileGrant(str(source), None, "a file", 7)},
    }  # fmt: skip
    told = value(await python(bare, "say(result=job)", args=args, options=options, defaults={"times": 1, "height": 720}))
    assert told.pop("deadline").endswith("Z")
    assert told == {
        "id": "job-this", "task": "exec", "attempt": 2, "checkpoint": {"at": 7}, "timeout": 60.0,
        "args": {"times": 3, "height": 720, "raw": "AP8=", "input": str(source)},
        "files": {"input": {"path": str(source), "name": "a file", "size": 7}}, "workdir": str(tmp_path / "work" / "this"),
    }  # fmt: skip


async def test_a_shell_tells_progress_checkpoints_and_a_result_and_the_rest_is_its_log(bare: Stage) -> None:
    code = """
    read -r job
    echo at work; echo beside it >&2
    printf '{"progress": 0.5, "phase": "half"}\\n'; sleep 0.1
    printf '{"checkpoint": {"at": 1}}\\n{"log": "noted"}\\n{"level": "info"}\\n{no json}\\n[1]\\n'
    printf '{"result": [1, "two", null]}'
    """
    assert value(await shell(bare, code)) == [1, "two", None]
    assert bare.progress[0] == (0.5, "half")
    assert bare.checkpoints == [{"at": 1}]
    assert sorted(bare.log("this").splitlines()) == sorted(["at work", "beside it", "noted", '{"level": "info"}', "{no json}", "[1]"])


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
async def test_node_js_reads_its_job_line_by_line_and_ends_when_its_input_does(bare: Stage) -> None:
    code = """
    const say = words => console.log(JSON.stringify(words));
    require("readline").createInterface({ input: process.stdin }).on("line", line => {
      const job = JSON.parse(line);
      say({ progress: 0.5 });
      say({ result: job.args.word.toUpperCase() });
    });
    """
    outcome = await perform(bare, ["node", "-e", code.replace("{", "{{").replace("}", "}}")], args={"word": "grüße"})
    assert value(outcome) == "GRÜSSE"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("say(error='no such codec'); sys.exit(3)", Failed("no such codec", None, ("ProgramFailed", "Exception"))),
        ("say(error='never', retry=False)", Failed("never", None, ("ProgramFailed", "Exception"), final=True)),
        ("say(retry_in=2.5, reason='busy')", RetryLater("busy", 2.5)),
        ("say(retry_in=0)", RetryLater("the program asked for a retry", 0.0)),
        ("exec('say(**{\"continue\": [1, 2]})')", Continued(wire.pack([1, 2]))),
        ("say(progress=1, log='all', result=None)", Succeeded(wire.pack(None))),
    ],
)
async def test_each_end_is_what_a_handler_of_python_would_make_of_it(bare: Stage, code: str, outcome: Outcome) -> None:
    ended = await python(bare, code)
    assert (ended.changed(log_tail=None) if isinstance(ended, Failed) else ended) == outcome


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("exit 3", "sh ended with exit status 3"),
        ("echo ready; echo no such file >&2; exit 3", "no such file"),
        ("kill -9 $$", "sh was killed by signal 9"),
        ("echo done", "sh ended with exit status 0 and told no result: done"),
        ("""printf '{"result": 1]\\n'""", "a line that it wrote is no JSON: Expecting ',' delimiter"),
        ("""printf '{"result": 1}\\n'; echo disk full >&2; exit 4""", "sh ended with exit status 4, after its result: disk full"),
        ("""printf '{"result": {"file": "never"}}\\n'""", "told of a file that is not there: never"),
    ],
)
async def test_an_end_without_a_good_result_is_a_failure_in_words(bare: Stage, code: str, words: str) -> None:
    outcome = await shell(bare, code)
    assert isinstance(outcome, Failed)
    assert words in outcome.error
    assert not outcome.final


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"result": NaN}', "NaN, which is no JSON"),
        (b'{"result": "\xff"}', "not UTF-8, at its byte 13"),
        (b'{"result": "' + b"x" * 66_000 + b'"}', "more than 65,536 bytes"),
        (b'{"result": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "nested too deep"),
        (b'{"result": ' + b"[" * 40 + b"]" * 40 + b"}", "nested deeper"),
        (b'{"result": 1e400, "error": "x"}', "result and error: an attempt ends in one way"),
        (b'{"result": 1}\n{"result": 2}', "result after result"),
        (b'{"result": 123456789012345678901234567890}', "beyond 64 bits"),
        (b'{"result": "\\ud800"}', "lone surrogate"),
        (b'{"result": {"__file__": "x"}}', "reserved for files"),
        (b'{"progress": "40%"}', 'progress is a number, not "40%"'),
        (b'{"progress": true}', "progress is a number, not true"),
        (b'{"progress": 1e999}', "too large"),
        (b'{"retry_in": -1}', "from 0 on, not -1"),
        (b'{"error": {"code": 3}}', 'error is a text, not {"code": 3}'),
        (b'{"error": "x", "retry": "no"}', 'true or false, not "no"'),
        (b'{"checkpoint": [' + b"1e0," * 15_000 + b"1]}", "a state of 135,004 bytes, and 65,536 fit"),
        (b'{"continue": [' + b"1e0," * 15_000 + b"1]}", "a state of 135,004 bytes, and 65,536 fit"),
        (b'{"result": [' + b"1e0," * 15_000 + b"1]}", "the result takes 135,004 bytes, and 65,536 fit"),
        (b'{"checkpoint": {"a": ' + b"[" * 40 + b"]" * 40 + b"}}", "nest"),
    ],
)  # fmt: skip
async def test_a_line_that_can_not_be_taken_ends_in_a_clear_error_and_the_worker_goes_on(bare: Stage, line: bytes, words: str) -> None:
    (bare.folder / "line").write_bytes(line + b"\n")
    outcome = await perform(bare, ["cat", str(bare.folder / "line")])
    assert isinstance(outcome, Failed)
    assert words in outcome.error
    assert value(await shell(bare, """printf '{"result": "well"}'""")) == "well"


async def test_a_flood_that_is_not_for_the_node_is_its_log_and_never_read_as_more(bare: Stage) -> None:
    code = "sys.stdout.write('x' * 200_000 + '{\"result\": 1}' + '\\n'); sys.stdout.buffer.write(b'\\xff\\xfe\\n'); say(result='real')"
    assert value(await python(bare, code)) == "real"
    assert "\ufffd\ufffd" in bare.log("this")


async def test_a_program_that_reads_nothing_and_writes_much_is_not_waited_for(bare: Stage) -> None:
    code = "import json\nfor n in range(20_000): print(json.dumps({'progress': n / 20_000, 'phase': 'x' * 80}))\nprint('{\"result\": 1}')"
    argv = [sys.executable, "-c", code.replace("{", "{{").replace("}", "}}")]
    assert value(await perform(bare, argv, args={"much": "y" * 60_000, "more": "é" * 1000})) == 1


async def test_a_checkpoint_is_on_disk_before_the_next_line_is_taken(bare: Stage) -> None:
    code = "for n in range(20): say(checkpoint=n)\nsay(result='end')"
    assert value(await python(bare, code)) == "end"
    assert bare.checkpoints == list(range(20))


async def test_a_file_is_a_result_by_its_path_and_so_are_the_outputs_of_a_task(bare: Stage) -> None:
    work = bare.folder / "work" / "this"
    outcome = await shell(bare, """echo made > made.txt; printf '{"result": {"file": "made.txt"}}'""")
    assert value(outcome) == {"__file__": "result"}
    assert isinstance(outcome, Succeeded)
    assert outcome.outputs == (OutputFile("result", str(work / "made.txt"), label="made.txt"),)
    outcome = await perform(bare, ["touch", "{out1}", "{out2}"], outputs=["a.txt", "b.txt"])
    assert value(outcome) == {"a.txt": {"__file__": "a.txt"}, "b.txt": {"__file__": "b.txt"}}


@pytest.mark.parametrize(("why", "word"), [("cancelled", "cancelled"), ("held", "paused"), ("shutdown", "shutdown"), ("lost", "lost")])
async def test_a_stop_is_a_line_before_it_is_a_signal_and_a_checkpoint_still_counts(bare: Stage, why: Any, word: str) -> None:
    code = f"""
open({str(bare.note)!r}, "w").write("ready")
stop = json.loads(sys.stdin.readline())
say(checkpoint=stop)
"""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(python(bare, code))
        await bare.wait_for_note()
        bare.pool.stop("this", why)
    assert running.result() == Stopped(why)
    assert bare.checkpoints == [{"stop": word}]


async def test_a_stop_at_any_moment_gives_one_of_two_outcomes_and_the_next_job_runs(bare: Stage) -> None:
    rng = random.Random(3)
    for _ in range(12):
        asyncio.get_running_loop().call_later(rng.uniform(0.0, 0.12), bare.pool.stop, "this", "held")
        outcome = await shell(bare, """read -r job; sleep 0.03; printf '{"checkpoint": 1}\\n{"result": 1}\\n'""")
        assert outcome in (Stopped("held"), Succeeded(wire.pack(1)))
    await asyncio.sleep(0.15)  # a stop that came too late finds nothing
    assert value(await shell(bare, """printf '{"result": "well"}'""")) == "well"


async def test_a_program_that_heeds_neither_line_nor_term_is_gone_all_the_same_with_what_it_started(bare: Stage) -> None:
    code = f"""
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen(["sleep", "60"])
open({str(bare.note)!r}, "w").write(f"{{os.getpid()}} {{other.pid}}")
time.sleep(60)
"""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(python(bare, code.replace("{", "{{").replace("}", "}}")))
        await until(lambda: bare.note.exists() and len(bare.note.read_text().split()) == 2)
        bare.pool.stop("this", "cancelled")
    assert running.result() == Stopped("cancelled")
    assert not [pid for pid in map(int, bare.note.read_text().split()) if lives(pid)]


async def test_a_program_that_takes_too_long_is_told_so(bare: Stage) -> None:
    outcome = await python(bare, "say(checkpoint=json.loads(sys.stdin.readline()))", options={"deadline": 0.5})
    assert isinstance(outcome, TimedOut)
    assert bare.checkpoints == [{"stop": "timeout"}]


async def test_what_a_program_leaves_running_does_not_hold_its_job_up(bare: Stage) -> None:
    outcome = await shell(bare, """sleep 60 & echo $! > "$0"; printf '{"result": 1}\\n'""".replace("$0", str(bare.note)))
    assert value(outcome) == 1
    assert not lives(int(bare.note.read_text()))


async def test_a_flood_from_what_a_program_leaves_running_does_not_hold_its_job_up(bare: Stage) -> None:
    assert value(await shell(bare, """yes & printf '{"result": 1}\\n'""")) == 1


async def test_a_stop_after_the_result_ends_a_program_that_lingers(bare: Stage) -> None:
    code = f"say(result=1); open({str(bare.note)!r}, 'w').write('told'); time.sleep(60)"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(python(bare, code))
        await bare.wait_for_note()
        bare.pool.stop("this", "cancelled")
    assert running.result() == Stopped("cancelled")


async def test_a_program_that_lingers_after_its_result_is_ended_and_the_result_counts(bare: Stage) -> None:
    assert value(await python(bare, "say(result=1); time.sleep(60)")) == 1


async def test_random_lines_never_end_the_worker(bare: Stage) -> None:
    rng = random.Random(5)
    seeds = [
        b'{"progress": 0.5}',
        b'{"checkpoint": [1]}',
        b'{"log": "x"}',
        b'{"result": {"a": [1, 2.5, null]}}',
        b'{"retry_in": 3}',
        b"plain",
    ]
    for round_ in range(25):
        lines = []
        for _ in range(30):
            line = bytearray(rng.choice(seeds))
            for _ in range(rng.randint(0, 3)):
                line[rng.randrange(len(line))] = rng.choice(b'{}[]",:\\0\xff\x00\r\n9eE-\x80')
            lines.append(bytes(line))
        (bare.folder / "lines").write_bytes(b"\n".join(lines))
        outcome = await perform(bare, ["cat", str(bare.folder / "lines")])
        assert isinstance(outcome, (Failed, Succeeded, RetryLater)), (round_, outcome)
    assert value(await shell(bare, """printf '{"result": "well"}'""")) == "well"
