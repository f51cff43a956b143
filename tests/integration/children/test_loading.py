from __future__ import annotations

from pathlib import Path

import pytest

from p2pqueue.errors import ConfigError
from p2pqueue.workers.children.protocol import TaskDescription
from p2pqueue.workers.running.pool import Pool
from tests.integration.children.stage import Stage, lives


async def start(folder: Path, application: str) -> list[TaskDescription]:
    pool = Pool(application, home=folder, size=1)
    try:
        return await pool.start()
    finally:
        await pool.close()


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


SIMPLE = """
from p2pqueue import File, Queue
queue = Queue("simple")

@queue.task(max_attempts=5, timeout=3.5, needs={"gpu"})
def work(video: File, height: int = 720) -> None:
    '''Does it.'''
"""


async def test_the_first_child_tells_the_tasks_it_found(tmp_path: Path) -> None:
    (task,) = await start(tmp_path, write(tmp_path, "simple.py", SIMPLE))
    assert (task.name, task.queue, task.max_attempts, task.timeout, task.needs) == ("work", "simple", 5, 3.5, frozenset({"gpu"}))
    assert [parameter["name"] for parameter in task.parameters if parameter["is_file"]] == ["video"]
    assert task.doc == "Does it."


async def test_a_module_is_found_where_the_nodes_program_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "neighbour.py", "WORDS = 'from next door'")
    write(tmp_path, "some_tasks.py", "import neighbour\n" + SIMPLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [task.name for task in await start(tmp_path, "some_tasks:queue")] == ["work"]


async def test_a_file_that_bears_the_name_of_a_standard_module_shadows_nothing(tmp_path: Path) -> None:
    text = SIMPLE + "\n@queue.task\nasync def later() -> str:\n    import queue, random\n    return queue.__name__ + random.__file__\n"
    write(tmp_path, "random.py", "raise SystemExit('shadowed')")
    stage = Stage(tmp_path, Pool(write(tmp_path, "queue.py", text), home=tmp_path, size=1))
    await stage.pool.start()
    assert str(tmp_path) not in await stage.value("later")
    await stage.pool.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(5)", "SystemExit: 5"),
        ("import os; os._exit(3)", "its process ended with exit status 3"),
        ("import os; print('last words', flush=True); os.abort()", "its process was killed by signal 6 (SIGABRT)"),
        ("x = 1", "declares no queue"),
    ],
)
async def test_what_keeps_an_application_from_loading_is_said_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    application = write(tmp_path, "broken.py", text)
    with pytest.raises(ConfigError) as caught:
        await start(tmp_path, application)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_the_line_that_failed_is_named(tmp_path: Path) -> None:
    application = write(tmp_path, "broken.py", "\n\nimport helper_of_it\n")
    write(tmp_path, "helper_of_it.py", "\nraise ValueError('here')\n")
    with pytest.raises(ConfigError, match=r"ValueError: here \(.*helper_of_it\.py, line 2\)"):
        await start(tmp_path, application)


@pytest.mark.parametrize(
    ("application", "words"),
    [
        ("no/such/file.py", "there is no file no/such/file.py"),
        ("no_such_module_at_all:queue", "there is no such file, and no module named 'no_such_module_at_all'; name a Python"),
        ("no/such/file.toml", "can't be read"),
        ("os:path", "is no queue"),
        ("os:nothing", "has no 'nothing'"),
        ("what is this", "'what is this' is no application: there is no such file; name a Python file with a queue"),
        ("{folder}", "is a folder, and no application; name a Python file with a queue"),
        ("{folder}/texts.txt", "texts.txt' is a .txt file, and no application; name a Python file with a queue"),
        ("{folder}/texts.txt:queue", "texts.txt' is a .txt file, and no application; name a Python file with a queue"),
        ("{folder}/texts", "is a file without an ending, and no application; name a Python file with a queue"),
    ],
)
async def test_an_application_that_is_not_there_is_refused_in_words(tmp_path: Path, application: str, words: str) -> None:
    for name in ("texts.txt", "texts"):
        write(tmp_path, name, "some words")
    with pytest.raises(ConfigError, match=words):
        await start(tmp_path, application.format(folder=tmp_path))


async def test_an_application_that_breaks_later_keeps_jobs_from_starting_and_is_told(tmp_path: Path) -> None:
    application = write(tmp_path, "simple.py", SIMPLE + "\n@queue.task\ndef die() -> None:\n    import os\n    os._exit(1)\n")
    stage = Stage(tmp_path, Pool(application, home=tmp_path, size=1))
    await stage.pool.start()
    write(tmp_path, "simple.py", "raise ValueError('edited')")
    await stage.run("die")
    with pytest.raises(ConfigError, match="edited"):
        await stage.run("die")
    write(tmp_path, "simple.py", SIMPLE)
    assert "no task" in str(await stage.run("die"))
    pids = [child.pid for child in stage.pool._children]
    await stage.pool.close()
    assert not any(lives(pid) for pid in pids)


async def test_what_is_printed_while_loading_goes_to_the_nodes_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await start(tmp_path, write(tmp_path, "simple.py", "import os; print('hello'); os.write(1, b'\\xff\\xff\\xff\\xff')\n" + SIMPLE))
    captured = capsys.readouterr()
    assert "hello" in captured.err
    assert captured.out == ""
