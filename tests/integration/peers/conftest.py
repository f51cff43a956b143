from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.peers.lan import Lan, lan_in


@pytest.fixture
async def lan(tmp_path: Path) -> AsyncIterator[Lan]:
    async with lan_in(tmp_path) as made:
        yield made
