"""Does a chain of certificates lead from a device to the root of a space, and in which role?

The device's own certificate comes first, then that of its issuer, and so on; the root key signed the last. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from p2pqueue.errors import BadSignature
from p2pqueue.identity.certificate import Certificate, read_certificate
from p2pqueue.identity.roles import allows, may_give

LONGEST = 8  # certificates


def follow(chain: Sequence[bytes], *, space_id: str, root_public: bytes) -> Certificate:
    """The first certificate of a chain that holds. Raises `BadSignature` and `MalformedMessage` for one that doesn't."""
    if not 0 < len(chain) <= LONGEST:
        raise BadSignature(f"a chain of {len(chain)} certificates")
    read = [read_certificate(each) for each in chain]
    for index, certificate in enumerate(read):
        if certificate.space_id != space_id:
            raise BadSignature("the certificate is of another space")
        if certificate.issuer == root_public:
            if index != len(read) - 1:
                raise BadSignature("a chain that goes on behind the root")
            return read[0]
        issuer = read[index + 1] if index + 1 < len(read) else None
        if issuer is None or issuer.public_key != certificate.issuer:
            raise BadSignature("a chain that doesn't lead to the root of this space")
        if not (allows(issuer.role, "certify") and may_give(issuer.role, certificate.role)):
            raise BadSignature("the certificate's issuer may not certify devices in that role")
    raise BadSignature("a chain that doesn't lead to the root of this space")
