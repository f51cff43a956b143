"""Devices are invited, joined, listed, renamed and forgotten by the command line, over real connections on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cli.conftest import PATIENCE, CommandLine


@dataclass
class Open:
    """An invitation that waits."""

    process: subprocess.Popen[str]
    code: str
    address: str

    def ended(self) -> tuple[int, str, str]:
        """How it ended: exit code, what more stood on stdout, and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err
        return self.process.returncode, out, err

    @property
    def wrong(self) -> str:
        """A code with its number and another word."""
        number, first, second = self.code.split("-")
        return f"{number}-{first}-{'abacus' if second != 'abacus' else 'album'}"


@contextmanager
def invited(p2p: CommandLine, *words: str) -> Iterator[Open]:
    """An invitation that listens on loopback, ended at the end."""
    process = p2p.start("invite", "--json", "--listen", "127.0.0.1:0", "--interface", "lo", *words)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        shown = json.loads(line)
        yield Open(process, shown["code"], shown["addresses"][0])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def other(p2p: CommandLine) -> CommandLine:
    """The command on a second home, without a space."""
    return CommandLine(p2p.home.parent / "other", p2p.environment)


def labels(p2p: CommandLine) -> dict[str, str]:
    return {each["label"]: each["role"] for each in p2p("devices", "--json").json["devices"]}


def test_a_device_that_was_told_the_code_comes_in(p2p: CommandLine, other: CommandLine) -> None:
    with invited(p2p, "--role", "worker") as invitation:
        joined = other("join", invitation.code, "--label", "laptop", "--peer", invitation.address, "--json").json
        code, out, _ = invitation.ended()
    assert code == 0
    assert json.loads(out)["joined"] == {"id": joined["device"], "label": "laptop", "role": "worker"}
    assert (joined["space_name"], joined["role"], joined["inviter"]["label"]) == ("studio", "worker", "box")
    assert labels(p2p) == {"box": "owner", "laptop": "worker"}
    own, inviter = other("devices", "--json").json["devices"]
    assert (own["id"], own["self"], own["online"], own["role"]) == (joined["device"], True, False, "worker")
    assert (inviter["id"], inviter["label"], inviter["online"], inviter["role"]) == (joined["inviter"]["id"], "box", False, None)
    assert other("devices").out.splitlines()[2].split()[:4] == ["box", "offline", "–", inviter["id"][:8]]
    assert other("status", "--json").json["space"] == p2p("status", "--json").json["space"]


def test_the_inviter_is_found_by_its_number_where_no_address_is_named(p2p: CommandLine, other: CommandLine) -> None:
    with invited(p2p) as invitation:
        found = other("join", "-", "--interface", "lo", "--label", "laptop", stdin=invitation.code.upper() + "\n")
        assert "looking for the device" in found.err
        assert invitation.ended()[0] == 0
    assert labels(p2p) == {"box": "owner", "laptop": "member"}


def test_a_wrong_code_fails_on_both_sides_and_leaves_the_home_empty(p2p: CommandLine, other: CommandLine) -> None:
    with invited(p2p) as invitation:
        failed = other("join", invitation.wrong, "--peer", invitation.address, check=1)
        assert "That is not the code" in failed.err
        code, _, err = invitation.ended()
    assert code == 1
    assert "wrong code" in json.loads(err)["error"]["message"]
    assert not (other.home / "identity").exists()
    assert other("devices", check=1).err.startswith("p2pqueue: ")
    assert labels(p2p) == {"box": "owner"}


def test_a_slip_is_told_before_anybody_is_asked(other: CommandLine) -> None:
    slip = other("join", "7-orbut-velvet", "--peer", "127.0.0.1:1", check=2)
    assert "perhaps orbit" in slip.err
    assert "name the CODE" in other("join", check=2).err
    assert "no address" in other("join", "7-orbit-velvet", "--peer", "nowhere:0", check=2).err


def test_nobody_at_the_address_is_exit_code_4(other: CommandLine) -> None:
    nobody = other("join", "7-orbit-velvet", "--peer", "127.0.0.1:1", "--json", check=4)
    told = json.loads(nobody.err)["error"]
    assert told["kind"] == "NobodyThere"
    assert "ssl" not in nobody.err
    assert os.name == "nt" or "127.0.0.1:1 doesn't answer (Connection refused)" in nobody.err


def test_a_code_that_nobody_used_expires_with_exit_code_6(p2p: CommandLine) -> None:
    with invited(p2p, "--ttl", "0.2") as invitation:
        code, _, err = invitation.ended()
    assert code == 6
    assert "expired" in err


def test_an_interrupted_invitation_ends_quietly(p2p: CommandLine, other: CommandLine) -> None:
    with invited(p2p) as invitation:
        invitation.process.send_signal(signal.SIGINT)
        code, out, err = invitation.ended()
        assert (code, out, err.strip()) == (130, "", "")
        other("join", invitation.code, "--peer", invitation.address, check=4)


def test_a_home_with_a_space_joins_no_other(p2p: CommandLine, tmp_path: Path) -> None:
    before = (p2p.home / "identity").read_bytes()
    assert "has a space already" in p2p("join", "7-orbit-velvet", "--peer", "127.0.0.1:1", check=1).err
    assert (p2p.home / "identity").read_bytes() == before


def test_only_owners_and_admins_invite(p2p: CommandLine, other: CommandLine) -> None:
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address)
        invitation.ended()
    refused = other("invite", "--listen", "127.0.0.1:0", "--interface", "lo", check=1)
    assert "has the role member" in refused.err
    assert p2p("invite", "--role", "king", check=2).out == ""
    assert "no duration" in p2p("invite", "--ttl", "soon", check=2).err


def test_for_people_the_code_stands_alone_on_stdout(p2p: CommandLine, other: CommandLine) -> None:
    process = p2p.start("invite", "--listen", "127.0.0.1:0", "--interface", "lo")
    assert process.stdout is not None
    assert process.stderr is not None
    code = process.stdout.readline().strip()
    words = process.stderr.readline() + process.stderr.readline()
    assert f"p2pqueue join {code}" in words
    address = words.strip().rpartition(" ")[2]
    shown = other("join", code, "--peer", address, "--label", "lap\x1b[31mtop")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "")
    assert "is in, as member" in err
    assert "Invited by: box" in shown.out
    assert "\x1b" not in shown.out + shown.err + err + p2p("devices").out


def test_a_device_is_renamed_and_forgotten(p2p: CommandLine, other: CommandLine) -> None:
    with invited(p2p) as invitation:
        device = other("join", invitation.code, "--peer", invitation.address, "--label", "laptop", "--json").json["device"]
        invitation.ended()
    assert p2p("devices", "rename", device[:6], "lap two", "--json").json["device"] == {"id": device, "label": "lap two"}
    p2p("devices", "rename", "box", "tower")
    assert labels(p2p) == {"tower": "owner", "lap two": "member"}
    assert p2p("status", "--json").json["label"] == "tower"
    assert "is this device itself" in p2p("devices", "forget", "tower", check=1).err
    p2p("devices", "forget", "LAP TWO")
    assert labels(p2p) == {"tower": "owner"}
    assert [each["label"] for each in p2p("devices", "--all", "--json").json["devices"]] == ["tower", "lap two"]
    assert json.loads(p2p("devices", "forget", "nobody", "--json", check=3).err)["error"]["kind"] == "NoSuchDevice"
    assert other("devices", "rename", "laptop", "mine").code == 0


def test_the_list_for_people_tells_who_is_here(p2p: CommandLine) -> None:
    title, row = p2p("devices").out.splitlines()
    assert title.split() == ["DEVICE", "STATE", "ROLE", "ID", "PATH", "RTT", "CLOCK", "LAST", "SEEN"]
    assert row.split()[:4] == ["box", "this", "device", "owner"]


def test_a_cloned_device_gets_a_key_of_its_own(p2p: CommandLine, other: CommandLine) -> None:
    was = p2p("status", "--json").json
    outcome = p2p("identity", "renew", "--json")
    renewed = outcome.json
    assert outcome.err == ""
    now = p2p("status", "--json").json
    assert (renewed["was"], renewed["device"], now["space"]) == (was["device"], now["device"], was["space"])
    assert was["device"] != now["device"]
    with invited(p2p) as invitation:
        other("join", invitation.code, "--peer", invitation.address)
        invitation.ended()
    assert "identity renew CODE" in other("identity", "renew", check=1).err
    with invited(p2p, "--role", "viewer") as invitation:
        again = other("identity", "renew", invitation.code, "--peer", invitation.address, "--json").json
        assert invitation.ended()[0] == 0
    assert again["role"] == "viewer"
    assert other("status", "--json").json["device"] == again["device"]


@pytest.mark.parametrize(
    "words", [("invite",), ("join",), ("devices",), ("devices", "rename"), ("devices", "forget"), ("identity", "renew")]
)
def test_every_command_about_devices_shows_an_example(words: tuple[str, ...], empty: CommandLine) -> None:
    shown = empty(*words, "--help").out
    assert "Examples" in shown
    assert f"p2pqueue {' '.join(words)}" in shown
