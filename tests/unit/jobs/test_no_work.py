"""What is said of jobs on a device whose node takes none."""

from __future__ import annotations

from p2pqueue.jobs.waiting import Ability, Demand, Situation, reason

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
