"""The limits of transfers: set at the start by a setting, read and changed while the node runs."""

from __future__ import annotations

from tests.integration.cli.conftest import CommandLine

NOBODY = ("--no-network", "--no-work")


def test_the_setting_holds_from_the_start_and_is_changed_while_the_node_runs(p2p: CommandLine) -> None:
    with p2p.node(*NOBODY, "--rate", "2MB", app=None):
        assert p2p("limit", "--json").json["limits"] == {"rate": 2_000_000, "all_paused": False, "paused": [], "metered": False}
        assert "500.0 kB/s" in p2p("limit", "500KB").out
        assert p2p("limit", "--json").json["limits"]["rate"] == 500_000
        assert p2p("status", "--json").json["node"]["network"]["limits"]["rate"] == 500_000
        assert "no limit" in p2p("limit", "none").out
        assert p2p("limit", "--metered", "--json").json["limits"]["metered"] is True


def test_transfers_with_a_device_or_all_are_paused_and_let_go(p2p: CommandLine) -> None:
    with p2p.node(*NOBODY, app=None):
        own = p2p("devices", "--json").json["devices"][0]
        assert own["label"] in p2p("limit", "--pause", own["label"]).out
        assert p2p("limit", "--pause", "all", "--json").json["limits"] == {
            "rate": 0, "all_paused": True, "paused": [own["id"]], "metered": False,
        }  # fmt: skip
        assert "all transfers" in p2p("limit").out
        assert p2p("limit", "--resume", "all", "--json").json["limits"]["paused"] == []


def test_what_is_no_rate_or_no_device_is_refused_in_words(p2p: CommandLine) -> None:
    with p2p.node(*NOBODY, app=None):
        assert "is no size" in p2p("limit", "fast", check=2).err
        assert "nobody" in p2p("limit", "--pause", "nobody", check=None).err
    assert "node" in p2p("limit", "2MB", check=None).err


def test_status_says_what_slows_files_down(p2p: CommandLine) -> None:
    with p2p.node("--listen", "127.0.0.1:0", "--no-discovery", "--no-work", "--rate", "2MB", app=None):
        p2p("limit", "--pause", "all")
        told = p2p("status").out
        assert "2.0 MB/s of files in each direction" in told
        assert "all transfers; `p2pqueue limit --resume all` lets them go" in told
