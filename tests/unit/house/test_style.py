"""The rules of the house that no linter knows: no code in data, small files, short functions, pure modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "p2pqueue"
FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
LONGEST_FILE = 350  # lines
LONGEST_FUNCTION = 60  # lines
WORLD = {"asyncio", "socket", "sqlite3", "subprocess", "time", "random", "threading"}
DATA_THAT_RUNS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}


def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text())


def imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("name", FILES)
def test_nothing_that_was_stored_or_sent_is_run(name: str) -> None:
    module = tree(name)
    assert not DATA_THAT_RUNS & set(imported(module))
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load"), f"{name}:{node.lineno}"
            assert not called.startswith(("pickle.", "marshal.")), f"{name}:{node.lineno}"


@pytest.mark.parametrize("name", FILES)
def test_a_module_says_which_question_it_answers(name: str) -> None:
    if FILES[name].read_text().strip():
        assert ast.get_docstring(tree(name)), name


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_one_subject_and_its_functions_fit_on_a_screen(name: str) -> None:
    assert len(FILES[name].read_text().splitlines()) <= LONGEST_FILE
    for node in ast.walk(tree(name)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{name}: {node.name} has {length} lines"


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_named_after_its_subject(name: str) -> None:
    assert not re.search(r"(^|[/_])(utils?|helpers?|managers?|base|common|misc)([_.]|$)", name)


@pytest.mark.parametrize("name", FILES)
def test_a_task_has_an_owner_and_a_wait_a_timeout_that_keeps_cancels(name: str) -> None:
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("asyncio.create_task", "asyncio.ensure_future", "asyncio.wait_for"), f"{name}:{node.lineno}"


@pytest.mark.parametrize("name", FILES)
def test_a_module_that_calls_itself_pure_imports_nothing_of_the_world(name: str) -> None:
    module = tree(name)
    if re.search(r"\bPure\b", ast.get_docstring(module) or ""):
        assert not WORLD & set(imported(module))
