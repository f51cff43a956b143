"""How does a program test its tasks: at once, on a clock of its own, on one device or on several that are parted and joined?"""

from p2pqueue.testing.clock import Clock
from p2pqueue.testing.device import Device
from p2pqueue.testing.stage import Space, immediate, space

__all__ = ["Clock", "Device", "Space", "immediate", "space"]
