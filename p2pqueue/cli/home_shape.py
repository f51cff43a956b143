"""How do a home and its device look, in JSON and to people?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.home import Home
    from p2pqueue.identity.keys import Identity


def home_document(home: Home, identity: Identity) -> dict[str, Any]:
    """Who this home is, as JSON."""
    return {
        "schema": 1,
        "home": str(home.path),
        "space": identity.space_id,
        "space_name": identity.space_name,
        "device": identity.device_id,
        "label": identity.label,
        "role": identity.role,
    }


def home_facts(home: Home, identity: Identity, *, more: str = "") -> list[tuple[str, str]]:
    """The same for people; `more` is said of the device."""
    return [
        ("Space", f"{plain(identity.space_name)} ({identity.space_id[:8]})"),
        ("Device", f"{plain(identity.label)} ({identity.device_id[:8]}){more}"),
        ("Home", plain(home.path)),
    ]
