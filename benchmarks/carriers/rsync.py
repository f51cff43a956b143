"""Rsync from a daemon of its own: nothing is encrypted, nothing but the length is checked on the first copy."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.carriers.carrier import LIMIT, Carrier, accepts, free_port, program, server, settle, wait_until


class _Rsync:
    name = "rsync"

    def __init__(self, command: str, port: int, root: Path) -> None:
        self._command = command
        self._port = port
        self._root = root

    def carry(self, source: Path, target: Path) -> float:
        name = source.relative_to(self._root).as_posix()
        words = [self._command, "-r", "--whole-file", f"rsync://127.0.0.1:{self._port}/files/{name}{'/' if source.is_dir() else ''}"]
        begun = time.monotonic()
        subprocess.run([*words, str(target)], check=True, timeout=LIMIT)
        settle(target)
        return time.monotonic() - begun


@contextmanager
def rsync(folder: Path, root: Path) -> Iterator[Carrier]:
    """An rsync daemon that gives what lies under `root`."""
    command, port = program("rsync"), free_port()
    configuration = folder / "rsyncd.conf"
    configuration.write_text(f"use chroot = no\nuid = 0\ngid = 0\n[files]\npath = {root}\nread only = yes\n")
    words = [command, "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}", f"--config={configuration}"]
    with server(words, folder / "rsyncd.log"):
        wait_until(lambda: accepts(port), "the rsync daemon listens", limit=10)
        yield _Rsync(command, port, root)
