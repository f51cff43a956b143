"""To which server do the bytes of a bucket go, by the variables of the environment that obstore heeds?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_SET: Final = {  # the variables that name another server than the maker's, the first that is set counts
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_EMULATOR: Final = "http://127.0.0.1:10000"


def first_server(scheme: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The URL of the server that a node connects to for a bucket, which may be a proxy; None for one in memory."""
    url = _endpoint(scheme, environment)
    return None if url is None else _by_proxy(url)


def _endpoint(scheme: str, environment: Mapping[str, str]) -> str | None:
    for name in _SET.get(scheme, ()):
        if url := environment.get(name):
            return url
    if scheme == "s3":
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        return f"https://s3.{region}.amazonaws.com"
    if scheme == "gs":
        return "https://storage.googleapis.com"
    if scheme == "az":
        if environment.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("1", "true", "yes", "on"):
            return environment.get("AZURITE_BLOB_STORAGE_URL") or _EMULATOR
        return f"https://{environment.get('AZURE_STORAGE_ACCOUNT_NAME', '')}.blob.core.windows.net"
    return None


def _by_proxy(url: str) -> str:
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return url
    return proxy if "://" in proxy else f"http://{proxy}"
