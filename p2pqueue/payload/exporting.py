"""How is a folder that this device holds written to a place that the user chose?

Each chunk is read once, checked, and cut into its files by several threads, a few chunks ahead.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from p2pqueue.payload import saving
from p2pqueue.payload.manifest import TreeManifest
from p2pqueue.payload.names import safe_name
from p2pqueue.payload.reading import Reader
from p2pqueue.payload.unpacking import PRIVATE, Unpacking, sync_below

THREADS: Final = 2  # that write, beside the one that reads
FEWEST: Final = 4  # chunks from which threads are worth their start

Progress = Callable[[int, int], None]


def export_folder(
    reader: Reader, manifest: TreeManifest, target: Path, *, private: bool = False, on_progress: Progress | None = None
) -> None:  # fmt: skip
    """Writes a folder: whole and checked, or not at all. Raises `DiskFull`, `WorldError`, and as `Reader.chunk` does."""
    layout = reader.layout(manifest)
    label, done = f"“{safe_name(manifest.name)}”", 0
    with saving.made_folder(target) as folder:
        unpacking = Unpacking(folder, layout)
        threads = THREADS if layout.chunk_count >= FEWEST and (os.cpu_count() or 1) > 1 else 0
        under_way: deque[tuple[memoryview, Future[None]]] = deque()
        free = [memoryview(bytearray(layout.chunk_size)) for _ in range(threads + 1)]
        with ThreadPoolExecutor(threads, thread_name_prefix="p2pqueue-unpack") if threads else contextlib.nullcontext() as pool:
            for number in range(layout.chunk_count):
                chunk = layout.chunk(number)
                if not free:
                    buffer, writing = under_way.popleft()
                    writing.result()
                    free.append(buffer)
                buffer = free.pop()
                reader.chunk(chunk, layout.algorithm, buffer, label)
                plain = buffer[: chunk.plain_size]
                if pool is None:
                    unpacking.write(number, plain)
                    free.append(buffer)
                else:
                    under_way.append((buffer, pool.submit(unpacking.write, number, plain)))
                done += chunk.plain_size
                if on_progress is not None:
                    on_progress(done, layout.size)
            for _, writing in under_way:
                writing.result()
        sync_below(folder)
    if private:
        target.chmod(PRIVATE)
