"""A stage on a fresh home."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from tests.integration.node.stage import Stage


@pytest_asyncio.fixture
async def stage(home: Home, identity: Identity, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Stage]:
    """A stage on a fresh home; nothing may go wrong that the node only logs as an error of its own."""
    made = Stage(home, tmp_path)
    yield made
    await made.close()
    odd = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not odd, odd
