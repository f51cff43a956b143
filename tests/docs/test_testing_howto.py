"""The samples of the page on testing do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "testing.md").read_text()


def test_the_application_and_the_tests_of_the_page_pass_with_every_warning_an_error(tmp_path: Path) -> None:
    application, *tests = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.py").write_text(application)
    (tmp_path / "test_shop.py").write_text("\n\n".join(tests))
    environment = {**os.environ, "P2PQUEUE_HOME": str(tmp_path / "none"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function", "test_shop.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50)
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
    assert not (tmp_path / "none").exists()
