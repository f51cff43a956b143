"""What a job says that waits while its node starts."""

from __future__ import annotations

import pytest

from p2pqueue.peers.network import Network
from tests.integration.node.stage import Stage, until


async def test_a_job_that_waits_for_a_start_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job, told = stage.enqueue("echo"), []
    start = Network.start

    async def begin(network: Network) -> None:
        told.append(stage.why(job))
        await start(network)

    monkeypatch.setattr(Network, "start", begin)
    async with stage.run():
        assert told == [f"{stage.node.identity.label} is just starting"]
        await until(lambda: stage.why(job) != told[0])
