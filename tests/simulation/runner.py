"""How is a seed run, and how does a failing one become a short trace?"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.plan import Plan, plan
from tests.simulation.world import World

SHRINK_RUNS = 300  # runs that a shrinking may take


@dataclass
class Outcome:
    """What came of a run: its markers, and what went wrong."""

    seed: int
    met: Counter[str] = field(default_factory=Counter)
    problem: str | None = None
    kind: str = ""
    settled_after: float = 0.0


def run_plan(each: Plan) -> Outcome:
    """Runs one plan to its end."""
    logger = logging.getLogger("p2pqueue")
    level = logger.level
    logger.setLevel(logging.ERROR)
    world = World(each)
    outcome = Outcome(each.seed, world.met)
    try:
        world.run()
        outcome.settled_after = world.settled_after
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the seed found
        outcome.problem = f"at {world.schedule.now:.3f} s: " + "".join(traceback.format_exception(error)[-2:])
        outcome.kind = type(error).__name__ + str(error)[:12]
    finally:
        logger.setLevel(level)
        for device in world.devices:
            if device.replica is not None:
                device.replica.close()
    return outcome


def run_seed(seed: int) -> Outcome:
    """Runs the plan of a seed."""
    return run_plan(plan(seed))


def shrink(failing: Plan, tell: Callable[[str], None] = lambda line: None) -> Plan:
    """Drops events, in ever smaller groups, as long as the run still fails."""
    runs, size = 0, max(1, len(failing.events) // 2)
    while size:
        start = 0
        while start < len(failing.events) and runs < SHRINK_RUNS:
            candidate = failing.without(set(range(start, start + size)))
            runs += 1
            if run_plan(candidate).problem is not None:
                failing = candidate
                tell(f"{len(failing.events)} events left after {runs} runs")
            else:
                start += size
        size //= 2
    return failing
