"""Many producers, few commits: who leads, who is answered, and what an interruption leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from p2pqueue import P2PQueueError
from p2pqueue.jobs.committing import BATCH, Commits
from p2pqueue.replica.merging.alike import Alike
from p2pqueue.replica.merging.merged import Done
from p2pqueue.replica.replica import Replica

Fn = Callable[[Any], Any]


class SlowReplica:
    """Takes its time: a commit ends when the test says so."""

    def __init__(self, *, open_gate: bool = True) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.batches: list[int] = []
        if open_gate:
            self.gate.set()

    def write(self, fn: Fn) -> Any:
        self._commit(1)
        return fn(None)

    def write_many(self, fns: Sequence[Fn]) -> list[Done]:
        self._commit(len(fns))
        return [self._alone(fn) for fn in fns]

    def defer(self, change: bytes) -> None:
        self._commit(-1)

    def carry_out_many(self) -> None:
        pass

    def _commit(self, size: int) -> None:
        self.batches.append(size)
        self.entered.set()
        assert self.gate.wait(30)

    def _alone(self, fn: Fn) -> Done:
        try:
            return Done(fn(None))
        except Exception as error:  # noqa: BLE001 - as the replica does
            return Done(error=error)


class Producers:
    """Threads that each make one change."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._threads: list[threading.Thread] = []
        self.outcomes: dict[int, Any] = {}

    def start(self, number: int, fn: Fn) -> None:
        def produce() -> None:
            try:
                self.outcomes[number] = self._commits.run(fn)
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                self.outcomes[number] = error

        thread = threading.Thread(target=produce)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def waiting(commits: Commits, count: int) -> None:
    """Returns when so many changes wait for the next commit."""
    for _ in range(3000):
        if len(commits._waiting) == count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{len(commits._waiting)} wait, not {count}")


def make(replica: SlowReplica, after: Callable[[], None] = lambda: None) -> Commits:
    return Commits(cast("Replica", replica), after=after)


def give(value: Any) -> Fn:
    return lambda _: value


def fail(error: BaseException) -> Fn:
    def fn(_: Any) -> Any:
        raise error

    return fn


def test_a_lone_producer_commits_by_itself() -> None:
    threads = threading.active_count()
    rings: list[int] = []
    commits = make(SlowReplica(), lambda: rings.append(1))
    assert [commits.run(give(n)) for n in range(3)] == [0, 1, 2]
    assert (len(rings), threading.active_count()) == (3, threads)


def test_those_who_come_during_a_commit_share_the_next() -> None:
    replica = SlowReplica(open_gate=False)
    commits = make(replica)
    producers = Producers(commits)
    producers.start(0, give(0))
    assert replica.entered.wait(30)
    for number in range(1, 40):
        producers.start(number, give(number))
    waiting(commits, 39)
    replica.gate.set()
    producers.join()
    assert producers.outcomes == {number: number for number in range(40)}
    assert replica.batches == [1, 39]


def test_an_error_fails_its_own_change_alone() -> None:
    replica = SlowReplica(open_gate=False)
    commits = make(replica)
    producers = Producers(commits)
    producers.start(0, give(0))
    assert replica.entered.wait(30)
    producers.start(1, fail(ValueError("mine")))
    waiting(commits, 1)
    producers.start(2, give(2))
    waiting(commits, 2)
    replica.gate.set()
    producers.join()
    assert (producers.outcomes[0], producers.outcomes[2]) == (0, 2)
    assert isinstance(producers.outcomes[1], ValueError)


def test_an_interrupted_leader_answers_its_followers_and_hands_on() -> None:
    replica = SlowReplica(open_gate=False)
    commits = make(replica)
    producers = Producers(commits)
    producers.start(0, fail(KeyboardInterrupt()))
    assert replica.entered.wait(30)
    producers.start(1, give(1))
    waiting(commits, 1)
    replica.gate.set()
    producers.join()
    assert isinstance(producers.outcomes[0], KeyboardInterrupt)
    assert producers.outcomes[1] == 1
    assert commits.run(give("on")) == "on"


def test_an_interrupted_batch_leaves_nobody_waiting() -> None:
    replica = SlowReplica(open_gate=False)
    commits = make(replica)
    producers = Producers(commits)
    producers.start(0, give(0))
    assert replica.entered.wait(30)
    producers.start(1, fail(KeyboardInterrupt()))
    waiting(commits, 1)
    producers.start(2, give(2))
    waiting(commits, 2)
    replica.gate.set()
    producers.join()
    assert isinstance(producers.outcomes[1], KeyboardInterrupt)
    assert isinstance(producers.outcomes[2], P2PQueueError)
    assert "it may have happened" in str(producers.outcomes[2])
    assert commits.run(give("on")) == "on"


def test_a_waiter_that_was_interrupted_is_not_asked_to_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = SlowReplica(open_gate=False)
    commits = make(replica)
    producers = Producers(commits)
    producers.start(0, give(0))
    assert replica.entered.wait(30)

    class InterruptedGate:
        def acquire(self) -> None:
            raise KeyboardInterrupt

        def release(self) -> None:
            raise AssertionError("its thread is gone")

    follow = commits._follow

    def interrupted(change: Any) -> None:
        change.gate = InterruptedGate()
        follow(change)

    monkeypatch.setattr(commits, "_follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        commits.run(give(1))
    monkeypatch.setattr(commits, "_follow", follow)
    producers.start(2, give(2))
    waiting(commits, 2)
    replica.gate.set()
    producers.join()
    assert producers.outcomes == {0: 0, 2: 2}
    assert replica.batches == [1, 2], "its change is committed all the same"
    commits.close()


async def test_coroutines_share_commits_and_get_their_own_answers() -> None:
    replica = SlowReplica()
    commits = make(replica)
    outcomes = await asyncio.gather(
        *(commits.arun(give(n)) for n in range(2 * BATCH)), commits.arun(fail(ValueError("mine"))), return_exceptions=True
    )
    assert outcomes[:-1] == list(range(2 * BATCH))
    assert isinstance(outcomes[-1], ValueError)
    assert len(replica.batches) < 10
    assert max(replica.batches) <= BATCH
    commits.close()


async def test_threads_and_coroutines_mix() -> None:
    commits = make(SlowReplica())

    async def produce(number: int) -> list[int]:
        if number % 2:
            return [await commits.arun(give(n)) for n in range(50)]
        return await asyncio.to_thread(lambda: [commits.run(give(n)) for n in range(50)])

    assert await asyncio.gather(*(produce(number) for number in range(8))) == [list(range(50))] * 8
    commits.close()


def test_a_loop_that_was_closed_meanwhile_stops_nobody() -> None:
    replica = SlowReplica(open_gate=False)
    commits = make(replica)

    async def leave() -> None:
        task = asyncio.create_task(commits.arun(give(1)))
        await asyncio.to_thread(replica.entered.wait, 30)
        task.cancel()

    asyncio.run(leave())
    replica.gate.set()
    assert commits.run(give(2)) == 2
    commits.close()


async def test_of_many_that_may_be_deferred_the_first_is_and_those_that_come_meanwhile_are_made_together() -> None:
    replica = SlowReplica(open_gate=False)
    commits = Commits(cast(Replica, replica), after=lambda: None)

    def together(writer: Any, items: Sequence[int]) -> list[int]:
        return list(items)

    def plain(number: int) -> Alike[int]:
        return Alike(number, together, defer=lambda item: (b"%d" % item, item))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(commits.arun(plain(0)))]
        assert await asyncio.to_thread(replica.entered.wait, 30)
        tasks += [group.create_task(commits.arun(plain(number))) for number in range(1, 30)]
        await asyncio.sleep(0)
        replica.gate.set()
    assert [task.result() for task in tasks] == list(range(30))
    assert replica.batches == [-1, 1]
    commits.close()
