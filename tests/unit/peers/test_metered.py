"""Which ways cost money is decided by the address that this device sends from."""

from __future__ import annotations

import pytest

from p2pqueue.peers.shards.metered import Metered


@pytest.mark.parametrize("named", ["lo", "127.0.0.1"])
def test_a_way_that_leads_over_a_named_interface_is_metered(named: str) -> None:
    metered = Metered([named])
    assert metered.leads("http://127.0.0.1:7433")
    assert metered.leads("http://127.0.0.1:7433")  # as it is remembered


def test_other_ways_are_not() -> None:
    assert not Metered([]).leads("http://127.0.0.1:7433")
    assert not Metered(["no-such-interface"]).leads("http://127.0.0.1:7433")
    assert not Metered(["lo"]).leads(None)
    assert not Metered(["lo"]).leads("http://a-name.invalid:7433")
