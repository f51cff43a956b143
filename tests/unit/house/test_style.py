"""The rules of the house that no linter knows: no code in data, small files, short functions, pure modules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "p2pqueue"
LONGEST_FILE = 350  # lines
LONGEST_FUNCTION = 60  # lines
WORLD = {"asyncio", "socket", "sqlite3", "subprocess", "time", "random", "threading"}
DATA_THAT_RUNS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle", "yaml"}


@cache
def modules() -> dict[str, tuple[str, ast.Module]]:
    """Name, text and syntax tree of each module of the package."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: (text, ast.parse(text)) for name, text in texts.items()}


def calls() -> Iterator[tuple[str, str]]:
    """Every call in the package: where, and what is called."""
    for name, (_, tree) in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield f"{name}:{node.lineno}", ast.unparse(node.func)


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def pure_modules() -> list[str]:
    """The modules whose docstring says that they are pure."""
    return [name for name, (_, tree) in modules().items() if re.search(r"\bPure\b", ast.get_docstring(tree) or "")]


def test_nothing_that_was_stored_or_sent_is_run() -> None:
    assert [name for name, (_, tree) in modules().items() if DATA_THAT_RUNS & set(imported(tree))] == []
    runs = ("eval", "exec", "compile", "__import__")
    assert [(where, called) for where, called in calls() if called in runs or called.startswith(("pickle.", "marshal.", "yaml."))] == []


def test_every_module_says_which_question_it_answers() -> None:
    assert [name for name, (text, tree) in modules().items() if text.strip() and not ast.get_docstring(tree)] == []


def test_every_file_has_one_subject() -> None:
    assert [(name, lines) for name, (text, _) in modules().items() if (lines := len(text.splitlines())) > LONGEST_FILE] == []


def test_every_function_fits_on_a_screen() -> None:
    long = []
    for name, (_, tree) in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                long += [(name, node.name, length)] if length > LONGEST_FUNCTION else []
    assert long == []


def test_every_file_is_named_after_its_subject() -> None:
    assert [name for name in modules() if re.search(r"(^|[/_])(utils?|helpers?|managers?|base|common|misc)([_./]|$)", name)] == []


def test_every_task_has_an_owner_and_every_wait_a_timeout_that_keeps_cancels() -> None:
    ownerless = ("asyncio.create_task", "asyncio.ensure_future", "asyncio.wait_for")
    assert [(where, called) for where, called in calls() if called in ownerless] == []


def test_every_pure_module_imports_nothing_of_the_world() -> None:
    assert [name for name in pure_modules() if WORLD & set(imported(modules()[name][1]))] == []


def test_every_module_that_calls_itself_pure_is_held_to_it_by_the_import_rules() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = next(contract for contract in contracts if contract["name"].startswith("Pure"))["source_modules"]
    assert sorted(set(held) - {name.removesuffix(".py").replace("/", ".") for name in modules()}) == []
    assert sorted({name.removesuffix(".py").replace("/", ".") for name in pure_modules()} - set(held)) == []
