"""Which chunk of a file is asked of which source next? Pure.

Chunks are given out in their order, to each device by its best lane (`standing`), as many at once as its pace asks for
(`pace`). What is late is asked of others too, and what comes first counts. Towards the end, where nothing is left to
give out, what a slow device was asked for is asked of a quicker one as well, a bounded number of times. An origin
is asked only while no peer delivers. Times are seconds, monotonic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from p2pqueue.payload.fetching.chunks import Chunks
from p2pqueue.payload.fetching.standing import MISSES, STRIKES, Ask, DeviceStanding, LaneStanding

ORIGIN_AFTER: Final = 2.0  # seconds in which no peer delivered, after which an origin is asked too
SILENT: Final = 20.0  # seconds without a byte after which a request is given up, where the lane tells of bytes
STUCK: Final = 60.0  # seconds after which one is given up where the lane does not; three times the median if that is longer
SPARE: Final = 4  # chunks that may be asked twice at the end, beside one in SPARE_SHARE of the file
SPARE_SHARE: Final = 32
MOST: Final = 3  # sources that are asked for one chunk while none of them is late
RECENT: Final = 3.0  # seconds in which a device that delivered is taken for one that goes on delivering

Key = tuple[str, str]  # device and lane


@dataclass(frozen=True)
class Offer:
    """A source that there is now."""

    name: str
    lane: str
    is_last_resort: bool = False

    @property
    def key(self) -> Key:
        """What the plan calls it."""
        return self.name, self.lane


class Plan:
    """Gives out the chunks of one file, each of `size` bytes sealed. `peers_at`: when a peer delivered last, or the start."""

    def __init__(self, count: int, size: int, *, here: bytes = b"", peers_at: float = 0.0) -> None:
        self.chunks = Chunks(count, here)
        self.peers_at = peers_at
        self.twice = 0  # chunks that were asked of a second device at the end
        self._size = size
        self._asked: dict[int, set[Key]] = {}
        self._devices: dict[str, DeviceStanding] = {}

    @property
    def finished(self) -> bool:
        """Says whether every chunk has come."""
        return not self.chunks.undone

    # -- sources ----------------------------------------------------------------------------------------------

    def offered(self, offers: Iterable[Offer], now: float) -> list[tuple[int, Key]]:
        """Tells which sources there are now. What a source was asked for that is gone is given back, and told."""
        lanes: dict[str, set[str]] = {}
        for offer in offers:
            device = self._devices.setdefault(offer.name, DeviceStanding(offer.name, offer.is_last_resort))
            device.lanes.setdefault(offer.lane, LaneStanding(offer.lane, delivered_at=now))
            lanes.setdefault(offer.name, set()).add(offer.lane)
        gone: list[tuple[int, Key]] = []
        for device in self._devices.values():
            device.present = frozenset(lanes.get(device.name, ()))
            for lane in device.lanes.values():
                if lane.name not in device.present:
                    gone += [(chunk, (device.name, lane.name)) for chunk in lane.asks]
        for chunk, key in gone:
            self._forget(chunk, key)
        return gone

    def has_use_for(self, key: Key, now: float) -> bool:
        """Says whether a source is to be asked now, or as soon as others give up what they were asked for."""
        device = self._devices.get(key[0])
        if device is None or not self._may(device, now) or not self._gives(device, now):
            return False
        return key[1] in device.asked_lanes(now, rest=self.rest, elsewhere=self._typical())

    def is_hopeless(self, now: float) -> bool:
        """Says whether nobody who is there now could bring what is left."""
        return not any(device.is_usable(now) and self._gives(device, now) for device in self._devices.values())

    @property
    def rest(self) -> int:
        """How many bytes are to come."""
        return self.chunks.undone * self._size

    def state(self, key: Key, now: float) -> str:
        """How a source stands, in one word: used, idle, resting or out."""
        device = self._devices.get(key[0])
        lane = None if device is None else device.lanes.get(key[1])
        if device is None or lane is None:
            return "idle"
        if device.is_out:
            return "out"
        if now < max(lane.rests_until, device.rests_until):
            return "resting"
        return "used" if lane.asks else "idle"

    # -- asking -----------------------------------------------------------------------------------------------

    def take(self, key: Key, now: float) -> int | None:
        """The chunk to ask of a source now; None where there is none for it."""
        device = self._devices.get(key[0])
        if device is None or not self._may(device, now):
            return None
        if key[1] not in device.asked_lanes(now, rest=self.rest, elsewhere=self._typical()):
            return None
        lane = device.lanes[key[1]]
        if len(lane.asks) * self._size >= lane.pace.window(self._size):
            return None
        if key[1] == device.trial and device.trial_left <= 0:
            return None
        if self._others_are_sooner(device, lane, now):
            return None
        chunk = self._fresh(device, now)
        if chunk is None:
            chunk = self._again(device, lane, now)
        if chunk is not None:
            device.took(key[1])
            lane.asks[chunk] = Ask(now, now, lane.pace.received)
            self._asked.setdefault(chunk, set()).add(key)
        return chunk

    def advanced(self, chunk: int, key: Key, now: float) -> None:
        """Bytes of a chunk have come."""
        ask = self._devices[key[0]].lanes[key[1]].asks.get(chunk)
        if ask is not None:
            ask.alive_at, ask.is_told = now, True

    def came(self, chunk: int, key: Key, size: int, now: float) -> tuple[bool, list[Key]]:
        """A chunk is here and right; says whether it is the first to come, and of whom it need not be waited for any more."""
        device, lane = self._of(key)
        ask = lane.asks.get(chunk)
        if ask is not None:
            lane.pace.came(size, asked_at=ask.asked_at, received_then=ask.received_then, now=now)
        lane.failures, lane.rests_until, lane.delivered_at = 0, 0.0, now
        device.misses, device.rests_until, device.had = 0, 0.0, chunk
        if not device.is_last_resort:
            self.peers_at = now
        first = self.chunks.mark(chunk)
        self._drop(chunk, key)
        others = list(self._asked.pop(chunk, ()))
        for other in others:
            self._lost(chunk, other, now)
        return first, others

    def missing(self, chunk: int, key: Key, now: float) -> None:
        """A device doesn't have a chunk."""
        self._of(key)[0].missed(chunk, now)
        self._forget(chunk, key)

    def wrong(self, chunk: int, key: Key, now: float) -> None:
        """What a device sent doesn't fit. Others are asked for that chunk, and after three it is out, by whatever lane."""
        device = self._of(key)[0]
        device.wrong += 1
        device.lacks[chunk] = now
        self._forget(chunk, key)

    def failed(self, chunk: int, key: Key, now: float, *, silent: bool = False) -> None:
        """A lane failed, or fell silent. What fails while it rests was asked before, and counts no more."""
        lane = self._of(key)[1]
        if now >= lane.rests_until:
            lane.failures += 2 * STRIKES if silent else 1
            if lane.failures >= STRIKES:
                lane.rest(now)
        self._forget(chunk, key)

    def gave_up(self, chunk: int, key: Key) -> None:
        """It is not asked any more, for no fault of the source."""
        self._forget(chunk, key)

    def stuck(self, now: float) -> list[tuple[int, Key]]:
        """What has to be given up: nothing came of it for too long. Whoever ends it then tells `failed`."""
        found = []
        for device in self._devices.values():
            for lane in device.lanes.values():
                limit = max(STUCK, 3 * (lane.pace.median or 0.0))
                for chunk, ask in lane.asks.items():
                    if now - ask.alive_at >= (SILENT if ask.is_told else limit):
                        found.append((chunk, (device.name, lane.name)))
        return found

    # -- what it goes by --------------------------------------------------------------------------------------

    def _of(self, key: Key) -> tuple[DeviceStanding, LaneStanding]:
        device = self._devices[key[0]]
        return device, device.lanes[key[1]]

    def _may(self, device: DeviceStanding, now: float) -> bool:
        return not device.is_last_resort or now - self.peers_at >= ORIGIN_AFTER

    def _gives(self, device: DeviceStanding, now: float) -> bool:
        if len(device.lacks) < self.chunks.undone:
            return True
        lacked = sum(1 for chunk in device.lacks if device.lacks_now(chunk, now) and not self.chunks.is_here(chunk))
        return lacked < self.chunks.undone

    def _typical(self) -> float | None:
        """Seconds that a shard takes of the quickest lane."""
        return min((lane.pace.median for d in self._devices.values() for lane in d.lanes.values() if lane.pace.median), default=None)

    def _fresh(self, device: DeviceStanding, now: float) -> int | None:
        after = device.had if device.lacks else None
        return self.chunks.draw(lambda chunk: device.lacks_now(chunk, now), probing=device.misses >= MISSES, after=after)

    def _others_are_sooner(self, device: DeviceStanding, lane: LaneStanding, now: float) -> bool:
        """Says whether the others will have brought all that is left before this one brings a single chunk."""
        median, rate = lane.pace.median or 1.0, 0.0
        for other in self._devices.values():
            if other is device or other.main is None or other.main not in other.present:
                continue
            main = other.lanes[other.main]
            if main.pace.rate is not None and now - main.delivered_at < RECENT and now >= main.rests_until:
                rate += main.pace.rate
        return self.rest < rate * median

    def _again(self, device: DeviceStanding, lane: LaneStanding, now: float) -> int | None:
        """What others were asked for and is late, else what this one would probably bring sooner."""
        found: list[tuple[bool, float, int]] = []
        spare = self.twice < SPARE + self.chunks.count // SPARE_SHARE
        for chunk, keys in self._asked.items():
            if (device.name, lane.name) in keys or device.lacks_now(chunk, now):
                continue
            others = [self._of(key)[1] for key in keys]
            late = all(now < other.rests_until or other.late(chunk, now, self._typical()) for other in others)
            mine = any(key[0] == device.name for key in keys)
            if late or (spare and not mine and len(keys) < MOST and all(self._is_sooner(lane, other, chunk, now) for other in others)):
                found.append((not late, max(other.asks[chunk].asked_at for other in others), chunk))
        if not found:
            return None
        early, _, chunk = min(found)
        self.twice += early
        return chunk

    def _is_sooner(self, lane: LaneStanding, other: LaneStanding, chunk: int, now: float) -> bool:
        mine, theirs = lane.pace.median, other.pace.median
        age = now - other.asks[chunk].asked_at
        if now < other.rests_until or other.late(chunk, now, self._typical()):
            return True
        if mine is None:
            return age >= 1.0
        return age >= 2 * mine if theirs is None else max(theirs - age, 0.25 * theirs) > 1.5 * mine

    def _lost(self, chunk: int, key: Key, now: float) -> None:
        lane = self._of(key)[1]
        ask = lane.asks.pop(chunk)
        lane.pace.was_slow(self._size, asked_at=ask.asked_at, received_then=ask.received_then, now=now)

    def _drop(self, chunk: int, key: Key) -> None:
        self._of(key)[1].asks.pop(chunk, None)
        self._asked.get(chunk, set()).discard(key)

    def _forget(self, chunk: int, key: Key) -> None:
        self._drop(chunk, key)
        if chunk in self._asked and not self._asked[chunk]:
            del self._asked[chunk]
            self.chunks.put_back(chunk)
