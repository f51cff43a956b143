"""What does the demo play on? Three devices with homes of their own, on one network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from p2pqueue.demo.app import ABLE
from p2pqueue.demo.device import Device
from p2pqueue.demo.network import Kind, Network, network_of

STALE_AFTER = "6s"  # instead of 45: nobody wants to wait so long in a demo
BEAT_EVERY = "1s"


class Stage:
    """Three devices, none of them in a space yet. All that it starts ends with `close`."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        self.network = network
        self.laptop, self.tower, self.desktop = self.devices = [
            Device(name, folder, network, stale_after=STALE_AFTER, beat_every=BEAT_EVERY) for name in ("laptop", "tower", "desktop")
        ]
        self._flags = {"laptop": ("--score", "1"), "tower": ("--score", "400", "--tag", ABLE), "desktop": ("--score", "50", "--tag", ABLE)}

    def device(self, label: str) -> Device:
        """The device of that label."""
        return next(device for device in self.devices if device.name == label)

    def start_nodes(self, *devices: Device) -> None:
        """Starts the nodes of these devices at the same time, and waits until all are ready."""
        for device in devices:
            device.launch_node("--slots", "1", *self._flags[device.name])
        for device in devices:
            device.await_node()

    def close(self) -> None:
        """Stops what runs."""
        for device in self.devices:
            device.stop_node()
        self.network.close()


@contextmanager
def stage(folder: Path, kind: Kind) -> Iterator[Stage]:
    """A stage for as long as the block runs."""
    network = network_of(kind)
    try:
        made = Stage(folder, network)
    except BaseException:
        network.close()
        raise
    try:
        yield made
    finally:
        made.close()
