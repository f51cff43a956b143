"""The keys of a device are private, last, and are never replaced in silence."""

from __future__ import annotations

import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from p2pqueue import wire
from p2pqueue.errors import AlreadyInitialised, BadSignature, DamagedHome, MalformedMessage, NotInitialised
from p2pqueue.home import Home
from p2pqueue.identity import keyfile
from p2pqueue.identity.certificate import device_id, issue, read_certificate
from p2pqueue.identity.keys import Identity, create, export_space, load, loosened_modes, restore, verify


def test_an_identity_that_was_made_is_loaded_again(home: Home) -> None:
    made = create(home, space_name="studio", label="laptop")
    assert load(home) == made
    assert (made.space_name, made.label, made.role) == ("studio", "laptop", "owner")
    assert len(made.space_id) == len(made.device_id) == 32
    assert len(made.space_key) == len(made.public_key) == 32


def test_what_a_device_signs_is_verified_by_its_public_key(identity: Identity) -> None:
    signature = identity.sign(b"body")
    assert len(signature) == 64
    assert verify(identity.public_key, b"body", signature)
    assert not verify(identity.public_key, b"other", signature)
    assert not verify(os.urandom(32), b"body", signature)


@pytest.mark.parametrize(
    ("key", "signature"),
    [(b"", b""), (b"x" * 31, b"s" * 64), (b"x" * 32, b"s"), (b"\xff" * 32, b"\xff" * 64), ("text", "text")],
    ids=range(5),
)
def test_a_key_or_signature_of_the_wrong_form_verifies_nothing(key: Any, signature: Any) -> None:
    assert not verify(key, b"body", signature)


def test_every_space_and_device_has_keys_of_its_own(tmp_path: Path) -> None:
    one, other = (create(Home(tmp_path / name)) for name in ("a", "b"))
    for name in ("space_id", "device_id", "space_key", "public_key", "owner"):
        assert getattr(one, name) != getattr(other, name)


def test_the_text_of_an_identity_shows_no_key(identity: Identity) -> None:
    shown = repr(identity) + str(identity)
    assert identity.root is not None
    for secret in (identity.space_key, bytes(identity.signing), bytes(identity.root)):
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown


def test_a_home_without_a_space_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotInitialised, match="p2pqueue init"):
        load(Home(tmp_path / "nowhere"))
    assert not list(tmp_path.iterdir())


def test_a_second_space_in_one_home_is_refused_and_changes_nothing(home: Home, identity: Identity) -> None:
    before = home.identity_file.read_bytes()
    with pytest.raises(AlreadyInitialised, match="--home"):
        create(home)
    with pytest.raises(AlreadyInitialised):
        restore(home, export_space(identity))
    assert home.identity_file.read_bytes() == before


def test_of_two_that_make_a_space_at_once_one_is_refused(home: Home) -> None:
    outcomes: list[object] = []
    barrier = threading.Barrier(4)

    def attempt() -> None:
        barrier.wait()
        try:
            outcomes.append(create(home))
        except AlreadyInitialised as error:
            outcomes.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [outcome for outcome in outcomes if isinstance(outcome, Identity)]
    assert made == [load(home)]
    assert len(outcomes) == 4


def test_an_identity_that_went_astray_is_not_replaced(home: Home, identity: Identity) -> None:
    home.replica_file.touch()
    home.identity_file.unlink()
    with pytest.raises(DamagedHome, match="missing"):
        load(home)
    with pytest.raises(AlreadyInitialised):
        create(home)
    assert not home.identity_file.exists()


@given(st.data())
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_damaged_identity_is_told_and_never_replaced(home: Home, data: st.DataObject) -> None:
    if not home.identity_file.exists():
        create(home)
    whole = home.identity_file.read_bytes()
    how = data.draw(st.sampled_from(["cut", "flip", "rubbish"]))
    if how == "cut":
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif how == "flip":
        at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
        damaged = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
    else:
        damaged = data.draw(st.binary(max_size=300).filter(lambda d: d != whole))
    home.identity_file.write_bytes(damaged)
    try:
        with pytest.raises(DamagedHome) as caught:
            load(home)
        assert str(home.identity_file) in str(caught.value)
        with pytest.raises(AlreadyInitialised):
            create(home)
        assert home.identity_file.read_bytes() == damaged
    finally:
        home.identity_file.write_bytes(whole)


def altered(home: Home, **changes: Any) -> None:
    """Writes an identity file whose checksum is right and whose content isn't."""
    content = wire.unpack(wire.unpack(home.identity_file.read_bytes())["content"]) | changes
    packed = wire.pack(content)
    home.identity_file.write_bytes(wire.pack({"format": keyfile.FORMAT, "content": packed, "check": keyfile.check(packed)}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"device": bytes(range(32))}, "another device"),
        ({"root": bytes(range(1, 33))}, "root keys"),
        ({"certificate": b"\x90"}, "certificate"),
        ({"certificate": None}, "not a message"),
        ({"space_id": "ab" * 16}, "another device or space"),
        ({"space_id": "../../x"}, "space_id"),
        ({"space_key": b"short"}, "space_key"),
        ({"label": 3}, "label"),
        ({"device": None}, "device key"),
        ({"root": b"short"}, "root key"),
    ],
    ids=str,
)
def test_keys_that_dont_belong_together_are_refused(changes: dict[str, Any], why: str, home: Home, identity: Identity) -> None:
    altered(home, **changes)
    with pytest.raises(DamagedHome, match=why):
        load(home)


def test_an_identity_of_a_newer_version_is_refused_in_words(home: Home, identity: Identity) -> None:
    home.identity_file.write_bytes(wire.pack({"format": keyfile.FORMAT + 1, "keys": "told in a way not yet known"}))
    with pytest.raises(DamagedHome, match=r"newer version of p2pqueue \(format 2.*upgrade"):
        load(home)


def test_an_identity_that_knows_more_than_this_version_is_read_all_the_same(home: Home, identity: Identity) -> None:
    altered(home, colour="blue")
    assert load(home) == identity


def test_keys_that_others_may_read_are_told_with_the_mend(home: Home, identity: Identity, caplog: pytest.LogCaptureFixture) -> None:
    assert loosened_modes(home) == []
    home.identity_file.chmod(0o644)
    home.path.chmod(0o750)
    with caplog.at_level(logging.WARNING):
        assert load(home) == identity
    assert f"chmod 600 {home.identity_file}" in caplog.text
    assert f"chmod 700 {home.path}" in caplog.text
    assert len(loosened_modes(home)) == 2


def test_an_identity_that_cant_be_read_is_told_in_words(home: Home, identity: Identity) -> None:
    home.identity_file.unlink()
    home.identity_file.mkdir()
    with pytest.raises(DamagedHome, match="can't be read"):
        load(home)


def test_a_backup_brings_the_space_back_to_a_new_device(tmp_path: Path, identity: Identity) -> None:
    exported = wire.unpack(wire.pack(export_space(identity)))
    other = Home(tmp_path / "other")
    back = restore(other, exported, label="again")
    assert load(other) == back
    for name in ("space_id", "space_name", "space_key", "owner", "root"):
        assert getattr(back, name) == getattr(identity, name)
    assert back.device_id != identity.device_id
    assert bytes(back.signing) != bytes(identity.signing)
    assert (back.label, back.role) == ("again", "owner")
    assert stat.S_IMODE(other.identity_file.stat().st_mode) == 0o600


def test_a_backup_holds_no_key_of_the_device(identity: Identity) -> None:
    assert bytes(identity.signing) not in wire.pack(export_space(identity))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format": 2}, "format 2"),
        ({"format": None}, "format None"),
        ({"root": None}, "no root key"),
        ({"root": b"short"}, "root key"),
        ({"space_key": None}, "space_key"),
        ({"space_id": "x"}, "space_id"),
        ({"space_name": None}, "space_name"),
    ],
    ids=str,
)
def test_a_backup_that_cant_be_used_leaves_no_identity(changes: dict[str, Any], why: str, tmp_path: Path, identity: Identity) -> None:
    other = Home(tmp_path / "other")
    with pytest.raises(DamagedHome, match=why):
        restore(other, export_space(identity) | changes)
    assert not other.identity_file.exists()


@pytest.mark.parametrize(("given_label", "shown"), [("  lap\ttop\n", "lap top"), ("x" * 100, "x" * 64), ("\x1b[2Kevil", "[2Kevil")])
def test_a_label_is_one_short_line(given_label: str, shown: str, home: Home) -> None:
    assert create(home, label=given_label).label == shown


def test_a_device_without_a_label_has_the_machines_name(home: Home) -> None:
    assert create(home, label=" \n ").label


def test_a_certificate_says_who_made_whom_what(identity: Identity) -> None:
    device = SigningKey.generate().verify_key
    read = read_certificate(issue(identity.signing, space_id=identity.space_id, public_key=bytes(device), role="worker"))
    assert (read.role, read.issuer, read.public_key, read.space_id) == ("worker", identity.public_key, bytes(device), identity.space_id)
    assert read.device_id == device_id(bytes(device))


def test_a_certificate_whose_content_was_changed_is_refused(identity: Identity) -> None:
    body, signature = wire.unpack(identity.certificate)
    raised = body.replace(b"owner", b"admin")
    with pytest.raises(BadSignature, match="signature"):
        read_certificate(wire.pack([raised, signature]))


@pytest.mark.parametrize(
    "body",
    [
        [b"another context", 1, "s", b"k" * 32, "owner", b"i" * 32],
        [b"p2pqueue certificate", 2, "s", b"k" * 32, "owner", b"i" * 32],
        [b"p2pqueue certificate", 1, "s", b"k" * 32, "emperor", b"i" * 32],
        [b"p2pqueue certificate", 1, "s", b"k" * 31, "owner", b"i" * 32],
        [b"p2pqueue certificate", 1, "s", b"k" * 32, ["owner"], b"i" * 32],
        [b"p2pqueue certificate"],
        [],
        7,
    ],
    ids=str,
)
def test_what_is_no_certificate_is_refused_in_words(body: Any) -> None:
    signing = SigningKey.generate()
    packed = wire.pack(body)
    with pytest.raises(MalformedMessage, match="certificate"):
        read_certificate(wire.pack([packed, signing.sign(packed).signature]))
