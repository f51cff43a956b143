"""Which peers can be measured on this machine? What is missing is named, never guessed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.peers.contender import Contender
from benchmarks.redis_server import redis_server


@contextmanager
def installed_peers(folder: Path, *, names: frozenset[str] | None = None) -> Iterator[dict[str, Contender]]:
    """The peers by name, with a Redis for those that need one while the block runs; `names` limits which."""
    with ExitStack() as stack:
        port: int | None = None
        try:
            port = stack.enter_context(redis_server(_made(folder / "redis")))
        except FileNotFoundError as error:
            _name_missing("Huey Redis, RQ and Dramatiq", str(error))
        makers: dict[str, Callable[[Path], Contender]] = {"Huey SQLite": _huey_sqlite}
        if port is not None:
            makers |= {"Huey Redis": _huey_redis(port), "RQ": _rq(port), "Dramatiq": _dramatiq(port)}
        peers = {}
        for name, make in makers.items():
            if names is not None and name not in names:
                continue
            try:
                peers[name] = make(_made(folder / name.replace(" ", "-").lower()))
            except ImportError as error:
                _name_missing(name, str(error))
        yield peers


def _huey_sqlite(folder: Path) -> Contender:
    from benchmarks.peers.huey_contender import Huey

    return Huey(folder, name="Huey SQLite", store=f"sqlite:{folder / 'huey.db'}")


def _huey_redis(port: int) -> Callable[[Path], Contender]:
    def make(folder: Path) -> Contender:
        from benchmarks.peers.huey_contender import Huey

        return Huey(folder, name="Huey Redis", store=f"redis:{port}")

    return make


def _rq(port: int) -> Callable[[Path], Contender]:
    def make(folder: Path) -> Contender:
        from benchmarks.peers.rq_contender import RQ

        return RQ(folder, port=port)

    return make


def _dramatiq(port: int) -> Callable[[Path], Contender]:
    def make(folder: Path) -> Contender:
        from benchmarks.peers.dramatiq_contender import Dramatiq

        return Dramatiq(folder, port=port)

    return make


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _name_missing(peer: str, why: str) -> None:
    print(f"not measured: {peer} ({why})", file=sys.stderr)
