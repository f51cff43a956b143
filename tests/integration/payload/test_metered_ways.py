"""A device whose ways cost money puts no file on an origin, and takes none from there, until a person says that it may."""

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
SIZE = 3_000_000


@contextmanager
def place(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """The settings by which an origin, or a bucket, is reached."""
    if kind == "bucket":
        with s3() as endpoint:
            yield {"P2PQUEUE_ORIGIN": f"s3://{BUCKET}/metered", **environment_of(endpoint)}
        return
    command = [*PROGRAM, "origin", "--store", str(folder / "store"), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=Device(folder / "nas").environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield {"P2PQUEUE_ORIGIN": process.stdout.readline().strip().replace("127.0.0.1", "localhost")}  # a name is looked up
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize("kind", ["origin", "bucket"])
def test_files_take_a_metered_way_to_an_origin_only_when_a_person_lets_them(tmp_path: Path, kind: str) -> None:
    with place(kind, tmp_path) as settings:
        settings |= {"P2PQUEUE_METERED": "lo", "P2PQUEUE_ORIGIN_POLICY": "always"}
        laptop, server = Device(tmp_path / "laptop", **settings), Device(tmp_path / "server", **settings)
        laptop("init", "--label", "laptop")
        laptop.let_in(server, "server")
        (tmp_path / "input.bin").write_bytes(os.urandom(SIZE))

        with laptop.there("--no-work"):
            job = laptop("enqueue", "reverse", "-f", f"data={tmp_path / 'input.bin'}")["id"]
            until(lambda: laptop.networking()["uploads"]["trouble"] == "that way is metered", "it says why nothing is sent")
            until(lambda: laptop.networking()["mailbox"]["written"], "rows, which are small, go all the same")
            assert laptop.networking()["uploads"]["sent"] == 0
            laptop("limit", "--metered")
            until(lambda: laptop.networking()["uploads"]["sent"] >= SIZE, "a person has let them")

        with server.there():
            until(lambda: "that way is metered" in server.words(), "it says why nothing is fetched")
            assert server.networking()["carried"].get("origin", 0) < SIZE
            server("limit", "--metered")
            until(lambda: server("show", job)["status"] == "succeeded", f"a person has let it\n{server.words()}")
            assert server.networking()["carried"]["origin"] >= SIZE
