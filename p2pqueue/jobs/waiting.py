"""Why does a job wait, and may this worker take it?

One sentence each, the same for the claim, the command line and the log. Pure. Its values
are named tuples for the reason told in `rows`.
"""

import json
from collections.abc import Collection, Container, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Ability(NamedTuple):
    """What a worker can do: its registered tasks, its tags, and the largest input it takes (bytes)."""

    label: str
    tasks: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    max_input: int | None = None
    max_input_by_task: Mapping[str, int] = _NOTHING
    needs_by_task: Mapping[str, frozenset[str]] = _NOTHING
    programs: Container[str] = frozenset()  # needs that programs on PATH meet
    allow_exec: bool = False
    exec_tasks: frozenset[str] = frozenset()  # tasks that run a program
    takes: bool = True  # jobs at all
    trouble: str | None = None  # why it takes none, where it should


class Demand(NamedTuple):
    """What a job asks of its worker."""

    task: str
    needs: frozenset[str]
    input_size: int | None
    input_ready: bool  # a manifest is set, or this device holds the original


EXEC_TASK = "exec"
_NAMED = 3  # devices that one reason names
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_000  # milliseconds: the years 1 to 9999


def needs_in(stored: str | None) -> frozenset[str]:
    """The needs that a row holds. What another device wrote there and is no list of tags is a need that nobody meets."""
    if not stored:
        return frozenset()
    tags = texts_in(stored)
    return frozenset((repr(stored[:40]),)) if tags is None else frozenset(tags)


def texts_in(stored: str) -> tuple[str, ...] | None:
    """The texts in a row's JSON, None where it holds something else: any device may have written it."""
    try:
        found = json.loads(stored)
    except (ValueError, RecursionError):
        return None
    return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def unfit(demand: Demand, ability: Ability) -> str | None:
    """The reason why this worker can't run the job, or None where it can."""
    return lacking(demand, ability) or _too_large(demand, ability) or (None if demand.input_ready else "its input is on another device")


def lacking(demand: Demand, ability: Ability) -> str | None:
    """What this worker lacks for the job, whatever its input: the task, the leave to run programs, or a tag."""
    if _is_barred(demand, ability):
        return _barred([ability.label])
    if not _is_program(demand, ability) and demand.task not in ability.tasks:
        return f"no running node here has the task {demand.task!r}"
    missing = (demand.needs | ability.needs_by_task.get(demand.task, frozenset())) - ability.tags
    missing = frozenset(need for need in missing if need not in ability.programs)
    if missing:
        return f"{ability.label} lacks {', '.join(sorted(missing))}"
    return None


def refusal(demand: Demand, ability: Ability) -> str | None:
    """Why this worker doesn't take the job, whatever its input: it takes none, or lacks something."""
    return lacking(demand, ability) if ability.takes else ability.trouble or f"{ability.label} takes no jobs"


def nobody(own: str, demand: Demand, ability: Ability, others: Collection[Ability]) -> str:
    """Why no device that is linked can run the job: what keeps this one (`own`), and what the others lack that have the task."""
    them = sorted(others, key=lambda each: each.label)
    barred = [each.label for each in them if _is_barred(demand, each)]
    asked = [each for each in them if demand.task in each.tasks and not _is_barred(demand, each)]
    told = [lack for each in asked if (lack := lacking(demand, each)) is not None][:_NAMED]
    if them and not barred and not told:
        return f"{own}, and no other device that is linked can take it"
    if ability.takes and _is_barred(demand, ability):
        barred.insert(0, ability.label)
    else:
        told.insert(0, own)
    return ", and ".join([*told, _barred(barred)] if barred else told)


def _is_program(demand: Demand, ability: Ability) -> bool:
    return demand.task == EXEC_TASK or demand.task in ability.exec_tasks


def _is_barred(demand: Demand, ability: Ability) -> bool:
    return _is_program(demand, ability) and not ability.allow_exec


def _barred(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return f"{labels[0]} runs no programs: start its node with --allow-exec"
    named = [*labels[:_NAMED], f"{len(labels) - _NAMED} more"] if len(labels) > _NAMED else labels
    return f"{', '.join(named[:-1])} and {named[-1]} run no programs: start one of their nodes with --allow-exec"


def _too_large(demand: Demand, ability: Ability) -> str | None:
    limits = [limit for limit in (ability.max_input, ability.max_input_by_task.get(demand.task)) if limit is not None]
    if demand.input_size is None or not limits or demand.input_size <= min(limits):
        return None
    return f"too large for {ability.label}: {demand.input_size:,} bytes where it takes at most {min(limits):,}"


class Situation(NamedTuple):
    """What is known of a queued job when somebody asks why it waits; times in milliseconds UTC."""

    status: str
    demand: Demand
    run_at: int | None
    retry_at: int | None
    error: str | None
    problem: str | None  # what stood in the way at the last try to run it here
    shared: bool = True  # its input can be had by other devices, or it has none
    source: str | None = None  # the device that enqueued it, and so has its input


def reason(
    situation: Situation, ability: Ability | None, now: int, *, known_tasks: Collection[str] = (),
    others: Mapping[str, Ability] = _NOTHING, left: str | None = None,
) -> str | None:  # fmt: skip
    """Why the job does not run now, in one sentence; None for a job that runs or has ended.

    `ability` is the running node's, None while no node runs; `known_tasks` those that a node here ever had; `others`
    what the workers on other devices can do, by their ids; `left` tells to which of them it is left.
    """
    if situation.status == "paused":
        return "paused: `p2pqueue resume` lets it run"
    if situation.status != "queued":
        return None
    if situation.run_at and situation.run_at > now:
        return f"scheduled for {_moment(situation.run_at)}"
    if situation.retry_at and situation.retry_at > now:
        return f"runs again at {_moment(situation.retry_at)}, after: {situation.error or 'a failed attempt'}"
    if ability is None:
        unknown = situation.demand.task != EXEC_TASK and known_tasks and situation.demand.task not in known_tasks
        also = f", and none has had the task {situation.demand.task!r}" if unknown else ""
        return f"no node runs here{also}: start one with `p2pqueue run`"
    own = unfit(situation.demand, ability) if ability.takes else refusal(situation.demand, ability)
    if situation.problem:  # it may be one that keeps every other device waiting: an input that changed before it was sealed
        return situation.problem
    return _elsewhere(own, situation, ability, others) if own else left or "waiting for a free slot"


def _elsewhere(own: str, situation: Situation, ability: Ability, others: Mapping[str, Ability]) -> str:
    """Why a job waits that can't run here, and for whom."""
    demand = situation.demand
    fit = [each for device, each in others.items() if unfit(_seen_by(device, situation), each) is None]
    lacks = lacking(demand, ability)
    if fit:
        here = f"too large for {ability.label}" if ability.takes and lacks is None and _too_large(demand, ability) else own
        if ability.takes and demand.task not in ability.tasks and lacks is not None and demand.task != EXEC_TASK:
            here = f"{ability.label} has no task {demand.task!r}"
        if ability.takes and _is_barred(demand, ability):
            here = f"{ability.label} runs no programs"
        return f"{here}, waiting for {' or '.join(sorted(each.label for each in fit))}"
    if ability.takes and lacks is None and not _too_large(demand, ability):
        source = others.get(situation.source or "")
        return f"its input is on {source.label if source else 'another device'}, which has not shared it yet"
    has = demand.task == EXEC_TASK or demand.task in ability.tasks or any(demand.task in each.tasks for each in others.values())
    if others and not has:
        return f"no device that is linked has the task {demand.task!r}"
    return nobody(own, demand, ability, others.values())


def _seen_by(device: str, situation: Situation) -> Demand:
    return situation.demand._replace(input_ready=situation.shared or device == situation.source)


def _moment(ms: int) -> str:
    return moment(ms).isoformat(timespec="seconds").replace("+00:00", "Z")


def moment(ms: int) -> datetime:
    """A time of a row, or the first or last that there are: any device may have written any number there."""
    return datetime.fromtimestamp(min(max(ms, _FIRST), _LAST) / 1000, UTC)
