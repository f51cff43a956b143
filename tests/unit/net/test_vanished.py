"""Only a device that went without a word, and whose machine refuses for it, has died."""

from __future__ import annotations

from p2pqueue.net.vanished import Vanished

HERE, ELSEWHERE = ("10.0.0.1", 7433), ("10.0.0.2", 7433)


def told() -> tuple[Vanished, list[str]]:
    dead: list[str] = []
    return Vanished(dead.append), dead


def test_who_went_without_a_word_is_dead_once_its_machine_refuses() -> None:
    vanished, dead = told()
    vanished.went("a", HERE)
    vanished.refused(ELSEWHERE)
    assert dead == []
    vanished.refused(HERE)
    vanished.refused(HERE)
    assert dead == ["a"]


def test_who_is_linked_again_is_not_dead() -> None:
    vanished, dead = told()
    vanished.went("a", HERE)
    vanished.is_back("a")
    vanished.refused(HERE)
    assert dead == []


def test_of_one_that_never_listened_no_refusal_tells_anything() -> None:
    vanished, dead = told()
    vanished.went("a", ("10.0.0.1", 0))
    vanished.refused(("10.0.0.1", 0))
    assert dead == []
