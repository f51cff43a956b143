"""What every test over a real network stands on: a LAN of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.net.lan import Lan, obstacle


@pytest.fixture
def lan() -> Iterator[Lan]:
    """An empty LAN; the test is skipped, with the reason, where none can be made."""
    reason = obstacle()
    if reason is not None:
        pytest.skip(reason)
    with Lan() as made:
        yield made
