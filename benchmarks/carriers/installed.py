"""Which of those who carry files can be measured here? What is missing is named, never guessed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.carriers.carrier import Carrier, NotInstalled
from benchmarks.carriers.nginx import nginx
from benchmarks.carriers.rsync import rsync
from benchmarks.carriers.syncthing import syncthing
from benchmarks.carriers.wormhole import wormhole

Making = Callable[[Path, Path], AbstractContextManager[Carrier]]
CARRIERS: dict[str, Making] = {"rsync": rsync, "nginx + curl": nginx, "Syncthing": syncthing, "magic-wormhole": wormhole}


@contextmanager
def carrier(name: str, folder: Path, root: Path) -> Iterator[Carrier | None]:
    """One of them at work, with its files in `folder`; None, which is said, where it isn't installed."""
    place = folder / name.replace(" ", "")
    place.mkdir(parents=True)
    try:
        making = CARRIERS[name](place, root)
        found = making.__enter__()
    except NotInstalled as missing:
        print(f"not measured: {name} ({missing})", file=sys.stderr)
        yield None
        return
    try:
        yield found
    finally:
        making.__exit__(None, None, None)


def names() -> Sequence[str]:
    """All that are known."""
    return tuple(CARRIERS)
