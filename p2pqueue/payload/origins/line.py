"""How does a thread get shards from an origin, which may send it on to its bucket?

The bucket is asked for exactly what the origin's answer says, once, and isn't told the origin's token.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from p2pqueue.payload.fetching.http_line import Came, HttpLine, Place
from p2pqueue.payload.fetching.source import Request, SourceFailed
from p2pqueue.payload.origins.ways import UNMETERED, Ways

SENT_ON: Final = 307


class OriginLine(HttpLine):
    """One connection to an origin, and one to where it sends on to. For one thread at a time."""

    def __init__(self, place: Place, *, ways: Ways = UNMETERED) -> None:
        super().__init__(place)
        self._ways = ways
        self._elsewhere: HttpLine | None = None

    def end(self) -> None:
        """Ends both, whatever their thread waits for."""
        super().end()
        if (elsewhere := self._elsewhere) is not None:
            elsewhere.end()

    def close(self) -> None:
        """Closes both."""
        super().close()
        if self._elsewhere is not None:
            self._elsewhere.close()

    def get(self, request: Request, came: Came) -> None:
        """Fills the buffer of one request. Raises `ShardMissing` and `SourceFailed`."""
        answer = self.ask(f"/shards/{request.address.hex()}", wanted=lambda: request.wanted)
        if answer.status != SENT_ON:
            self.take(answer, request, came)
            return
        self.words(answer, lambda: request.wanted)
        base, path = self._parts(answer.headers.get("Location", ""))
        if (why := self._ways.refuses(base)) is not None:
            raise SourceFailed(f"{self.place.called} sends on to {urlsplit(base).hostname}: {why}")
        line = self._line_to(base)
        line.take(line.ask(path, wanted=lambda: request.wanted), request, came)

    def _parts(self, url: str) -> tuple[str, str]:
        try:
            where = urlsplit(url)
        except ValueError:
            where = urlsplit("")
        if where.scheme not in ("http", "https") or not where.hostname or not url.isascii():
            raise SourceFailed(f"{self.place.called} names no URL that can be used")
        return f"{where.scheme}://{where.netloc}", where.path + (f"?{where.query}" if where.query else "")

    def _line_to(self, base: str) -> HttpLine:
        line = self._elsewhere
        if line is None or line.place.base != base or not line.is_fit:
            if line is not None:
                line.close()
            line = self._elsewhere = HttpLine(Place(base, None, self.place.called))
        return line
