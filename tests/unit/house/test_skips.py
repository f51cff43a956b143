"""A skip is a failure where every test has to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CASES = {
    "a test": "import pytest\n\ndef test_one():\n    pytest.skip('no ffmpeg here')\n",
    "a mark": "import pytest\n\n@pytest.mark.skip(reason='no ffmpeg here')\ndef test_one():\n    pass\n",
    "a module": "import pytest\n\npytest.skip('no ffmpeg here', allow_module_level=True)\n",
}


@pytest.mark.parametrize(("variable", "code", "failures"), [("1", (1, 2), 3), ("", (0, 5), 0)], ids=["in CI", "at home"])
def test_a_skip_fails_only_where_all_tests_must_run(variable: str, code: tuple[int, ...], failures: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    for number, text in enumerate(CASES.values()):
        (tmp_path / f"test_{number}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "P2PQUEUE_TEST_ALL": variable}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=50)
    assert ran.returncode in code, ran.stdout
    assert ran.stdout.count("skipped although P2PQUEUE_TEST_ALL is set: ") >= failures
    assert ran.stdout.count("no ffmpeg here") >= failures
