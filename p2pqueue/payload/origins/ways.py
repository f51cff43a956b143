"""May files take the way to an origin, or to where it sends on? This room knows no network; whoever does tells it."""

from __future__ import annotations

from typing import Final, Protocol


class Ways(Protocol):
    """What is known of the ways to other places. For any thread."""

    def leads(self, url: str) -> bool:
        """Says whether the way there is metered."""

    def refuses(self, url: str) -> str | None:
        """Why no file may take it now, in words; None where it may."""


class Unmetered:
    """No way costs money."""

    def leads(self, url: str) -> bool:
        """As `Ways` says."""
        return False

    def refuses(self, url: str) -> str | None:
        """As `Ways` says."""
        return None


UNMETERED: Final = Unmetered()
