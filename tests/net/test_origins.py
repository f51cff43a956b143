"""What a node makes of an origin that refuses it or is full: it says so, tries again, and goes on over its links."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.net.conftest import Space
from tests.net.device import PROGRAM, Device, pace, until
from tests.net.meeting import MB, ended, linked, networking, random_file

# They wait for retries; not run often enough beside other work to stand in CI.
pytestmark = [pytest.mark.root, pytest.mark.timeout(300), pytest.mark.soak]


class Nas(Device):
    """A host that is no device of the space, and runs an origin."""

    def serve(self, *flags: str) -> str:
        """Starts the origin; gives its URL as others reach it."""
        self.node = self.host.start(*PROGRAM, "origin", "--listen", "0.0.0.0:7434", *flags, env=self.environment, stdout=-1, text=True)
        assert self.node.stdout is not None
        return str(self.node.stdout.readline().strip()).replace("0.0.0.0", self.host.address)


def trouble(device: Device) -> str:
    return str(networking(device)["uploads"]["trouble"] or "")


def test_a_wrong_token_is_told_in_words_and_the_job_is_done_over_the_link(space: Space, tmp_path: Path) -> None:
    h1, h2 = devices = space(2)
    nas = Nas(h1.host.lan.add("nas"), tmp_path / "nas")
    url = nas.serve()
    for device in devices:
        device.environment |= {"P2PQUEUE_ORIGIN": "http://wrong" + url[url.index("@") :], "P2PQUEUE_ORIGIN_POLICY": "always"}
        device.run_node(None, "--no-work")
    linked(devices, within=30 * pace())
    wanted = random_file(tmp_path / "file.bin", 5 * MB)
    job_id = h1("enqueue", "sha", "-f", f"data={tmp_path / 'file.bin'}")["id"]
    until(lambda: "401" in trouble(h1) and "token" in trouble(h1), within=60 * pace(), what="it says that the token is wrong")
    assert "wrong" not in trouble(h1).replace("answers", "")  # no part of a token is shown
    h2.kill(signal.SIGTERM)
    h2.run_node()
    job = ended(h1, job_id, within=60 * pace())
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", wanted, "h2")
    h1.kill(signal.SIGTERM)
    h1.environment["P2PQUEUE_ORIGIN"] = url
    h1.run_node(None, "--no-work")
    random_file(tmp_path / "next.bin", 5 * MB)
    h1("enqueue", "sha", "-f", f"data={tmp_path / 'next.bin'}", "--delay", "9h")
    until(lambda: networking(h1)["uploads"]["sent"] >= 5 * MB, within=60 * pace(), what="with the right one the file is put there")
    assert not trouble(h1)


def test_a_full_origin_is_told_in_words_and_tried_until_there_is_room(space: Space, tmp_path: Path) -> None:
    h1, h2 = devices = space(2)
    nas = Nas(h1.host.lan.add("nas"), tmp_path / "nas")
    url = nas.serve("--quota", "2MB")
    for device in devices:
        device.environment |= {"P2PQUEUE_ORIGIN": url, "P2PQUEUE_ORIGIN_POLICY": "always"}
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked(devices, within=30 * pace())
    wanted = random_file(tmp_path / "file.bin", 9 * MB)
    job = h1("enqueue", "sha", "-f", f"data={tmp_path / 'file.bin'}", "--wait", "--wait-timeout", "60", timeout=90)
    assert (job["status"], job["result"], job["worker_label"]) == ("succeeded", wanted, "h2")
    h1("enqueue", "sha", "-f", f"data={tmp_path / 'file.bin'}", "--delay", "9h")
    until(lambda: "the origin is full" in trouble(h1), within=60 * pace(), what="it says that the origin is full")
    nas.kill(signal.SIGTERM)
    nas.serve("--quota", "1GB")
    until(lambda: not trouble(h1) and networking(h1)["uploads"]["sent"] >= 9 * MB, within=120 * pace(), what="it is all there")
