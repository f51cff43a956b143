"""What is a device in the simulator? A real replica in memory, a clock of its own, and sessions with its peers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from nacl.signing import SigningKey

from p2pqueue.identity.certificate import device_id
from p2pqueue.jobs.tables import TABLES
from p2pqueue.replica.replica import Replica, Writer
from p2pqueue.replica.tables import Table

if TYPE_CHECKING:
    from tests.simulation.network import Endpoint

EPOCH_MS = 1_790_000_000_000  # when a simulation begins by a clock that is right: 2026-09-21


class Key:
    """The key of a device, made from its name."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.signing = SigningKey(blake2b(label.encode(), digest_size=32).digest())
        self.public_key = bytes(self.signing.verify_key)
        self.device_id = device_id(self.public_key)

    def sign(self, body: bytes) -> bytes:
        return self.signing.sign(body).signature


@cache
def _first_image(key: Key) -> bytes:
    """The disk of a device as it is at first; made once, since making the tables takes longer than many a run."""
    rng = random.Random(key.label)
    wall = lambda: EPOCH_MS - 1000  # noqa: E731
    with Replica.open(":memory:", tables=TABLES, identity=key, wall=wall, random=rng.randbytes, machine=f"{key.label} 0") as replica:
        return replica.image()


@cache
def key_of(label: str) -> Key:
    """The key of a device by its name."""
    return Key(label)


@dataclass
class Device:
    """A machine with a disk. `image` is the disk while it is off; `hold` an old copy of it."""

    name: str
    clock: Callable[[], float]  # the virtual time, seconds
    seed: int
    key: Key = field(init=False)
    offset_ms: int = 0
    tables: Sequence[Table] = TABLES
    replica: Replica | None = None
    image: bytes | None = None
    copies: list[bytes] = field(default_factory=list)
    endpoints: list[Endpoint] = field(default_factory=list)
    machine: int = 0
    gone: bool = False
    is_new: bool = True
    crash_in: int | None = None  # effects until it crashes
    crash_before: bool = False  # whether the last effect is still carried out
    seen: dict[tuple[str, str, str], Any] = field(default_factory=dict)  # stamps of registers, as last checked

    def __post_init__(self) -> None:
        self.key = key_of(self.name.split("'")[0])  # a clone has the key of its original
        self.random = random.Random(f"{self.seed} {self.name}")

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    def wall(self) -> int:
        """Milliseconds since 1970 by this device's clock."""
        return EPOCH_MS + int(self.clock() * 1000) + self.offset_ms

    def start(self) -> None:
        """Opens what is on the disk, or begins anew."""
        if self.image is None and self.is_new and self.tables is TABLES:
            self.image = _first_image(self.key)
        self.is_new = False
        self.replica = Replica.open(
            ":memory:",
            tables=self.tables,
            identity=self.key,
            wall=self.wall,
            random=self.random.randbytes,
            machine=f"{self.key.label} {self.machine}",
            image=self.image,
        )
        self.image = None

    def stop(self) -> None:
        """Power off: what was committed is on the disk, all else is gone."""
        if self.replica is None:
            return
        self.image = self.replica.image()
        self.replica.close()
        self.replica = None
        self.crash_in = None
        for endpoint in list(self.endpoints):
            endpoint.vanish()

    def write(self, fn: Callable[[Writer], Any]) -> Any:
        """A local transaction, told to every session."""
        assert self.replica is not None
        result = self.replica.write(fn)
        for endpoint in list(self.endpoints):
            endpoint.committed(local=True)
        return result
