"""How do bodies that are written together share one signature?

Making an Ed25519 signature and checking it are the dearest steps on a job's way in and to its peers, so up to 16
bodies of one commit are signed at once: they are the leaves of a Merkle tree, and its root bears the signature. Each
body keeps that signature and its own way to the root, so that it is checked, stored and passed on by itself. Leaves
and nodes are hashed apart as in RFC 6962, and nodes by their level; a hash is 16 bytes of BLAKE3. Pure.

The signature of a body signed alone is 64 bytes. Of one signed with others it is these 64, its place among the leaves,
and the hash that its own is joined with on each level, from the leaves up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from blake3 import blake3

from p2pqueue.identity.certificate import verify

MOST = 16  # bodies under one signature: more would save little, and each would bear a longer way
SIGNATURE_SIZE = 64  # bytes of an Ed25519 signature

_LEVELS = 4  # of a tree of 16 leaves, above these
_HASH = 16  # bytes
_LEAF = b"\x00"  # stands before a leaf that is hashed
_NODES = [bytes((level,)) for level in range(1, _LEVELS + 1)]  # stands before the two halves of a node, by its level
_ROOT = b"p2pqueue tree\x01"  # stands before a root that is signed; no body begins like that
_NOTHING = bytes(_HASH)  # takes a place that is empty
_SIZES = {SIGNATURE_SIZE + 1 + _HASH * levels: 1 << levels for levels in range(1, _LEVELS + 1)}  # and how many places such a tree has
_TREES_KEPT = 16
_FIRST = b"\x00"  # the place of a tree's first body

Sign = Callable[[bytes], bytes]
_Way = tuple[int, int, bytes]  # a node's level, its place there, and what it is joined with from there on


def sign_together(bodies: Sequence[bytes], sign: Sign) -> list[bytes]:
    """The signature of each body; `sign` makes one for every 16 of them."""
    signatures: list[bytes] = []
    for start in range(0, len(bodies), MOST):
        some = bodies[start : start + MOST]
        signatures += _sign_tree(some, sign) if len(some) > 1 else [sign(some[0])]
    return signatures


def _sign_tree(bodies: Sequence[bytes], sign: Sign) -> list[bytes]:
    root, ways = _grow(bodies)
    return _borne(sign(_ROOT + root), ways)


def _borne(signature: bytes, ways: Sequence[bytes]) -> list[bytes]:
    """What each of a tree's bodies bears, in their order."""
    return [b"%b%c%b" % (signature, place, way) for place, way in enumerate(ways)]


def _grow(bodies: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """The root of a tree over these bodies, and the way from each of them to it."""
    nodes = [blake3(_LEAF + body).digest(_HASH) for body in bodies]
    levels: list[list[bytes]] = []
    while len(nodes) > 1:
        if len(nodes) % 2:
            nodes.append(_NOTHING)
        level = _NODES[len(levels)]
        levels.append(nodes)
        nodes = [blake3(level + left + right).digest(_HASH) for left, right in zip(nodes[::2], nodes[1::2], strict=True)]
    ways = [b""]
    for beside in reversed(levels):
        ways = [beside[place ^ 1] + ways[place >> 1] for place in range(len(beside))]
    return nodes[0], ways[: len(bodies)]


def is_signature(value: object) -> bool:
    """Says whether this has the form of a signature."""
    if type(value) is not bytes:
        return False
    size = len(value)
    return size == SIGNATURE_SIZE or (size in _SIZES and value[SIGNATURE_SIZE] < _SIZES[size])


class Trees:
    """Checks signatures, one of Ed25519 for all the bodies under it. For one thread at a time.

    Who followed one way to a root that is signed knows every node that it touches. A neighbour's way is followed until
    it meets one of them, and has to go on from there as that one does.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, dict[bytes, _Way]] = {}  # nodes of a tree, by its key and signature

    def all_hold(self, key: bytes, bodies: Sequence[bytes], signatures: Sequence[bytes]) -> list[bool]:
        """Of each of these, as `holds`: a whole tree among them, in its order or backwards, is grown again in one go."""
        found: list[bool] = []
        start = 0
        for made, run in groupby([signature[:SIGNATURE_SIZE] for signature in signatures]):
            end = start + len(list(run))
            some, borne = bodies[start:end], signatures[start:end]
            if 1 < end - start <= MOST and _is_whole(key, made, some, borne):
                found += [True] * (end - start)
            else:
                found += [self.holds(key, body, signature) for body, signature in zip(some, borne, strict=True)]
            start = end
        return found

    def holds(self, key: bytes, body: bytes, signature: bytes) -> bool:
        """Says whether the holder of that public key signed this body, alone or with others."""
        if not is_signature(signature):
            return False
        if len(signature) == SIGNATURE_SIZE:
            return verify(key, body, signature)
        made, place, way = signature[:SIGNATURE_SIZE], signature[SIGNATURE_SIZE], signature[SIGNATURE_SIZE + 1 :]
        known = self._known.get(key + made)
        node = blake3(_LEAF + body).digest(_HASH)
        met: dict[bytes, _Way] = {}
        for level in range(len(way) // _HASH + 1):
            if known is not None and known.get(node) == (level, place, way):
                known.update(met)
                return True
            met[node] = (level, place, way)
            if way:
                beside, way = way[:_HASH], way[_HASH:]
                met[beside] = (level, place ^ 1, node + way)
                node = blake3(_NODES[level] + (beside + node if place & 1 else node + beside)).digest(_HASH)
                place >>= 1
        if not verify(key, _ROOT + node, made):
            return False
        if known is None:
            while len(self._known) >= _TREES_KEPT:
                del self._known[next(iter(self._known))]
            self._known[key + made] = met
        else:
            known.update(met)
        return True


def _is_whole(key: bytes, made: bytes, bodies: Sequence[bytes], signatures: Sequence[bytes]) -> bool:
    """Says whether these are all the bodies that were signed together, with what each of them has to bear."""
    if signatures[-1][SIGNATURE_SIZE:][:1] == _FIRST:  # the newest come first, as a rule
        bodies, signatures = bodies[::-1], signatures[::-1]
    root, ways = _grow(bodies)
    return _borne(made, ways) == list(signatures) and verify(key, _ROOT + root, made)
