"""How is a folder that this device holds written to a place that the user chose?

Each chunk is read once, checked, and cut into its files. Chunks of single large files are written by other threads, a
few ahead; thousands of small files aren't: beside each other, threads wait longer for their turn than one works.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from p2pqueue.payload import saving
from p2pqueue.payload.manifest import TreeManifest
from p2pqueue.payload.memory import pages
from p2pqueue.payload.names import safe_name
from p2pqueue.payload.reading import Reader
from p2pqueue.payload.unpacking import PRIVATE, Unpacking, sync_below

THREADS: Final = 2  # that write, beside the one that reads

Progress = Callable[[int, int], None]


def export_folder(
    reader: Reader, manifest: TreeManifest, target: Path, *, private: bool = False, on_progress: Progress | None = None
) -> None:  # fmt: skip
    """Writes a folder: whole and checked, or not at all. Raises `DiskFull`, `WorldError`, and as `Reader.chunk` does."""
    layout = reader.layout(manifest)
    label, done = f"“{safe_name(manifest.name)}”", 0
    with saving.made_folder(target) as folder:
        unpacking = Unpacking(folder, layout)
        with _Writers(unpacking, layout.chunk_size) as writers:
            for number in range(layout.chunk_count):
                chunk, buffer = layout.chunk(number), writers.buffer()
                reader.chunk(chunk, layout.algorithm, buffer, label)
                writers.write(number, buffer, chunk.plain_size, here=layout.is_shared(number))
                done += chunk.plain_size
                if on_progress is not None:
                    on_progress(done, layout.size)
            writers.drain()
        sync_below(folder)
    if private:
        target.chmod(PRIVATE)


class _Writers:
    """Threads that write chunks, and the buffers in which those are. A context."""

    def __init__(self, unpacking: Unpacking, size: int) -> None:
        threads = THREADS if (os.cpu_count() or 1) > 1 else 0
        self._unpacking = unpacking
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="p2pqueue-unpack") if threads else None  # starts them when needed
        self._free = [pages(size) for _ in range(threads + 1)]
        self._under_way: deque[tuple[memoryview, Future[None]]] = deque()

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def buffer(self) -> memoryview:
        """A buffer for a chunk, as soon as there is one."""
        if not self._free:
            self._take_oldest()
        return self._free.pop()

    def write(self, number: int, buffer: memoryview, size: int, *, here: bool) -> None:
        """Writes the chunk of that number and size: at once, or in a thread."""
        if here or self._pool is None:
            self._unpacking.write(number, buffer[:size])
            self._free.append(buffer)
        else:
            self._under_way.append((buffer, self._pool.submit(self._unpacking.write, number, buffer[:size])))

    def drain(self) -> None:
        """Waits until all is written."""
        while self._under_way:
            self._take_oldest()

    def _take_oldest(self) -> None:
        buffer, writing = self._under_way.popleft()
        writing.result()
        self._free.append(buffer)
