from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from p2pqueue.workers.running.pool import Pool
from tests.integration.children.stage import HANDLERS, Stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pool]:
    """One pool for a module: what one test does to a child must not reach the next."""
    pool = Pool(str(HANDLERS), home=tmp_path_factory.mktemp("home"), size=2)
    await pool.start()
    yield pool
    await pool.close()


@pytest.fixture
def stage(pool: Pool, tmp_path: Path) -> Stage:
    return Stage(tmp_path, pool)
