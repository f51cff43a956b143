"""Two devices that are never there together: a job of the one is done by the other, and a bucket is the only way between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.mail.device import Device, until
from tests.unit.payload.origins import BUCKET, environment_of, s3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3() as url:
        yield url


@pytest.mark.parametrize("role", ["owner", "worker"])
def test_a_job_with_an_input_is_done_by_a_device_that_is_there_later_and_its_result_comes_back(
    tmp_path: Path, endpoint: str, role: str
) -> None:
    settings = {"P2PQUEUE_ORIGIN": f"s3://{BUCKET}/{role}", **environment_of(endpoint)}
    laptop, server = Device(tmp_path / "laptop", **settings), Device(tmp_path / "server", **settings)
    laptop("init", "--label", "laptop")
    laptop.let_in(server, "server", role=role)
    content = os.urandom(3_000_000)
    (tmp_path / "input.bin").write_bytes(content)

    with laptop.there("--no-work"):
        job = laptop("enqueue", "reverse", "-f", f"data={tmp_path / 'input.bin'}")["id"]
        until(lambda: laptop.networking()["uploads"]["sent"] >= len(content), "the input is in the bucket")
        until(lambda: laptop.networking()["mailbox"]["written"], "the job is in the mailbox")
    with server.there():
        until(lambda: _status(server, job) == "succeeded", f"it is done there\n{server.words()}")
        until(lambda: server.networking()["uploads"]["sent"] >= len(content), "the output is in the bucket")
        until(lambda: server.networking()["mailbox"]["written"], "the result is in the mailbox")
    with laptop.there("--no-work"):
        until(lambda: _status(laptop, job) == "succeeded", f"the result has come\n{laptop.words()}")
        laptop("result", job, "-o", str(tmp_path / "output.bin"))
    assert (tmp_path / "output.bin").read_bytes() == content[::-1]
    assert laptop("show", job)["worker_label"] == "server"


def _status(device: Device, job: str) -> str | None:
    found = [each for each in device("list")["jobs"] if each["id"] == job]
    return str(found[0]["status"]) if found else None
