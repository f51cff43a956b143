"""What a device of the space costs the others that sends what no device would, all of it well sealed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.conftest import Space
from tests.net.device import Device, pace
from tests.net.meeting import equal, linked

ROOT = Path(__file__).parents[2]
RISE = 50  # MB that it may cost

# A hundred attacks; not run often enough beside other work to stand in CI.
pytestmark = [pytest.mark.root, pytest.mark.timeout(400), pytest.mark.soak]


def attack(evil: Device, victim: Device, *flags: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "tests.net.hostile", str(evil.home), victim.host.address, *flags)
    process: subprocess.Popen[str] = evil.host.start(*command, env=evil.environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return process


@pytest.mark.parametrize("flags", [(), ("--direct",)], ids=["by the link", "by WebRTC"])
def test_junk_of_a_device_of_the_space_costs_little_memory_and_nobody_else_anything(space: Space, flags: tuple[str, ...]) -> None:
    """S13, after authentication: whoever sends it is dropped, again and again; the node lives and serves the others."""
    h1, h2, h3 = space(3)
    h1.run_node(None, "--no-work")
    h2.run_node()
    linked([h1, h2], within=30 * pace())
    assert h1("enqueue", "echo", "text=before", "--wait", "--wait-timeout", "60")["result"] == "before"
    before, most = h2.memory(), 0
    attacking = attack(h3, h2, *flags)
    assert attacking.stdout is not None
    outcomes: dict[str, str] = {}
    for number, line in enumerate(attacking.stdout):
        told = json.loads(line)
        outcomes[told["attack"]] = told["outcome"]
        most = max(most, h2.memory())
        if number % 30 == 0:
            job = h1("enqueue", "echo", f"text=job {number}", "--wait", "--wait-timeout", "60")
            assert (job["result"], job["worker_label"]) == (f"job {number}", "h2")
    assert attacking.wait(60) == 0
    print(f"memory: {before} MB before {len(outcomes)} attacks, {most} MB at most; {json.dumps(outcomes, indent=0)}")
    assert most < before + RISE
    assert list(outcomes.values()).count("ended") > (10 if flags else 40)
    assert not [outcome for outcome in outcomes.values() if outcome.startswith("not let in")]
    assert "Traceback" not in h2.words()
    equal([h1, h2], within=20 * pace())
