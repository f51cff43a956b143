"""What every test stands on: a private home, quick settings, and a clean environment."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from p2pqueue.config import Settings
from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity, create

ALL = "P2PQUEUE_TEST_ALL"  # set in CI: then a skipped test is a failure
FUZZ = "P2PQUEUE_TEST_FUZZ"  # set by `make fuzz`: then every property is tried for longer

# A busy machine is slow at times: that is no counterexample.
hypothesis_settings.register_profile("test", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
hypothesis_settings.register_profile("fuzz", hypothesis_settings.get_profile("test"), max_examples=5_000)
hypothesis_settings.load_profile("fuzz" if os.environ.get(FUZZ) else "test")


@pytest.fixture(scope="session")
def runtime_dir() -> Iterator[Path]:
    """A short private folder for local sockets, whose paths end at 108 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="p2pq-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, runtime_dir: Path) -> None:
    """Keeps the developer's own settings, homes and sockets out of the tests, and the tests out of theirs."""
    for name in list(os.environ):
        if name.startswith("P2PQUEUE_") and (name == ALL or not name.startswith("P2PQUEUE_TEST_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("P2PQUEUE_INTERFACES", "lo")  # nothing leaves this host
    monkeypatch.setenv("P2PQUEUE_DISCOVERY", "false")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime_dir))
    monkeypatch.setenv("XDG_DATA_HOME", str(runtime_dir / "data"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A fresh private home without a space."""
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def identity(home: Home) -> Identity:
    """The identity of a new space in `home`."""
    return create(home, space_name="test", label="here")


@pytest.fixture
def settings() -> Settings:
    """Settings under which nothing takes long."""
    return Settings(slots=2, stale_after=1.0, beat_every=0.2, grace=1.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Turns a skip into a failure where every test has to run."""
    report: pytest.TestReport = yield
    if report.skipped and not hasattr(report, "wasxfail") and _all_must_run():
        report.outcome = "failed"
        report.longrepr = f"skipped although {ALL} is set: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Turns the skip of a whole module into a failure where every test has to run."""
    report: pytest.CollectReport = yield
    if report.outcome == "skipped" and _all_must_run():
        report.outcome = "failed"
        report.longrepr = f"skipped although {ALL} is set: {_reason(report.longrepr)}"
    return report


_ALL_MUST_RUN = os.environ.get(ALL, "") not in ("", "0")  # read once: the tests themselves don't see the variable


def _all_must_run() -> bool:
    return _ALL_MUST_RUN


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
