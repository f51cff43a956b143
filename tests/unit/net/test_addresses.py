"""The address book knows where a device was good last, and forgets what is long past."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pqueue.net.addresses import CANDIDATES_LIMIT, FORGOTTEN_AFTER_MS, AddressBook, Endpoint, endpoint, is_endpoint

A, B = "a" * 32, "b" * 32
NOW = 1_790_000_000_000
HOME, OFFICE = ("192.168.1.5", 7433), ("10.1.2.3", 7433)

hosts = st.integers(1, 20).map(lambda n: f"10.0.0.{n}")
walls = st.integers(0, 2**42)


def test_the_address_that_was_good_last_comes_first() -> None:
    book = AddressBook()
    book.note_good(A, *HOME, NOW)
    book.note_good(A, *OFFICE, NOW + 1000)
    assert book.candidates(A) == (OFFICE, HOME)


def test_what_is_seen_now_comes_before_what_was_good() -> None:
    book = AddressBook()
    book.note_good(A, *HOME, NOW)
    book.note_sighting(A, [OFFICE], source="x")
    assert book.candidates(A) == (OFFICE, HOME)


def test_what_a_device_wrote_somewhere_comes_last_and_is_replaced_by_what_it_writes_next() -> None:
    book = AddressBook()
    written, again = ("10.9.9.9", 7433), ("10.9.9.10", 7433)
    book.note_hint(A, [written, ("10.9.9.9", 0)])
    book.note_good(A, *HOME, NOW)
    book.note_sighting(A, [OFFICE], source="x")
    assert book.candidates(A) == (OFFICE, HOME, written)
    book.note_hint(A, [again])
    assert book.candidates(A) == (OFFICE, HOME, again)
    book.forget(A, *again)  # somebody else answered there
    assert book.candidates(A) == (OFFICE, HOME)
    assert [row[1] for row in book.dump()] == [HOME[0]]  # a hint is not kept over the end


def test_among_what_is_seen_the_good_comes_first() -> None:
    book = AddressBook()
    book.note_good(A, *HOME, NOW)
    book.note_sighting(A, [OFFICE, HOME], source="x")
    assert book.candidates(A) == (HOME, OFFICE)


def test_a_new_sighting_of_a_source_replaces_its_old_one() -> None:
    book = AddressBook()
    book.note_sighting(A, [HOME], source="x")
    book.note_sighting(A, [OFFICE], source="x")
    assert book.candidates(A) == (OFFICE,)


def test_a_device_that_restarted_is_dialled_at_its_new_address_first() -> None:
    book = AddressBook()
    book.note_sighting(A, [HOME], source="before")
    book.note_sighting(A, [OFFICE], source="after")
    assert book.candidates(A) == (OFFICE, HOME)
    book.drop_sighting(A, source="before")
    assert book.candidates(A) == (OFFICE,)


def test_an_address_is_forgotten_when_another_has_been_good_for_a_day() -> None:
    book = AddressBook()
    book.note_good(A, *HOME, NOW)
    book.note_good(A, *OFFICE, NOW + FORGOTTEN_AFTER_MS - 1)
    assert HOME in book.candidates(A)
    book.note_good(A, *OFFICE, NOW + FORGOTTEN_AFTER_MS)
    assert book.candidates(A) == (OFFICE,)


def test_the_only_address_is_kept_for_ever() -> None:
    book = AddressBook([(A, *HOME, 1)])
    assert book.candidates(A) == (HOME,)


def test_where_another_device_answers_is_forgotten() -> None:
    book = AddressBook()
    book.note_good(A, *HOME, NOW)
    book.note_sighting(A, [HOME, OFFICE], source="x")
    book.forget(A, *HOME)
    assert book.candidates(A) == (OFFICE,)


def test_what_was_only_seen_is_not_kept() -> None:
    book = AddressBook()
    book.note_sighting(A, [HOME], source="x")
    assert book.dump() == []


@given(st.lists(st.tuples(st.sampled_from([A, B]), hosts, walls), max_size=40))
def test_what_was_dumped_reads_back_the_same(goods: list[tuple[str, str, int]]) -> None:
    book = AddressBook()
    for device, host, wall in goods:
        book.note_good(device, host, 7433, wall)
    again = AddressBook(book.dump())
    assert again.dump() == book.dump()
    assert [again.candidates(device) for device in (A, B)] == [book.candidates(device) for device in (A, B)]


@given(st.lists(st.tuples(hosts, walls), min_size=1, max_size=40))
def test_whatever_the_wall_clock_says_the_last_good_comes_first(goods: list[tuple[str, int]]) -> None:
    book = AddressBook()
    for host, wall in goods:
        book.note_good(A, host, 7433, wall)
        assert book.candidates(A)[0] == (host, 7433)


@given(
    st.lists(st.tuples(hosts, walls), max_size=30),
    st.lists(st.tuples(st.text(max_size=2), st.lists(st.tuples(hosts, st.integers(-1, 70_000)), max_size=30)), max_size=30),
)
def test_a_peer_that_tells_much_fills_neither_the_book_nor_the_race(
    goods: list[tuple[str, int]], told: list[tuple[str, list[Endpoint]]]
) -> None:
    book = AddressBook()
    for host, wall in goods:
        book.note_good(A, host, 7433, wall)
    for source, addresses in told:
        book.note_sighting(A, addresses, source=source)
    candidates = book.candidates(A)
    assert len(candidates) == len(set(candidates)) <= CANDIDATES_LIMIT
    assert all(is_endpoint(*where) for where in candidates)
    assert len(book.dump()) <= CANDIDATES_LIMIT


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10.0.0.1", ("10.0.0.1", 7433)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("desk.local:80", ("desk.local", 80)),
        ("[fd00::1]:80", ("fd00::1", 80)),
        ("[fd00::1]", ("fd00::1", 7433)),
        ("fd00::1", ("fd00::1", 7433)),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, read: Endpoint) -> None:
    assert endpoint(text, default_port=7433) == read


@pytest.mark.parametrize(
    "text", ["", ":80", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:x", "10.0.0.1:²", "[fd00::1]80", "224.0.0.1", "0.0.0.0", "a b", "a..b"]
)
def test_what_can_be_no_address_is_told_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="write HOST:PORT"):
        endpoint(text, default_port=7433)


@given(st.text(max_size=300), st.integers())
def test_any_text_of_a_peer_is_either_an_address_or_not(host: str, port: int) -> None:
    book = AddressBook([(A, host, port, 1)])
    assert bool(book.candidates(A)) is is_endpoint(host, port)
