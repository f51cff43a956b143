"""How do a device's keys lie on its disk, and when are they trusted?

The file `identity` in the home is a MessagePack map with a format number and a checksum. It is written whole,
durable and private from its first moment. A damaged one is an error, never a reason to make a new identity.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import blake3
from nacl.signing import SigningKey

from p2pqueue import wire
from p2pqueue.errors import BadSignature, DamagedHome, MalformedMessage
from p2pqueue.home import Home
from p2pqueue.identity.certificate import KEY_SIZE, read_certificate
from p2pqueue.private import write_private

FORMAT = 1  # of the file; a higher one is refused in words
SPACE_ID_SIZE = 16  # bytes, shown as 32 hexadecimal digits
SPACE_KEY_SIZE = 32  # bytes
MOST_ISSUERS = 4  # certificates between a device's own and the root key
_FILE_LIMIT = 16 * 1024  # bytes
_MEND = "put back an undamaged copy, or restore a backup into another home; no new identity is made in its place"


def write(home: Home, content: Mapping[str, Any], *, replace: bool) -> None:
    """Writes a home's keys. Without `replace`, raises `FileExistsError` where there are some."""
    packed = wire.pack(dict(content))
    write_private(home.identity_file, wire.pack({"format": FORMAT, "content": packed, "check": check(packed)}), replace=replace)


def read(home: Home, data: bytes) -> Mapping[str, Any]:
    """The keys in what the file held. Raises `DamagedHome` where they can't be trusted."""
    try:
        outer = wire.unpack(data, limit=_FILE_LIMIT)
        version = outer["format"] if isinstance(outer, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise DamagedHome(
                f"{home.identity_file} was written by a newer version of p2pqueue "
                f"(format {version}; this one reads up to {FORMAT}): upgrade this one"
            )
        if version != FORMAT or not hmac.compare_digest(outer["check"], check(outer["content"])):
            raise DamagedHome(f"{home.identity_file} is damaged: its checksum doesn't fit; {_MEND}")
        content = wire.unpack(outer["content"], limit=_FILE_LIMIT)
    except (MalformedMessage, KeyError, TypeError) as error:
        raise DamagedHome(f"{home.identity_file} is damaged ({len(data)} bytes); {_MEND}") from error
    if found := problem(content) or _mismatch(content):
        raise DamagedHome(f"{home.identity_file} is damaged: {found}; {_MEND}")
    known: Mapping[str, Any] = content
    return known


def check(packed: bytes) -> bytes:
    """The checksum of a packed content."""
    return blake3.blake3(packed).digest()


def problem(content: Any) -> str | None:
    """What is wrong with the space's part of a content, in words."""
    if not isinstance(content, Mapping):
        return "it is no map"
    for name in ("space_id", "space_name"):
        if not isinstance(content.get(name), str):
            return f"it has no {name}"
    if len(content["space_id"]) != 2 * SPACE_ID_SIZE or set(content["space_id"]) - set("0123456789abcdef"):
        return "its space_id is none"
    if not isinstance(content.get("space_key"), bytes) or len(content["space_key"]) != SPACE_KEY_SIZE:
        return "its space_key is none"
    root = content.get("root")
    if root is not None and not (isinstance(root, bytes) and len(root) == KEY_SIZE):
        return "its root key is none"
    return None


def inviter(content: Mapping[str, Any]) -> tuple[str, str] | None:
    """The id and label of the device that let this one in, where there was one."""
    match content.get("inviter"):
        case [str(device), str(label)]:
            return device, label
        case _:
            return None


def _mismatch(content: Mapping[str, Any]) -> str | None:
    """What doesn't fit together between a content's device key, certificates and root key."""
    device, root, root_public = content.get("device"), content.get("root"), content.get("root_public")
    if not (isinstance(device, bytes) and len(device) == KEY_SIZE and isinstance(content.get("label"), str)):
        return "it has no device key or label"
    if not (isinstance(root_public, bytes) and len(root_public) == KEY_SIZE):
        return "it doesn't name the root key"
    if root is not None and bytes(SigningKey(root).verify_key) != root_public:
        return "its root keys don't belong together"
    issuers = content.get("issuers", [])
    if not isinstance(issuers, list) or len(issuers) > MOST_ISSUERS or not all(isinstance(each, bytes) for each in issuers):
        return "its issuers' certificates are none"
    try:
        certificate = read_certificate(content.get("certificate") or b"")
    except (MalformedMessage, BadSignature) as error:
        return str(error)
    if certificate.public_key != bytes(SigningKey(device).verify_key) or certificate.space_id != content["space_id"]:
        return "its certificate is that of another device or space"
    return None
