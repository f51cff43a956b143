"""The package itself: what it names, and what naming costs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import p2pqueue

ROOT = Path(p2pqueue.__file__).parents[1]


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=50).stdout


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import p2pqueue; print(sorted(set(sys.modules) - before))"
    assert run(code).strip() == "['p2pqueue']"


def test_importing_the_package_takes_less_than_five_milliseconds() -> None:
    code = "import time; start = time.process_time(); import p2pqueue; print(time.process_time() - start)"
    assert min(float(run(code)) for _ in range(10)) < 0.005  # of the processor: the clock on the wall tells of other programs


def test_declaring_a_task_imports_no_more_than_a_worker_process_needs() -> None:
    """Every idle child would pay for it."""
    code = "import sys; from p2pqueue import Queue, Backoff, Retry; Queue('q').task(name='t')(lambda x: x); print(*sys.modules)"
    loaded = set(run(code).split())
    assert "p2pqueue.jobs.task" in loaded
    assert not loaded & {"asyncio", "sqlite3", "logging", "nacl", "blake3", "click", "aiohttp", "p2pqueue.replica", "p2pqueue.payload"}


def test_every_public_name_can_be_imported() -> None:
    for name in p2pqueue.__all__:
        assert getattr(p2pqueue, name) is not None
    assert set(p2pqueue.__all__) <= set(dir(p2pqueue))


def test_every_error_of_the_tree_is_public() -> None:
    errors = importlib.import_module("p2pqueue.errors")
    declared = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, BaseException)}
    assert declared <= set(p2pqueue.__all__)


def test_a_type_checker_sees_the_names_that_a_program_gets() -> None:
    tree = ast.parse(Path(p2pqueue.__file__).read_text())
    seen = {f"{node.module}.{alias.name}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    given = {f"{home}.{name}" for name, home in p2pqueue._HOME_OF.items()}  # type: ignore[attr-defined]
    assert seen - {"importlib.import_module"} == given


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'daily_bread'"):
        p2pqueue.daily_bread  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert p2pqueue.__version__ == project["version"]
