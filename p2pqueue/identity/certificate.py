"""Who says that a device belongs to a space, and in which role?

A certificate is the canonical MessagePack of [body, signature]: the body is an array that names the space, the
device's key and role, and who signs. Pure but for the signing itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import blake3
from nacl._sodium import ffi, lib  # type: ignore[import-not-found]  # what `nacl.bindings` goes through
from nacl.signing import SigningKey

from p2pqueue import wire
from p2pqueue.errors import BadSignature, MalformedMessage

Role = Literal["owner", "admin", "member", "worker", "viewer", "store"]

KEY_SIZE = 32  # bytes of an Ed25519 public key, and of its seed
_SIGNATURE_SIZE = 64  # bytes
_FORMAT = 1
_CONTEXT = b"p2pqueue certificate"
_CERTIFICATE_LIMIT = 1024  # bytes


@dataclass(frozen=True)
class Certificate:
    """What a certificate says, its signature checked."""

    space_id: str
    public_key: bytes
    role: Role
    issuer: bytes  # the public key that signed it: the root key, or an admin's

    @property
    def device_id(self) -> str:
        """The device that it is about."""
        return device_id(self.public_key)


def device_id(public_key: bytes) -> str:
    """The id of the device with that key: 32 hexadecimal digits."""
    return blake3.blake3(public_key).hexdigest(length=16)


def verify(public_key: bytes, body: bytes, signature: bytes) -> bool:
    """Says whether the signature over `body` was made by the holder of that key. Never raises."""
    try:
        if len(public_key) != KEY_SIZE or len(signature) != _SIGNATURE_SIZE:
            return False
        # What `VerifyKey.verify` does, without its objects and copies, which take a third of the time.
        signed = signature + body
        return bool(lib.crypto_sign_open(ffi.NULL, ffi.NULL, signed, len(signed), public_key) == 0)
    except TypeError:
        return False


def certificate_body(*, space_id: str, public_key: bytes, role: Role, issuer: bytes) -> bytes:
    """The bytes that the issuer signs."""
    return wire.pack([_CONTEXT, _FORMAT, space_id, public_key, role, issuer])


def issue(signing: SigningKey, *, space_id: str, public_key: bytes, role: Role) -> bytes:
    """A certificate for a device, signed by the given key."""
    body = certificate_body(space_id=space_id, public_key=public_key, role=role, issuer=bytes(signing.verify_key))
    return wire.pack([body, signing.sign(body).signature])


def read_certificate(certificate: bytes) -> Certificate:
    """What a certificate says. Raises `MalformedMessage`, or `BadSignature` where its signature doesn't fit.

    Whether the issuer is the root, or an admin that the root made one, is for the caller to follow.
    """
    match wire.unpack(certificate, limit=_CERTIFICATE_LIMIT):
        case [bytes(body), bytes(signature)]:
            read = _read_body(body)
        case _:
            raise MalformedMessage("a certificate is [body, signature]")
    if not verify(read.issuer, body, signature):
        raise BadSignature(f"the certificate of device {read.device_id} doesn't bear its issuer's signature")
    return read


def _read_body(body: bytes) -> Certificate:
    match wire.unpack(body, limit=_CERTIFICATE_LIMIT):
        case [context, version, *_] if context == _CONTEXT and version != _FORMAT:
            raise MalformedMessage(f"a certificate of format {version}, where this version reads {_FORMAT}")
        case [context, _, str(space), bytes(key), str(role), bytes(issuer)] if (
            context == _CONTEXT and role in get_args(Role) and len(key) == len(issuer) == KEY_SIZE
        ):
            return Certificate(space, key, cast(Role, role), issuer)
        case _:
            raise MalformedMessage("the body of a certificate is [context, format, space, key, role, issuer]")
