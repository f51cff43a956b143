"""What becomes of a fetch whose peer lies, breaks off, is slow or silent: a raw server on loopback says what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from p2pqueue.errors import BadShard
from p2pqueue.payload.fetching.http_line import HttpLine, Place
from p2pqueue.payload.fetching.lines import Lines
from p2pqueue.payload.fetching.source import ShardMissing, SourceFailed
from p2pqueue.payload.seal import address_of
from p2pqueue.peers.shards.inlet import Inlet, TicketRefused
from p2pqueue.peers.shards.stream import ANSWER, ASK, FAILED, MISSING, SHARD
from tests.unit.peers.served import Asked, Shift

BODY = os.urandom(100_000)
ADDRESS = address_of(BODY)
UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: p2pqueue-shards/1\r\nConnection: Upgrade\r\n\r\n"

Act = Callable[[socket.socket], None]


@contextlib.contextmanager
def peer(act: Act) -> Iterator[Place]:
    """A server that acts on each connection in a thread, and is gone at the end."""
    taken: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def run(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            act(sock)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listening.accept()
                sock.settimeout(20)
                taken.append(sock)
                threads.append(threading.Thread(target=run, args=(sock,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield Place(f"http://127.0.0.1:{listening.getsockname()[1]}", "00" * 32)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for sock in taken:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            accepting.join(10)
            for thread in threads:
                thread.join(10)


def head_of(sock: socket.socket) -> bytes:
    came = b""
    while not came.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        if not piece:
            raise OSError("it left")
        came += piece
    return came


def upgraded(sock: socket.socket) -> None:
    head_of(sock)
    sock.sendall(UPGRADED)


def ask_of(sock: socket.socket) -> bytes:
    ask = b""
    while len(ask) < ASK.size:
        piece = sock.recv(ASK.size - len(ask))
        if not piece:
            raise OSError("it left")
        ask += piece
    return ask


def until_it_leaves(sock: socket.socket) -> None:
    while sock.recv(1000):
        pass


def wrong(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(SHARD, len(BODY)) + bytes(len(BODY)))
    until_it_leaves(sock)


def too_many(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(SHARD, len(BODY) + 1) + BODY + b"?")
    until_it_leaves(sock)


def none_at_all(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(SHARD, 0))
    until_it_leaves(sock)


def far_too_many(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(SHARD, 0xFFFFFFFF))
    until_it_leaves(sock)


def too_few(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(SHARD, len(BODY)) + BODY[:-1])


def nothing(sock: socket.socket) -> None:
    upgraded(sock)
    until_it_leaves(sock)


def a_byte_at_a_time(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(SHARD, len(BODY)))
    for byte in BODY:
        sock.sendall(bytes([byte]))
        time.sleep(0.05)


def in_small_pieces(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(ANSWER.pack(SHARD, len(BODY)))
    for start in range(0, len(BODY), 500):
        sock.sendall(BODY[start : start + 500])
        time.sleep(0.001)
    until_it_leaves(sock)


def no_answer(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(99, 4) + b"what")
    until_it_leaves(sock)


def endless_words(sock: socket.socket) -> None:
    upgraded(sock)
    ask_of(sock)
    sock.sendall(ANSWER.pack(MISSING, 1_000_000))
    until_it_leaves(sock)


def no_head(sock: socket.socket) -> None:
    head_of(sock)
    until_it_leaves(sock)


def head_a_byte_at_a_time(sock: socket.socket) -> None:
    head_of(sock)
    while True:
        sock.sendall(b"x")
        time.sleep(0.05)


def endless_head(sock: socket.socket) -> None:
    head_of(sock)
    while True:
        sock.sendall(b"X-More: of it\r\n" * 100)


def gone(sock: socket.socket) -> None:
    head_of(sock)


def answering(text: str, body: bytes = b"") -> Act:
    def act(sock: socket.socket) -> None:
        while True:
            head_of(sock)
            sock.sendall(text.encode() + b"\r\n\r\n" + body)

    return act


def carried(act: Act, line: Callable[[Place], HttpLine] = lambda place: Inlet(place, answer_within=0.5)) -> tuple[Asked, str | None]:
    """What became of one ask, and why the lane ended, if it did."""
    with peer(act) as place:
        asked = Asked(ADDRESS, len(BODY))
        carrying = line(place)
        try:
            carrying.carry(Shift([asked]), lambda size: None)
        except SourceFailed as error:
            return asked, str(error)
        finally:
            carrying.close()
    return asked, None


def serving(sock: socket.socket) -> None:
    upgraded(sock)
    while ask_of(sock):
        sock.sendall(ANSWER.pack(SHARD, len(BODY)) + BODY)


def test_large_shards_are_asked_for_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2pqueue.peers.shards.inlet.AHEAD_BYTES", 0)  # as if they were large
    sent: list[int] = []
    send = HttpLine.send

    def note(line: HttpLine, data: bytes | bytearray) -> None:
        sent.append(len(data) // ASK.size)
        send(line, data)

    monkeypatch.setattr(HttpLine, "send", note)
    work = Shift([Asked(ADDRESS, len(BODY)) for _ in range(21)])
    with peer(serving) as place:
        line = Inlet(place)
        line.carry(work, lambda size: None)
        line.close()
    assert all(asked.is_right for asked in work.taken)
    assert sent[-11:] == [1] + [2] * 10


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux fills a buffer and can be asked how far it is")
def test_a_shard_that_comes_in_many_pieces_wakes_its_thread_a_few_times_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(Asked, "advance", lambda asked, size: told.append(size))
    asked, ended = carried(in_small_pieces)
    assert ended is None
    assert asked.is_right
    assert sum(told) == len(BODY)
    assert len(told) < 50  # of 200 pieces; one each half second


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (too_few, "ended in the middle"),
        (nothing, "nothing came from .* for 0 s"),
        (no_head, "did not answer within"),
        (head_a_byte_at_a_time, "did not answer within"),
        (endless_head, "more than a head"),
        (gone, "ended without an answer"),
        (answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 6", b"leave!"), "answers 403: leave!"),
        (answering("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0"), "answers 500: Internal Server Error"),
        (answering("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0"), "answers 302: Found"),
        (answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 11", b"no ticket\r\n"), "answers 401: no ticket"),
        (answering("SMTP ready"), "can't be reached"),
    ],
)
def test_a_peer_that_fails_is_given_up_in_words_and_nothing_is_taken_from_it(act: Act, words: str) -> None:
    asked, ended = carried(act)
    with pytest.raises(SourceFailed, match=words):
        raise SourceFailed(ended or "it was not given up")
    assert asked.is_right is None


@pytest.mark.parametrize("act", [too_many, none_at_all, far_too_many, no_answer, endless_words])
def test_a_peer_that_breaks_the_rules_is_told_of_as_such_and_its_connection_closed(act: Act) -> None:
    asked, ended = carried(act)
    assert isinstance(asked.error, BadShard)
    assert ended
    assert len(asked.came) <= len(BODY)


def test_wrong_bytes_are_noticed_where_they_are_checked() -> None:
    asked, ended = carried(wrong)
    assert asked.is_right is False
    assert ended is None


def test_a_ticket_that_counts_no_more_is_told_from_other_failures() -> None:
    with peer(answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0")) as place:
        line = Inlet(place)
        with pytest.raises(TicketRefused):
            line.carry(Shift([Asked(ADDRESS, len(BODY))]), lambda size: None)
        line.close()


@pytest.mark.parametrize("act", [nothing, a_byte_at_a_time])
def test_a_shard_that_nobody_wants_any_more_frees_its_thread(act: Act) -> None:
    with peer(act) as place:
        asked = Asked(ADDRESS, len(BODY))
        threading.Timer(0.1, lambda: setattr(asked, "wanted", False)).start()
        begun, line = time.monotonic(), Inlet(place)
        with pytest.raises(SourceFailed, match="not wanted"):
            line.carry(Shift([asked]), lambda size: None)
        assert time.monotonic() - begun < 5  # not the fifteen seconds of its own patience
        line.close()


async def test_the_end_of_a_link_frees_the_threads_that_wait_on_its_connections() -> None:
    with peer(nothing) as place:
        lines, asked = Lines(place, Inlet), Asked(ADDRESS, len(BODY))
        waiting = asyncio.ensure_future(asyncio.to_thread(lines.carry, Shift([asked]), lambda size: None))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        lines.close()
        with pytest.raises(SourceFailed):
            async with asyncio.timeout(5):
                await waiting
        with pytest.raises(SourceFailed, match="the link has ended"):
            lines.carry(Shift([asked]), lambda size: None)


def test_asks_go_ahead_and_answers_come_in_their_order() -> None:
    seen: list[int] = []

    def act(sock: socket.socket) -> None:
        upgraded(sock)
        sock.settimeout(0.3)
        asks: list[bytes] = []
        while True:
            try:
                while True:
                    asks.append(ask_of(sock))
            except TimeoutError:
                pass
            seen.append(len(asks))
            for ask in asks:
                address, _ = ASK.unpack(ask)
                words = b"it is broken"
                sock.sendall(ANSWER.pack(SHARD, len(BODY)) + BODY if address == ADDRESS else ANSWER.pack(FAILED, len(words)) + words)
            asks.clear()

    with peer(act) as place:
        asks = [Asked(ADDRESS if number % 2 else bytes(32), len(BODY)) for number in range(8)]
        line = Inlet(place)
        line.carry(Shift(asks), lambda size: None)
        line.close()
    assert [asked.is_right for asked in asks] == [None, True] * 4
    assert all("it is broken" in str(asked.error) for asked in asks[::2])
    assert seen[0] > 2  # several at once, since they are small


@pytest.mark.parametrize(
    ("act", "outcome"),
    [
        (answering(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}", BODY), True),
        (answering(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}", bytes(len(BODY))), False),
        (answering(f"HTTP/1.0 200 OK\r\nContent-Length: {len(BODY)}", BODY), True),
        (answering("HTTP/1.1 404 Not Found\r\nContent-Length: 8", b"not here"), ShardMissing),
        (answering("HTTP/1.1 410 Gone\r\nContent-Length: 10", b"it changed"), ShardMissing),
        (answering(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY) + 1}", BODY + b"?"), BadShard),
        (answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", b"5\r\nabcde\r\n0\r\n\r\n"), SourceFailed),
        (answering(f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(BODY)}", BODY), SourceFailed),
        (answering(f"HTTP/1.1 200 OK\r\nContent-Length: {10**15}", BODY), BadShard),
        (answering("HTTP/1.1 200 OK\r\nContent-Length: -5", BODY), SourceFailed),
    ],
)
def test_plain_http_gives_the_shard_or_a_reason(act: Act, outcome: object) -> None:
    asked, ended = carried(act, lambda place: HttpLine(place, answer_within=0.5))
    if isinstance(outcome, bool):
        assert asked.is_right is outcome
    elif outcome is SourceFailed:
        assert ended is not None
    else:
        assert type(asked.error) is outcome
    if outcome is ShardMissing:
        assert ended is None


def test_one_connection_serves_one_plain_request_after_the_other() -> None:
    connections: list[socket.socket] = []

    def act(sock: socket.socket) -> None:
        connections.append(sock)
        answering(f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}", BODY)(sock)

    with peer(act) as place:
        asks = [Asked(ADDRESS, len(BODY)) for _ in range(5)]
        line = HttpLine(place)
        line.carry(Shift(asks), lambda size: None)
        line.close()
    assert all(asked.is_right for asked in asks)
    assert len(connections) == 1


def test_where_nobody_listens_that_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(SourceFailed, match="can't be reached"):
        Inlet(Place(f"http://127.0.0.1:{port}")).carry(Shift([Asked(ADDRESS, 100)]), lambda size: None)
