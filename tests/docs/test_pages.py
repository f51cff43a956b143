"""The documentation says what the code does: pages made from it are fresh, links lead somewhere, samples parse and run."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import p2pqueue
from p2pqueue import errors
from p2pqueue.cli.app import cli
from p2pqueue.jobs.options import ENQUEUE_OPTIONS, TASK_OPTIONS
from p2pqueue.settings import TABLE

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])}


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_page_made_from_the_code_is_fresh(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == generate.PAGES[name](), "run: make docs"


def all_commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    yield from generate.commands(cli, click.Context(cli, info_name="p2pqueue"))


@pytest.mark.parametrize(
    ("path", "command"), [(path, command) for path, command, _ in all_commands()], ids=[path for path, *_ in all_commands()]
)
def test_every_command_and_each_of_its_options_is_documented(path: str, command: click.Command) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    found = re.search(rf"^## `{re.escape(path)}`$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"{path} is not in cli.md"
    for option in generate.options(command):
        for spelling in (*option.opts, *option.secondary_opts):
            assert spelling in found[1], f"{path} {spelling} is not in cli.md"
        assert option.help, f"{path} {option.opts[-1]} says nothing"
    assert command.help or isinstance(command, click.Group)


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    for setting in TABLE:
        assert f"| `{setting.name}` |" in page
        assert f"`{setting.variable}`" in page


def test_every_public_name_and_each_of_its_members_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    for name in p2pqueue.__all__:
        public = getattr(p2pqueue, name)
        if isinstance(public, str) or (isinstance(public, type) and issubclass(public, BaseException)):
            continue
        assert f"## `{name}`" in page, name
        for member in vars(public) if isinstance(public, type) else ():
            if not member.startswith("_") and member not in generate.NOT_SHOWN:
                assert f"`{member}`" in page or f"`{name}.{member}`" in page, f"{name}.{member}"


def test_every_option_of_a_task_and_of_an_enqueueing_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    for option in {*TASK_OPTIONS, *ENQUEUE_OPTIONS}:
        assert f"| `{option}` | `" in page, option


def test_every_error_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__module__ == errors.__name__:
            assert re.search(rf"^#+ `{name}`$", page, re.MULTILINE), name


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[name].read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        page = (PAGES[name].parent / file).resolve() if file else PAGES[name]
        assert page.exists(), f"{name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], f"{name}: {target}"


@pytest.mark.parametrize("name", PAGES)
def test_every_sample_parses(name: str) -> None:
    text = PAGES[name].read_text()
    for sample in blocks(text, "python"):
        ast.parse(sample)
    for sample in blocks(text, "toml"):
        tomllib.loads(sample)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_page_shows_exists_with_its_options(name: str) -> None:
    known = {path: {spelling for option in command.params for spelling in option.opts} for path, command, _ in all_commands()}
    everywhere = {spelling for option in cli.params for spelling in option.opts}
    for line in re.findall(r"^    (p2pqueue .+)$", PAGES[name].read_text(), re.MULTILINE):
        for part in line.split("#")[0].split(" && "):
            check_typed(re.split(r" -- | \| ", part)[0].split(), known, everywhere, f"{name}: {line}")


def check_typed(words: list[str], known: dict[str, set[str]], everywhere: set[str], where: str) -> None:
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        assert rest[0] in everywhere, where
        rest = rest[2:] if rest[0] == "--home" else rest[1:]
    if not rest or rest[0].isupper():
        return
    path = f"p2pqueue {rest[0]}"
    assert path in known, where
    if len(rest) > 1 and f"{path} {rest[1]}" in known:
        path = f"{path} {rest[1]}"
    for word in rest[1:]:
        if re.match(r"--?[a-z]", word):
            assert word.split("=")[0] in known[path] | everywhere, f"{where}: {word}"


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_readme_names_every_page_and_every_example() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.toml")]:
        assert str(page.relative_to(ROOT)) in readme, page.name


@pytest.mark.parametrize("name", PAGES)
def test_no_page_names_a_machine_of_ours(name: str) -> None:
    text = PAGES[name].read_text()
    assert not re.search(r"/(work|root|home)/\w|localhost:\d{4,}|/tmp/plan", text)
