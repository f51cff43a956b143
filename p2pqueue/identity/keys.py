"""Which keys does this device hold, and how do they come into being, last, and come back from a backup?

The file `identity` in the home is a MessagePack map with a format number and a checksum. It is written whole,
durable and private from its first moment. A damaged one is an error, never a reason to make a new identity.
"""

from __future__ import annotations

import hmac
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import blake3
from nacl.signing import SigningKey

from p2pqueue import wire
from p2pqueue.errors import AlreadyInitialised, BadSignature, DamagedHome, MalformedMessage, NotInitialised
from p2pqueue.home import Home
from p2pqueue.identity.certificate import KEY_SIZE, Role, certificate_body, device_id, issue, read_certificate, verify
from p2pqueue.private import loosened, write_private

__all__ = ["Identity", "certificate_body", "create", "device_id", "export_space", "issue", "load", "loosened_modes", "restore", "verify"]

FORMAT = 1  # of the file `identity`; a higher one is refused in words
EXPORT_FORMAT = 1  # of what `export_space` gives
LABEL_LIMIT = 64  # characters of a device's label and of a space's name
_FILE_LIMIT = 16 * 1024  # bytes
_SPACE_ID_SIZE = 16  # bytes, shown as 32 hexadecimal digits

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
    def owner(self) -> str:
        """The id of the space's owner: that of the root key, the same on all of the owner's devices."""
        return device_id(self.root_public)


def create(home: Home, *, space_name: str | None = None, label: str | None = None) -> Identity:
    """Makes a new space and the key of this, its first device. Raises `AlreadyInitialised` in a home that has one."""
    home.ensure()
    for path in (home.identity_file, home.replica_file):
        if path.exists():  # a database whose identity file went astray is no empty home either
            raise AlreadyInitialised(f"The home {home.path} has a space already ({path.name}); choose another with --home")
    root = SigningKey.generate()
    space = {"space_id": os.urandom(_SPACE_ID_SIZE).hex(), "space_name": _shown(space_name, "home"), "space_key": os.urandom(32)}
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
        raise NotInitialised(f"The home {home.path} has no space yet: run `p2pqueue init`") from None
    except OSError as error:
        raise DamagedHome(f"{home.identity_file} can't be read: {error.strerror}") from error
    for problem in loosened_modes(home):
        _log.warning("%s", problem)
    return _read(home, data)


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
    if problem := _problem(exported):
        raise DamagedHome(f"The keys in this backup can't be used: {problem}")
    return _settle(home, exported, label)


def _settle(home: Home, space: Mapping[str, Any], label: str | None) -> Identity:
    signing, root = SigningKey.generate(), SigningKey(space["root"])
    certificate = issue(root, space_id=space["space_id"], public_key=bytes(signing.verify_key), role="owner")
    content = {
        **{name: space[name] for name in ("space_id", "space_name", "space_key", "root")},
        "label": _shown(label, platform.node() or "device"),
        "device": bytes(signing),
        "certificate": certificate,
        "root_public": bytes(root.verify_key),
    }
    packed = wire.pack(content)
    try:
        write_private(home.identity_file, wire.pack({"format": FORMAT, "content": packed, "check": _check(packed)}), replace=False)
    except FileExistsError:
        raise AlreadyInitialised(f"The home {home.path} has a space already; choose another with --home") from None
    return _identity(content)


def _read(home: Home, data: bytes) -> Identity:
    mend = "put back an undamaged copy, or restore a backup into another home; no new identity is made in its place"
    try:
        outer = wire.unpack(data, limit=_FILE_LIMIT)
        version = outer["format"] if isinstance(outer, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise DamagedHome(
                f"{home.identity_file} was written by a newer version of p2pqueue "
                f"(format {version}; this one reads up to {FORMAT}): upgrade this one"
            )
        if version != FORMAT or not hmac.compare_digest(outer["check"], _check(outer["content"])):
            raise DamagedHome(f"{home.identity_file} is damaged: its checksum doesn't fit; {mend}")
        content = wire.unpack(outer["content"], limit=_FILE_LIMIT)
    except (MalformedMessage, KeyError, TypeError) as error:
        raise DamagedHome(f"{home.identity_file} is damaged ({len(data)} bytes); {mend}") from error
    if problem := _problem(content) or _mismatch(content):
        raise DamagedHome(f"{home.identity_file} is damaged: {problem}; {mend}")
    return _identity(content)


def _problem(content: Any) -> str | None:
    """What is wrong with the space's part of a content, in words."""
    if not isinstance(content, Mapping):
        return "it is no map"
    for name in ("space_id", "space_name"):
        if not isinstance(content.get(name), str):
            return f"it has no {name}"
    if len(content["space_id"]) != 2 * _SPACE_ID_SIZE or set(content["space_id"]) - set("0123456789abcdef"):
        return "its space_id is none"
    if not isinstance(content.get("space_key"), bytes) or len(content["space_key"]) != 32:
        return "its space_key is none"
    root = content.get("root")
    if root is not None and not (isinstance(root, bytes) and len(root) == KEY_SIZE):
        return "its root key is none"
    return None


def _mismatch(content: Mapping[str, Any]) -> str | None:
    """What doesn't fit together between a content's device key, certificate and root key."""
    device, root, root_public = content.get("device"), content.get("root"), content.get("root_public")
    if not (isinstance(device, bytes) and len(device) == KEY_SIZE and isinstance(content.get("label"), str)):
        return "it has no device key or label"
    if root is not None and bytes(SigningKey(root).verify_key) != root_public:
        return "its root keys don't belong together"
    try:
        certificate = read_certificate(content.get("certificate") or b"")
    except (MalformedMessage, BadSignature) as error:
        return str(error)
    if certificate.public_key != bytes(SigningKey(device).verify_key) or certificate.space_id != content["space_id"]:
        return "its certificate is that of another device or space"
    return None


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
    )


def _shown(text: str | None, otherwise: str) -> str:
    """A label that fits on a line: no control characters, not too long, never empty."""
    cleaned = "".join(c if c.isprintable() else " " for c in text or "").strip()
    return cleaned[:LABEL_LIMIT] or otherwise


def _check(packed: bytes) -> bytes:
    return blake3.blake3(packed).digest()
