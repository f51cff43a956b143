"""What is said of jobs on a device whose node takes none."""

from __future__ import annotations

import pytest

from p2pqueue.jobs.waiting import EXEC_TASK, Ability, Demand, Situation, reason

RENDER = Situation("queued", Demand("render", frozenset(), None, True), None, None, None, None)
DESK = Ability("desk", frozenset({"render"}), takes=False)


def test_nobody_is_told_to_wait_for_a_slot_of_a_node_that_takes_no_jobs() -> None:
    assert reason(RENDER, DESK, 0) == "desk takes no jobs"
    assert reason(RENDER, DESK._replace(takes=True), 0) == "waiting for a free slot"


def test_who_may_take_the_job_instead_is_named() -> None:
    studio = Ability("studio", frozenset({"render"}))
    assert reason(RENDER, DESK, 0, others={"s": studio}) == "desk takes no jobs, waiting for studio"
    laptop = studio._replace(label="laptop", tasks=frozenset({"mix"}))
    assert reason(RENDER, DESK, 0, others={"l": laptop}) == "desk takes no jobs, and no other device that is linked can take it"


BARRED = "runs no programs: start its node with --allow-exec"
LAPTOP, STUDIO = Ability("laptop"), Ability("studio", frozenset({EXEC_TASK}), allow_exec=True)


@pytest.mark.parametrize(
    ("takes", "needs", "others", "words"),
    [
        (False, "", [LAPTOP], f"desk takes no jobs, and laptop {BARRED}"),
        (True, "", [], f"desk {BARRED}"),
        (True, "", [LAPTOP], "desk and laptop run no programs: start one of their nodes with --allow-exec"),
        (True, "", [LAPTOP._replace(label=name) for name in "cab"],
         "desk, a, b and 1 more run no programs: start one of their nodes with --allow-exec"),
        (True, "gpu", [STUDIO], f"studio lacks gpu, and desk {BARRED}"),
        (False, "gpu", [STUDIO, LAPTOP], f"desk takes no jobs, and studio lacks gpu, and laptop {BARRED}"),
        (True, "", [STUDIO, LAPTOP], "desk runs no programs, waiting for studio"),
    ],
)  # fmt: skip
def test_a_program_that_nobody_may_run_says_which_device_lacks_what(takes: bool, needs: str, others: list[Ability], words: str) -> None:
    demand = Demand(EXEC_TASK, frozenset([needs] if needs else []), None, True)
    situation = Situation("queued", demand, None, None, None, None)
    desk = Ability("desk", takes=takes)
    assert reason(situation, desk, 0, others={each.label: each for each in others}) == words


def test_a_task_that_another_device_has_says_what_it_lacks_there() -> None:
    situation = RENDER._replace(demand=Demand("render", frozenset({"gpu"}), None, True))
    studio = Ability("studio", frozenset({"render"}))
    assert reason(situation, DESK, 0, others={"s": studio}) == "desk takes no jobs, and studio lacks gpu"
