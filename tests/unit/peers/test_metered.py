"""Which ways cost money is decided by the address that this device sends from."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from p2pqueue.payload.limit import Limits
from p2pqueue.payload.origins.endpoints import first_server
from p2pqueue.peers.shards import metered as room
from p2pqueue.peers.shards.metered import Metered

NAME = "http://a-name.invalid:7433"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str | None]]:
    """The addresses of names, as a name server tells them; None where it doesn't answer in time."""
    known: dict[str, str | None] = {}
    late = threading.Event()

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        if known.get(host, "") is None:
            late.wait(20)
            return []
        if not (address := known.get(host)):
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (address, port))]

    monkeypatch.setattr(room.socket, "getaddrinfo", look_up)
    yield known
    late.set()
    assert comes(lambda: not looking())


def looking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "p2pqueue-metered"]


def comes(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("named", ["lo", "127.0.0.1"])
def test_a_way_that_leads_over_a_named_interface_is_metered(named: str) -> None:
    metered = Metered([named])
    assert metered.leads("http://127.0.0.1:7433")
    assert metered.leads("http://127.0.0.1:7433")  # as it is remembered
    assert metered.leads("//127.0.0.1")


def test_other_ways_are_not() -> None:
    assert not Metered([]).leads("http://127.0.0.1:7433")
    assert not Metered([]).leads(NAME)
    assert not Metered(["no-such-interface"]).leads("http://127.0.0.1:7433")
    assert not Metered(["lo"]).leads(None)


def test_a_name_leads_where_its_addresses_do(answers: dict[str, str | None]) -> None:
    answers["a-name.invalid"] = "127.0.0.1"
    metered = Metered(["lo"])
    metered.leads(NAME)
    assert comes(lambda: not looking())
    assert metered.leads(NAME)
    other = Metered(["no-such-interface"])
    assert comes(lambda: not other.leads(NAME))


def test_a_name_counts_as_metered_until_it_is_known_where_it_leads(answers: dict[str, str | None]) -> None:
    answers["a-name.invalid"] = None
    metered = Metered(["no-such-interface"])
    begun = time.monotonic()
    assert all(metered.leads(NAME) for _ in range(100))
    assert time.monotonic() - begun < 10  # nobody waits for the name server
    assert len(looking()) == 1


def test_a_name_that_stands_for_nothing_is_not_held_back_so_that_its_failure_is_told(answers: dict[str, str | None]) -> None:
    metered = Metered(["lo"])
    assert comes(lambda: not metered.leads(NAME))


def test_files_are_refused_on_a_metered_way_unless_a_person_says_otherwise() -> None:
    limits = Limits()
    metered = Metered(["lo"], limits)
    assert metered.refuses("http://127.0.0.1:9/x") == "that way is metered"
    assert Metered(["no-such-interface"], limits).refuses("http://127.0.0.1:9/x") is None
    limits.metered = True
    assert metered.refuses("http://127.0.0.1:9/x") is None


@pytest.mark.parametrize(
    ("scheme", "environment", "server"),
    [
        ("s3", {}, "https://s3.us-east-1.amazonaws.com"),
        ("s3", {"AWS_REGION": "eu-west-3"}, "https://s3.eu-west-3.amazonaws.com"),
        ("s3", {"AWS_ENDPOINT_URL": "http://nas:9000"}, "http://nas:9000"),
        ("s3", {"AWS_ENDPOINT_URL": "http://nas:9000", "AWS_ENDPOINT_URL_S3": "http://other:9000"}, "http://other:9000"),
        ("gs", {}, "https://storage.googleapis.com"),
        ("gs", {"GOOGLE_BASE_URL": "http://nas:4443"}, "http://nas:4443"),
        ("az", {"AZURE_STORAGE_ACCOUNT_NAME": "box"}, "https://box.blob.core.windows.net"),
        ("az", {"AZURE_STORAGE_ENDPOINT": "http://nas:10000/box"}, "http://nas:10000/box"),
        ("az", {"AZURE_STORAGE_USE_EMULATOR": "true"}, "http://127.0.0.1:10000"),
        ("memory", {}, None),
    ],
)
def test_the_server_of_a_bucket_is_that_of_the_environment_or_its_maker_s(
    scheme: str, environment: dict[str, str], server: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    assert first_server(scheme, environment) == server


def test_a_proxy_is_what_a_bucket_is_reached_by(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://gate:3128")
    assert first_server("gs", {}) == "http://gate:3128"
    assert first_server("s3", {"AWS_ENDPOINT_URL": "http://nas:9000"}) == "http://nas:9000"
    monkeypatch.setenv("no_proxy", "googleapis.com")
    assert first_server("gs", {}) == "https://storage.googleapis.com"
