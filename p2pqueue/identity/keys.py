"""Which keys does this device hold, and how do they come into being, change, and come back from a backup?

How they lie on the disk, and when they are trusted, is the question of `keyfile`.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nacl.signing import SigningKey

from p2pqueue.errors import AlreadyInitialised, DamagedHome, NotAllowed, NotInitialised
from p2pqueue.home import Home
from p2pqueue.identity import keyfile
from p2pqueue.identity.certificate import Role, certificate_body, device_id, issue, read_certificate, verify
from p2pqueue.private import loosened

__all__ = [
    "Identity", "JoinedSpace", "certificate_body", "check_empty", "create", "device_id", "export_space", "host_label", "issue", "join",
    "label_of", "load", "loosened_modes", "relabel", "renew", "restore", "verify",
]  # fmt: skip

EXPORT_FORMAT = 1  # of what `export_space` gives
LABEL_LIMIT = 64  # characters of a device's label and of a space's name

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """This device in its space: who it is, and the keys that it holds. Its text form shows no key."""

    space_id: str
    space_name: str
    device_id: str
    label: str
    space_key: bytes = field(repr=False)  # 32 bytes; seals payloads
    signing: SigningKey = field(repr=False)  # the device's own
    root: SigningKey | None = field(repr=False)  # the space's; held by its owner and admins
    certificate: bytes = field(repr=False)
    root_public: bytes = field(repr=False)
    issuers: tuple[bytes, ...] = field(repr=False, default=())  # certificates from the issuer up to the root, where it isn't the root
    inviter: tuple[str, str] | None = None  # id and label of the device that let this one in: whom it knows before any row came

    def sign(self, body: bytes) -> bytes:
        """The device's Ed25519 signature over `body`: 64 bytes."""
        return self.signing.sign(body).signature

    @property
    def public_key(self) -> bytes:
        """The device's public key: 32 bytes."""
        return bytes(self.signing.verify_key)

    @property
    def role(self) -> Role:
        """The role that the certificate gives this device."""
        return read_certificate(self.certificate).role

    @property
    def chain(self) -> tuple[bytes, ...]:
        """What proves that this device belongs to the space: its certificate first, then its issuers'."""
        return (self.certificate, *self.issuers)

    @property
    def owner(self) -> str:
        """The id of the space's owner: that of the root key, the same on all of the owner's devices."""
        return device_id(self.root_public)


def create(home: Home, *, space_name: str | None = None, label: str | None = None) -> Identity:
    """Makes a new space and the key of this, its first device. Raises `AlreadyInitialised` in a home that has one."""
    home.ensure()
    check_empty(home)
    root = SigningKey.generate()
    space = {
        "space_id": os.urandom(keyfile.SPACE_ID_SIZE).hex(),
        "space_name": label_of(space_name, "home"),
        "space_key": os.urandom(keyfile.SPACE_KEY_SIZE),
    }
    return _settle(home, {**space, "root": bytes(root)}, label)


def load(home: Home) -> Identity:
    """The identity of a home. Raises `NotInitialised` where there is none, `DamagedHome` where it can't be trusted.

    Modes that let other users in are logged as a warning; `loosened_modes` tells them.
    """
    try:
        data = home.identity_file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if home.replica_file.exists():
            raise DamagedHome(
                f"{home.identity_file} is missing though the home holds a database; put the file back, or restore a backup"
            ) from None
        raise NotInitialised(f"The home {home.path} has no space yet: run `p2pqueue init`, or `p2pqueue join CODE`") from None
    except OSError as error:
        raise DamagedHome(f"{home.identity_file} can't be read: {error.strerror}") from error
    for problem in loosened_modes(home):
        _log.warning("%s", problem)
    return _identity(keyfile.read(home, data))


def loosened_modes(home: Home) -> list[str]:
    """What in a home other users may enter or read though they mustn't, and the mend, in words."""
    paths = (home.path, home.identity_file, home.replica_file, home.shelf_file, home.config_file, home.shards_dir, home.logs_dir)
    return [problem for path in paths if path.exists() and (problem := loosened(path))]


def export_space(identity: Identity) -> dict[str, Any]:
    """What a backup carries of an identity: the space and its keys, not the device's key.

    A device key in two places would be two devices under one name. Keep what this returns secret.
    """
    return {
        "format": EXPORT_FORMAT,
        "space_id": identity.space_id,
        "space_name": identity.space_name,
        "space_key": identity.space_key,
        "root": bytes(identity.root) if identity.root else None,
    }


def restore(home: Home, exported: Mapping[str, Any], label: str | None = None) -> Identity:
    """Enters the space of a backup as a new device, certified by the space's root key.

    Raises `AlreadyInitialised` in a home that has a space, and `DamagedHome` for a backup that can't be used.
    """
    home.ensure()
    if (version := exported.get("format")) != EXPORT_FORMAT:
        raise DamagedHome(f"This backup is of format {version!r}; this version of p2pqueue reads {EXPORT_FORMAT}: use the one that made it")
    if exported.get("root") is None:
        raise DamagedHome("This backup was made by a device that is not the owner's, and holds no root key: use one of the owner's device")
    if problem := keyfile.problem(exported):
        raise DamagedHome(f"The keys in this backup can't be used: {problem}")
    return _settle(home, exported, label)


@dataclass(frozen=True)
class JoinedSpace:
    """What a device is given when it is paired. Its text form shows no key."""

    space_id: str
    space_name: str
    space_key: bytes = field(repr=False)
    root: bytes | None = field(repr=False)  # the seed of the root key, for the roles that hold it
    root_public: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    issuers: tuple[bytes, ...] = field(repr=False)
    signing: SigningKey = field(repr=False)  # the device's own, made before it was paired
    inviter: tuple[str, str] | None = None  # id and label of the device that let this one in


def join(home: Home, space: JoinedSpace, label: str | None = None) -> Identity:
    """Enters a space that this device was paired with. Raises `AlreadyInitialised` in a home that has one."""
    home.ensure()
    check_empty(home)
    return _write_new(home, _joined(space, host_label(label)))


def renew(home: Home, space: JoinedSpace | None = None) -> Identity:
    """Gives this device a new key, since its old one is in use elsewhere too: on the disk that was cloned.

    The certificate comes from the root key, where this device holds it, else from a new pairing (`space`) with the
    same space. Raises `NotAllowed` where neither is there. The replica must go on under a new author before
    anything is written: see `peers.renewal`.
    """
    old = load(home)
    if space is not None:
        content = _joined(space, old.label)
        if space.space_id != old.space_id:
            raise NotAllowed(f"That code is of another space ({label_of(space.space_name, '?')}); a home holds one space")
    elif old.root is None:
        raise NotAllowed(
            "This device holds no root key to certify a new one: make a code on another device (`p2pqueue invite`), "
            "and give it to `p2pqueue identity renew CODE`"
        )
    else:
        content = _content(old) | {"issuers": []} | _certified(old.root, old.space_id, old.role)
    keyfile.write(home, content, replace=True)
    return _identity(content)


def relabel(home: Home, label: str) -> Identity:
    """Gives this device another name for people; its rows are the replica's to write."""
    content = _content(load(home)) | {"label": host_label(label)}
    keyfile.write(home, content, replace=True)
    return _identity(content)


def check_empty(home: Home) -> None:
    """Raises `AlreadyInitialised` in a home that has a space."""
    for path in (home.identity_file, home.replica_file):
        if path.exists():  # a database whose identity file went astray is no empty home either
            raise AlreadyInitialised(f"The home {home.path} has a space already ({path.name}); choose another with --home")


def label_of(text: str | None, otherwise: str) -> str:
    """A label that fits on a line: no control characters, not too long, never empty."""
    cleaned = "".join(c if c.isprintable() else " " for c in text or "").strip()
    return cleaned[:LABEL_LIMIT] or otherwise


def _settle(home: Home, space: Mapping[str, Any], label: str | None) -> Identity:
    content = {name: space[name] for name in ("space_id", "space_name", "space_key", "root")}
    return _write_new(home, content | {"label": host_label(label)} | _certified(SigningKey(space["root"]), space["space_id"], "owner"))


def _certified(root: SigningKey, space_id: str, role: Role) -> dict[str, Any]:
    """A new device key, and what proves that it belongs to the space."""
    signing = SigningKey.generate()
    certificate = issue(root, space_id=space_id, public_key=bytes(signing.verify_key), role=role)
    return {"device": bytes(signing), "certificate": certificate, "root_public": bytes(root.verify_key)}


def _joined(space: JoinedSpace, label: str) -> dict[str, Any]:
    return {
        "space_id": space.space_id,
        "space_name": label_of(space.space_name, "home"),
        "space_key": space.space_key,
        "root": space.root,
        "root_public": space.root_public,
        "certificate": space.certificate,
        "issuers": list(space.issuers),
        "inviter": space.inviter,
        "device": bytes(space.signing),
        "label": label,
    }


def _content(identity: Identity) -> dict[str, Any]:
    root = bytes(identity.root) if identity.root else None
    space = JoinedSpace(
        identity.space_id, identity.space_name, identity.space_key, root, identity.root_public, identity.certificate, identity.issuers,
        identity.signing, identity.inviter,
    )  # fmt: skip
    return _joined(space, identity.label)


def _write_new(home: Home, content: Mapping[str, Any]) -> Identity:
    try:
        keyfile.write(home, content, replace=False)
    except FileExistsError:
        raise AlreadyInitialised(f"The home {home.path} has a space already; choose another with --home") from None
    return _identity(content)


def host_label(label: str | None) -> str:
    """A label for this device: the one given, else the host's name."""
    return label_of(label, platform.node() or "device")


def _identity(content: Mapping[str, Any]) -> Identity:
    signing = SigningKey(content["device"])
    return Identity(
        space_id=content["space_id"],
        space_name=content["space_name"],
        device_id=device_id(bytes(signing.verify_key)),
        label=content["label"],
        space_key=content["space_key"],
        signing=signing,
        root=SigningKey(content["root"]) if content["root"] is not None else None,
        certificate=content["certificate"],
        root_public=content["root_public"],
        issuers=tuple(content.get("issuers", ())),
        inviter=keyfile.inviter(content),
    )
