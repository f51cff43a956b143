"""Which transports serve: the tuned ones where aiortc's insides are those they were written for, else aiortc's own?

The tuned ones override private names. Before they are used, the source of everything that they override or rely on is
compared with what is known; a later aiortc that changes any of it is served by the ordinary ones, more slowly.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from p2pqueue.net.webrtc.ice import IceTransport, Path
from p2pqueue.net.webrtc.ortc import RTCCertificate, RTCDtlsTransport, RTCSctpTransport
from p2pqueue.net.webrtc.transports import DtlsTransport, SctpTransport

_SCTP = (  # methods of aiortc's
    *("__init__", "start", "stop", "_init", "_abort", "_set_state", "_set_extensions", "_get_extensions"),
    *("_handle_data", "_receive", "_receive_chunk", "_receive_data_chunk", "_receive_sack_chunk", "_receive_forward_tsn_chunk"),
    *("_transmit", "_send_chunk", "_send_sack", "_t3_cancel", "_transmit_reconfig", "_reset_deferred_streams"),
    *("_data_channel_send", "_data_channel_flush", "_data_channel_receive"),
)
_DTLS = ("__init__", "start", "stop", "_recv_next", "_register_data_receiver", "_send_data", "_set_state", "_write_ssl")
_KNOWN = {
    "7d247eaad809d8d2f33038338ad9d65f": "aiortc 1.16.0",
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transports:
    """The two upper layers of a connection."""

    dtls: DtlsTransport
    sctp: SctpTransport


def make_transports(ice: IceTransport, certificate: RTCCertificate, path: Path, *, tuned: bool) -> Transports:
    """The transports for a connection over this path: the tuned ones if they are wanted and can be used."""
    if tuned and obstacle() is None:
        from p2pqueue.net.webrtc.tuned_dtls import TunedDtls
        from p2pqueue.net.webrtc.tuned_sctp import TunedSctp

        fast = TunedDtls(ice, [certificate], path=path)
        return Transports(fast, TunedSctp(fast, waiting=path.waiting))
    dtls = DtlsTransport(ice, [certificate])
    return Transports(dtls, SctpTransport(dtls, waiting=path.waiting))


@cache
def obstacle() -> str | None:
    """Why the tuned transports can't be used here, told once to the log; None where they can."""
    why = _first_obstacle(RTCSctpTransport, RTCDtlsTransport)
    if why is not None:
        _log.warning("direct connections are slower than they could be: %s", why)
    return why


def _first_obstacle(sctp: type[Any], dtls: type[Any]) -> str | None:
    found = fingerprint(sctp, _SCTP, dtls, _DTLS)
    if found not in _KNOWN:
        return "this version of aiortc is not one whose insides are known"
    return _missing()


def fingerprint(sctp: type[Any], of_sctp: Iterable[str], dtls: type[Any], of_dtls: Iterable[str]) -> str:
    """What the source of these methods comes to; empty where one is missing or has no source."""
    digest = hashlib.sha256()
    try:
        for owner, names in ((sctp, of_sctp), (dtls, of_dtls)):
            for name in names:
                digest.update(_source(inspect.getattr_static(owner, name)).encode())
    except (AttributeError, IndexError):
        return ""
    return digest.hexdigest()[:32]


def _source(method: Any) -> str:
    """The lines of a method. `inspect` parses the file for each: sixty times slower, and the loop would wait."""
    code = method.__code__
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    indent = _indent(lines[0])
    rest = (number for number, line in enumerate(lines[1:], 1) if line.strip() and _indent(line) <= indent and line.lstrip()[0] != ")")
    return "".join(lines[: next(rest, len(lines))]).strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _missing() -> str | None:
    """What OpenSSL's or google-crc32c's packages lack of what is called directly."""
    try:
        from OpenSSL import SSL

        from p2pqueue.net.webrtc import packets, records  # noqa: F401  that they can be imported is asked
    except ImportError as error:
        return f"a package offers less than it did: {error}"
    lacking = records.lacking(SSL.Connection(SSL.Context(SSL.DTLS_METHOD)))
    return f"pyOpenSSL lacks {', '.join(lacking)}" if lacking else None
