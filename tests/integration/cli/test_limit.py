"""The limits of transfers: set at the start by a setting, read and changed while the node runs."""

from __future__ import annotations

import signal

from tests.integration.cli.conftest import CommandLine

NOBODY = ("--no-network", "--no-work")


def test_the_setting_holds_from_the_start_and_is_changed_while_the_node_runs(p2p: CommandLine) -> None:
    with p2p.node(*NOBODY, "--rate", "2MB", app=None):
        assert p2p("limit", "--json").json["limits"] == {
            "rate": 2_000_000, "rate_setting": 2_000_000, "all_paused": False, "paused": [], "metered": False,
        }  # fmt: skip
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
            "rate": 0, "rate_setting": 0, "all_paused": True, "paused": [own["id"]], "metered": False,
        }  # fmt: skip
        assert "all transfers" in p2p("limit").out
        assert p2p("limit", "--resume", "all", "--json").json["limits"]["paused"] == []


def test_what_is_no_rate_or_no_device_is_refused_in_words(p2p: CommandLine) -> None:
    with p2p.node(*NOBODY, app=None):
        assert "is no size" in p2p("limit", "fast", check=2).err
        assert "nobody" in p2p("limit", "--pause", "nobody", check=None).err


def test_status_says_what_slows_files_down(p2p: CommandLine) -> None:
    with p2p.node("--listen", "127.0.0.1:0", "--no-discovery", "--no-work", "--rate", "2MB", app=None):
        p2p("limit", "--pause", "all")
        told = p2p("status").out
        assert "2.0 MB/s of files in each direction" in told
        assert "all transfers; `p2pqueue limit --resume all` lets them go" in told


def test_what_was_set_holds_for_the_next_node_too_and_is_shown_while_none_runs(p2p: CommandLine) -> None:
    with p2p.node(*NOBODY, "--rate", "2MB", app=None):
        own = p2p("devices", "--json").json["devices"][0]["id"]
        p2p("limit", "500KB", "--pause", own, "--metered")
    told = p2p("limit")
    assert "500.0 kB/s" in told.out
    assert "the setting `rate` says no limit" in told.out  # 2 MB were a flag of the node that has ended
    assert "from the start of the next node" in told.err
    assert "500.0 kB/s of files in each direction" in p2p("status").out
    with p2p.node(*NOBODY, "--rate", "2MB", app=None):
        assert p2p("limit", "--json").json["limits"] == {
            "rate": 500_000, "rate_setting": 2_000_000, "all_paused": False, "paused": [own], "metered": True,
        }  # fmt: skip
        assert "the setting `rate` says 2.0 MB/s" in p2p("limit").out


def test_what_was_set_survives_a_kill_of_the_node(p2p: CommandLine) -> None:
    with p2p.node(*NOBODY, app=None) as node:
        p2p("limit", "--pause", "all")
        node.stop(signal.SIGKILL)
    with p2p.node(*NOBODY, app=None):
        assert p2p("limit", "--json").json["limits"]["all_paused"] is True
        p2p("limit", "--resume", "all")
    assert p2p("limit", "--json").json["limits"]["all_paused"] is False


def test_reset_goes_back_to_the_settings_for_good(p2p: CommandLine) -> None:
    plain = {"rate": 2_000_000, "rate_setting": 2_000_000, "all_paused": False, "paused": [], "metered": False}
    p2p("config", "set", "rate", "2MB")
    with p2p.node(*NOBODY, app=None):
        p2p("limit", "none", "--pause", "all", "--metered")
        assert p2p("limit", "--reset", "--json").json["limits"] == plain
        p2p("limit", "500KB", "--pause", "all")
        assert p2p("limit", "--reset", "1MB", "--json").json["limits"] == plain | {"rate": 1_000_000}
    assert p2p("limit", "--reset", "--json").json["limits"] == plain
    assert "no limit" not in p2p("status").out
    with p2p.node(*NOBODY, app=None):
        assert p2p("limit", "--json").json["limits"] == plain


def test_without_a_node_the_limits_are_changed_for_the_next_one(p2p: CommandLine) -> None:
    told = p2p("limit", "500KB", "--pause", "all")
    assert "500.0 kB/s" in told.out
    assert "from the start of the next node" in told.err
    with p2p.node(*NOBODY, app=None):
        assert p2p("limit", "--json").json["limits"]["rate"] == 500_000
        assert "all transfers" in p2p("limit").out
