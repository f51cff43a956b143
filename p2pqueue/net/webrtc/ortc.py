"""Where do aiortc's data-channel classes come from, without its audio and video half?

`import aiortc` brings PyAV along: 18 MB and half the time of the import, for media that a job queue never moves.
The five modules that data channels need are loaded here under a package name of our own, beside whatever
`aiortc` is or becomes for others, with an empty stand-in where RTP would be. Where that stops working, the
ordinary import serves. Importing this module costs 15–45 MB: import it when a connection is to be built.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiortc.rtcdatachannel import RTCDataChannel, RTCDataChannelParameters
    from aiortc.rtcdtlstransport import RTCCertificate, RTCDtlsFingerprint, RTCDtlsParameters, RTCDtlsTransport
    from aiortc.rtcicetransport import RTCIceCandidate, RTCIceGatherer, RTCIceParameters, RTCIceTransport
    from aiortc.rtcsctptransport import RTCSctpCapabilities, RTCSctpTransport

__all__ = [
    "RTCCertificate",
    "RTCDataChannel",
    "RTCDataChannelParameters",
    "RTCDtlsFingerprint",
    "RTCDtlsParameters",
    "RTCDtlsTransport",
    "RTCIceCandidate",
    "RTCIceGatherer",
    "RTCIceParameters",
    "RTCIceTransport",
    "RTCSctpCapabilities",
    "RTCSctpTransport",
]

_OWN = f"{__name__}_without_media"


class _Absent:
    """Stands for everything of RTP: nothing is ever an instance of it."""


class _NoMedia(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent


def _load() -> dict[str, Any]:
    try:
        return _classes(_without_media())
    except (ImportError, AttributeError, TypeError):
        for name in [name for name in sys.modules if name == _OWN or name.startswith(f"{_OWN}.")]:
            del sys.modules[name]
        return _classes("aiortc")


def _without_media() -> str:
    found = importlib.util.find_spec("aiortc")
    if found is None or found.submodule_search_locations is None:
        raise ImportError("aiortc is not installed")
    spec = importlib.machinery.ModuleSpec(_OWN, None, is_package=True)
    spec.submodule_search_locations = list(found.submodule_search_locations)
    sys.modules[_OWN] = importlib.util.module_from_spec(spec)
    sys.modules[f"{_OWN}.rtp"] = _NoMedia(f"{_OWN}.rtp")
    return _OWN


def _classes(package: str) -> dict[str, Any]:
    # The data channel first: the SCTP module and it import one another.
    names = ("rtcdatachannel", "rtcicetransport", "rtcdtlstransport", "rtcsctptransport")
    modules = [importlib.import_module(f"{package}.{name}") for name in names]
    return {name: next(getattr(module, name) for module in modules if hasattr(module, name)) for name in __all__}


if not TYPE_CHECKING:
    globals().update(_load())
