"""How does the fetch of several files, which one manifest lists by their names, stand as a whole?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from p2pqueue.payload.fetching.transfers import SourceShare, Transfer
from p2pqueue.payload.manifest import FolderManifest


@dataclass
class Several:
    """Those that are here, and those under way."""

    manifest: FolderManifest
    under_way: dict[bytes, Callable[[], Transfer]] = field(default_factory=dict)  # by the addresses of their manifests
    here: int = 0  # bytes of those that are whole

    def look(self, root: str) -> Transfer:
        """How they stand together; they stand still where each of them does."""
        looks = [look() for look in self.under_way.values()]
        size, rate = self.manifest.size, sum(each.rate for each in looks)
        verified = min(size, self.here + sum(each.verified for each in looks))
        eta = (size - verified) / rate if rate > 0 else None
        why = looks[0].why if looks and all(each.why for each in looks) else None
        name = f"{len(self.manifest.entries)} files"
        return Transfer(root, name, size, verified, rate, eta, _together(looks), why)


def _together(looks: list[Transfer]) -> tuple[SourceShare, ...]:
    found: dict[tuple[str, str], SourceShare] = {}
    for share in (share for each in looks for share in each.sources):
        known = found.get((share.name, share.lane))
        if known is not None:
            state = "used" if "used" in (known.state, share.state) else share.state
            share = replace(share, bytes=known.bytes + share.bytes, rate=known.rate + share.rate, state=state)
        found[share.name, share.lane] = share
    return tuple(found.values())
