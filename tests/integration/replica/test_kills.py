"""Processes killed at any moment lose nothing that they had acknowledged."""

from __future__ import annotations

import random
import time

import pytest

from p2pqueue.home import Home
from p2pqueue.identity.keys import Identity
from p2pqueue.replica.replica import Replica
from tests.integration.replica.hands import TABLES, one
from tests.integration.replica.stage import check, first, kill, start

ROUNDS = 5


@pytest.mark.slow
def test_random_kills_lose_no_acknowledged_write(home: Home, identity: Identity) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    with Replica.open(home.replica_file, tables=TABLES, identity=identity) as replica:
        author = replica.author
    for _ in range(ROUNDS):
        hands = [start(home, kind, 30.0) for kind in ("node", "bulk", "command")]
        acknowledged.update(first(hand) for hand in hands)
        time.sleep(chance.random())
        for hand in chance.sample(hands, len(hands)):
            acknowledged.update(kill(hand))
            time.sleep(chance.random() * 0.05)
        check(home.replica_file, acknowledged)
        with Replica.open(home.replica_file, tables=TABLES, identity=identity) as replica:
            assert replica.author == author, f"seed {seed}"
            acknowledged.update(replica.write(one))
    assert len(acknowledged) > ROUNDS
