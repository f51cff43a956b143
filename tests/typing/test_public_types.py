"""The public names under mypy and pyright: right use passes, each mistake is found on its line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAMPLES = (HERE / "good.py", HERE / "wrong.py")

Findings = set[tuple[str, int]]  # (file name, line)


def find_with_mypy() -> Findings:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *map(str, SAMPLES)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^tests/typing/(\w+\.py):(\d+): error", output, re.MULTILINE)
    assert found, output
    return {(name, int(line)) for name, line in found}


def find_with_pyright() -> Findings:
    program = shutil.which("pyright", path=sysconfig.get_path("scripts")) or shutil.which("pyright")
    assert program is not None, "pyright is one of the dev tools; pip install 'p2pqueue[dev]'"
    command = [program, "--outputjson", "--pythonpath", sys.executable, *map(str, SAMPLES)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(output.stdout or "{}")
    assert "generalDiagnostics" in report, output.stdout + output.stderr
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


def mistakes() -> Findings:
    lines = (HERE / "wrong.py").read_text().splitlines()
    return {("wrong.py", number) for number, line in enumerate(lines, 1) if "# mistake:" in line}


@pytest.mark.slow
@pytest.mark.timeout(300)  # a type checker without its cache reads every dependency
@pytest.mark.parametrize("find", [find_with_mypy, find_with_pyright])
def test_a_type_checker_finds_each_mistake_and_nothing_else(find: Callable[[], Findings]) -> None:
    assert find() == mistakes()
