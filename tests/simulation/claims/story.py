"""What happens in one seed: the machines, their jobs, the faults, and what must hold at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from p2pqueue.jobs.waiting import Demand
from tests.simulation.claims.machine import STALE_AFTER, Machine
from tests.simulation.claims.world import NOTICED, Broken, World

FAULTY = 40.0  # seconds of faults
TASKS = ("edit", "render", "mix")
SLACK = 2 * STALE_AFTER + NOTICED + 15.0  # a lease, the detection of a dead link, start-up graces, the back-stop


@dataclass
class Outcome:
    """What became of a seed."""

    seed: int
    healthy: bool
    problem: str | None = None
    met: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    twice: int = 0  # runs beyond what the jobs needed, where links were healthy


def run_seed(seed: int) -> Outcome:
    """Plays one seed: every third with healthy links throughout, the others with faults."""
    healthy = seed % 3 == 0
    world = _world(seed, healthy)
    try:
        jobs = _play(world, healthy)
    except Broken as broken:
        return Outcome(seed, healthy, str(broken), dict(world.met))
    twice = sum(starts - 1 for starts in world.starts.values()) if healthy else 0
    return Outcome(seed, healthy, None, dict(world.met), len(jobs), twice)


def _world(seed: int, healthy: bool) -> World:
    random = Random(seed)
    delay = (0.002, random.choice((0.01, 0.03))) if healthy else (0.002, random.choice((0.02, 0.2, 1.5)))
    world = World(seed, delay=delay, loss=0.0 if healthy else random.choice((0.0, 0.05, 0.3)))
    for number in range(random.randint(3, 12)):
        machine = Machine(
            world, number, score=random.choice((30, 60, 60, 240, 960)), slots=random.randint(1, 4),
            tasks=frozenset(TASKS if number == 0 else random.sample(TASKS, random.randint(1, 3))),
            skew=0.0 if random.random() < 0.5 else random.uniform(-3600, 3600),
        )  # fmt: skip
        world.machines.append(machine)
    world.settle_links()
    return world


def _play(world: World, healthy: bool) -> list[str]:
    random, start = world.random, world.now + 12.0  # whoever starts has heard of the others by then
    jobs = _enqueue(world, start, healthy)
    if not healthy:
        _harm(world, start)
    world.run(start + FAULTY)
    _heal(world)
    end = _last_end(world, random)
    world.run(world.now + SLACK, lambda: _all_begun(world, jobs))
    if waiting := _not_begun(world, jobs):
        raise Broken(f"{SLACK} s after the faults stopped nobody runs {waiting}")
    world.run(world.now + end, lambda: _all_ended(world, jobs))
    world.run(world.now + 10.0)
    _check_end(world, jobs)
    return jobs


def _enqueue(world: World, start: float, healthy: bool) -> list[str]:
    random, jobs = world.random, []
    burst = random.random() < 0.5
    short = random.random() < 0.4
    for number in range(random.randint(10, 60)):
        job, task = f"job-{number}", random.choice(TASKS)
        work = random.uniform(0.05, 2.0) if short else random.uniform(2.0, 60.0)
        fails = 0 if healthy or random.random() < 0.8 else random.randint(1, 2)
        machine = random.choice(world.machines)
        demand = Demand(task, frozenset(), None, True)
        at = start + (random.uniform(0, 0.2) if burst else random.uniform(0, FAULTY))

        def enqueue(machine: Machine = machine, job: str = job, demand: Demand = demand, work: float = work, fails: int = fails) -> None:
            machine.enqueue(job, demand, work, fails)  # by a program of its user, whether its node runs or not

        world.at(at, enqueue)
        jobs.append(job)
    return jobs


def _harm(world: World, start: float) -> None:
    random = world.random
    kinds: list[Callable[[World, Random], None]] = [_part, _cut_one, _crash, _sleep, _leave, _unplug]
    for _ in range(random.randint(2, 10)):
        kind = random.choice(kinds)
        world.at(start + random.uniform(0, FAULTY - 1), lambda kind=kind: kind(world, random))


def _part(world: World, random: Random) -> None:
    world.met["the space fell into two parts"] += 1
    side = {machine.number for machine in world.machines if random.random() < 0.5}
    pairs = {frozenset(pair) for pair in itertools.combinations(range(len(world.machines)), 2) if len(side & set(pair)) == 1}
    world.cut |= pairs
    world.settle_links()
    world.after(random.uniform(1.0, 30.0), lambda: _mend(world, pairs))


def _cut_one(world: World, random: Random) -> None:
    world.met["one link was cut"] += 1
    pairs = {frozenset(random.sample(range(len(world.machines)), 2))}
    world.cut |= pairs
    world.settle_links()
    world.after(random.uniform(1.0, 30.0), lambda: _mend(world, pairs))


def _unplug(world: World, random: Random) -> None:
    world.met["a machine lost its network"] += 1
    machine = random.choice(world.machines)
    pairs = {frozenset((machine.number, other.number)) for other in world.machines if other is not machine}
    world.cut |= pairs
    machine.usable = False
    world.settle_links()

    def plug() -> None:
        machine.usable = True
        _mend(world, pairs)

    world.after(random.uniform(1.0, 30.0), plug)


def _mend(world: World, pairs: set[frozenset[int]]) -> None:
    world.cut -= pairs
    world.settle_links()


def _crash(world: World, random: Random) -> None:
    machine = random.choice(world.machines)
    if machine.runs:
        machine.crash()
        world.after(random.choice((1.0, 5.0, 1000.0)), machine.start)


def _leave(world: World, random: Random) -> None:
    machine = random.choice(world.machines[1:])
    if machine.runs and machine.asleep_until <= world.now:
        machine.leave()
        world.after(random.choice((1.0, 1000.0)), machine.start)


def _sleep(world: World, random: Random) -> None:
    random.choice(world.machines).sleep(random.uniform(1.0, 3 * STALE_AFTER))


def _heal(world: World) -> None:
    """The faults stop: everything is connected, and at least the first machine, which can do all, runs."""
    world.loss = 0.0
    world.cut.clear()
    for machine in world.machines:
        machine.usable = True
    world.machines[0].start()
    for machine in world.machines[1:]:
        if world.random.random() < 0.5:
            machine.start()
    world.settle_links()


def _last_end(world: World, random: Random) -> float:
    return 60.0 * 60 / min(machine.score for machine in world.machines) * 30 + 300.0


def _known(world: World, job: str) -> list[Machine]:
    return [machine for machine in world.machines if machine.runs and job in machine.rows]


def _not_begun(world: World, jobs: list[str]) -> list[str]:
    """Jobs that nobody is at although somebody who could be has a free slot."""
    found = []
    for job in jobs:
        known = _known(world, job)
        if not known or any(machine.rows[job].state.is_terminal for machine in known) or any(job in each.here for each in known):
            continue
        task = known[0].rows[job].demand.task
        if any(task in machine.tasks and len(machine.here) < machine.slots for machine in known):
            found.append(job)
    return found


def _all_begun(world: World, jobs: list[str]) -> bool:
    return all(
        any(machine.rows[job].state.is_terminal or job in machine.here for machine in _known(world, job))
        for job in jobs
        if _known(world, job)
    )


def _all_ended(world: World, jobs: list[str]) -> bool:
    running = [machine for machine in world.machines if machine.runs]
    known = [job for job in jobs if any(job in machine.rows for machine in running)]
    return all(job in machine.rows and machine.rows[job].state.is_terminal for job in known for machine in running) and not any(
        machine.here for machine in running
    )


def _check_end(world: World, jobs: list[str]) -> None:
    running = [machine for machine in world.machines if machine.runs]
    for job in jobs:
        states = {machine.rows[job].stamp if job in machine.rows else None for machine in running}
        if states == {None}:
            continue  # made where nobody has been since
        if len(states) != 1:
            raise Broken(f"{job} differs at the end: {states}")
        state = running[0].rows[job].state
        if state.status != "succeeded":
            raise Broken(f"{job} is {state.status} at the end")
