"""Two devices that are never there together: a job of the one is done by the other, and a store is the only way between them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.mail.device import PROGRAM, Device, until
from tests.unit.payload.origins import BUCKET, environment_of, s3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3() as url:
        yield url


@contextmanager
def place(kind: str, folder: Path, endpoint: str) -> Iterator[dict[str, str]]:
    """The settings by which a bucket is reached, or an origin that sends devices on to it, or one before a folder."""
    if kind == "bucket":
        yield {"P2PQUEUE_ORIGIN": f"s3://{BUCKET}/alone", **environment_of(endpoint)}
        return
    store = ["--store", f"s3://{BUCKET}/behind", "--sign"] if kind == "signing origin" else ["--store", str(folder / "store")]
    origin = Device(folder / "nas", **environment_of(endpoint))
    command = [*PROGRAM, "origin", *store, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=origin.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield {"P2PQUEUE_ORIGIN": process.stdout.readline().strip()}
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize(("kind", "role"), [("bucket", "owner"), ("signing origin", "worker"), ("origin", "owner")])
def test_a_job_with_an_input_is_done_by_a_device_that_is_there_later_and_its_result_comes_back(
    tmp_path: Path, endpoint: str, kind: str, role: str
) -> None:
    with place(kind, tmp_path, endpoint) as settings:
        be_done(tmp_path, settings, role)


def be_done(tmp_path: Path, settings: dict[str, str], role: str) -> None:
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
