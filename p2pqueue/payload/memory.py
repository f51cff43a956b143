"""Where does memory come from into which the system copies megabytes?

From whole pages. Copying to an address that lies a few bytes behind the beginning of a page, where `bytearray` puts a
large buffer, takes four times as long on common processors: 0.6 s instead of 0.14 s for each gigabyte.
"""

from __future__ import annotations

import mmap
from typing import Final

_LEAST: Final = 64 * 1024  # bytes: below that a page of its own costs more than it saves


def pages(size: int) -> memoryview:
    """A buffer of so many bytes, all zero. The system takes it back when nobody holds it, or a part of it, any more."""
    if size < _LEAST:
        return memoryview(bytearray(size))
    if hasattr(mmap, "MAP_ANONYMOUS"):
        return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    return memoryview(mmap.mmap(-1, size))
