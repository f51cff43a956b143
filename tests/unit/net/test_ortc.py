"""aiortc's data classes come without its media half, and with it where they must."""

from __future__ import annotations

import subprocess
import sys

from p2pqueue.net.webrtc import ortc

BESIDE = """
import p2pqueue.net.webrtc.ortc as ortc, aiortc
print(aiortc.RTCSctpTransport is not ortc.RTCSctpTransport, aiortc.RTCPeerConnection.__name__)
"""
WHERE_THE_STAND_IN_FAILS = """
import importlib.machinery, sys
class Broken(importlib.machinery.ModuleSpec):
    def __init__(self, name, loader, *, is_package=None, **rest):
        if name.endswith("_without_media"):
            raise ImportError("as if aiortc were built in another way")
        super().__init__(name, loader, is_package=is_package, **rest)
importlib.machinery.ModuleSpec = Broken
import p2pqueue.net.webrtc.ortc as ortc, aiortc
print(aiortc.RTCSctpTransport is ortc.RTCSctpTransport, [name for name in sys.modules if "without_media" in name])
"""


def test_every_class_is_there() -> None:
    assert all(isinstance(getattr(ortc, name), type) for name in ortc.__all__)


def test_others_can_use_aiortc_in_the_same_process() -> None:
    assert _said(BESIDE) == "True RTCPeerConnection"


def test_the_ordinary_import_serves_where_the_other_fails() -> None:
    assert _said(WHERE_THE_STAND_IN_FAILS) == "True []"


def _said(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
