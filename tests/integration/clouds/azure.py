"""Azurite, which speaks as Azure's blob storage does, on loopback (`npm install azurite`)."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.integration.clouds.emulator import free_port, running

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's, which is no secret
VERSION = "2023-11-03"


@contextlib.contextmanager
def azure(program: str, folder: Path, container: str) -> Iterator[dict[str, str]]:
    """Runs it with an empty container; gives the variables by which a node reaches it."""
    port = free_port()
    flags = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with running([program, *flags, "--location", str(folder)], port):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _make_container(endpoint, container)
        yield {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_STORAGE_ENDPOINT": endpoint}


def _make_container(endpoint: str, name: str) -> None:
    date = email.utils.formatdate(usegmt=True)
    shown = "\n" * 11 + f"\nx-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), f"PUT{shown}".encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)).close()
