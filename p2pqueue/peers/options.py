"""Can the settings of networking be meant as they stand?

What can't be is refused in words when a node starts, and when it is typed into `config set`. An interface that isn't
there may come later, as that of a phone on a cable does: that is worth a warning, no more.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Sequence
from typing import Final

from p2pqueue.errors import ConfigError
from p2pqueue.settings import Settings

CHECKED: Final = ("lanes", "origin_policy", "peers", "listen", "interfaces", "origin")  # settings
LANES: Final = ("webrtc", "http", "origin")
POLICIES: Final = ("never", "needed", "always")
_LONGEST_NAME: Final = 15 if sys.platform == "linux" else 256  # characters that the system allows an interface
_LIKE_AN_ADDRESS: Final = r"[\d.]+|[\da-fA-F:.]*:[\da-fA-F:.]*|.*/\d+"


def check(settings: Settings) -> list[str]:
    """What is odd in these settings and may be meant all the same, in words. Raises `ConfigError` for what can't be."""
    unknown = [lane for lane in settings.lanes if lane not in LANES]
    if unknown or not settings.lanes:
        raise ConfigError(f"lanes: {', '.join(unknown) or 'none'}, where there are {', '.join(LANES)}")
    if settings.origin_policy not in POLICIES:
        raise ConfigError(f"origin_policy: {settings.origin_policy!r}, where there are {', '.join(POLICIES)}")
    _check_addresses(settings)
    if settings.origin:
        from p2pqueue.payload.origins.access import check_origin

        try:
            check_origin(settings.origin)
        except ConfigError as error:
            raise ConfigError(f"origin: {error}") from None
    return check_interfaces(settings.interfaces)


def check_interfaces(wanted: Sequence[str]) -> list[str]:
    """Which of these names of interfaces nothing answers to now, in words. Raises `ConfigError` for what can be no name."""
    for name in wanted:
        if not _is_address(name) and re.fullmatch(_LIKE_AN_ADDRESS, name):
            raise ConfigError(f"interfaces: {name!r} is no address of an interface; write one such as 192.168.1.20, or a name such as eth0")
        if not name.isprintable() or "/" in name or len(name) > _LONGEST_NAME or (sys.platform == "linux" and " " in name):
            raise ConfigError(f"interfaces: {name!r} can be no name of an interface; there are {_there()}")
    if not wanted:
        return []
    from p2pqueue.net.interfaces import choose, current

    found = current()
    missing = [name for name in wanted if not choose(found, [name])]
    return [f"there is no interface {name!r} that is up now; it is used once it comes. There are {_there()}" for name in missing]


def _check_addresses(settings: Settings) -> None:
    if not (settings.peers or settings.listen):
        return
    from p2pqueue.net.addresses import DEFAULT_PORT, endpoint, listening_at

    for name, texts, read in (("peers", settings.peers, endpoint), ("listen", filter(None, [settings.listen]), listening_at)):
        for text in texts:
            try:
                read(text, default_port=DEFAULT_PORT)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _there() -> str:
    from p2pqueue.net.interfaces import current

    return ", ".join(interface.name for interface in current() if interface.up and interface.addresses) or "none that is up"
