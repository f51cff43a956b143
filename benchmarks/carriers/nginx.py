"""Curl from an nginx: plain HTTP with sendfile, the yardstick of what a machine can do. Files alone, no folders."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.carriers.carrier import LIMIT, Carrier, accepts, free_port, program, server, settle, wait_until

_CONFIGURATION = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 64; }}
http {{
  access_log off; sendfile on; tcp_nopush on;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


class _Curl:
    name = "nginx + curl"

    def __init__(self, command: str, port: int, root: Path) -> None:
        self._command = command
        self._port = port
        self._root = root

    def carry(self, source: Path, target: Path) -> float:
        url = f"http://127.0.0.1:{self._port}/{source.relative_to(self._root).as_posix()}"
        begun = time.monotonic()
        subprocess.run([self._command, "--silent", "--fail", "--noproxy", "*", "--output", str(target), url], check=True, timeout=LIMIT)
        settle(target)
        return time.monotonic() - begun


@contextmanager
def nginx(folder: Path, root: Path) -> Iterator[Carrier]:
    """An nginx that gives what lies under `root`."""
    command, curl, port = program("nginx"), program("curl"), free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text("user root;" + _CONFIGURATION.format(folder=folder, port=port, root=root))
    with server([command, "-c", str(configuration), "-p", str(folder)], folder / "nginx.out"):
        wait_until(lambda: accepts(port), "nginx listens", limit=10)
        yield _Curl(curl, port, root)
