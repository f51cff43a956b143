from __future__ import annotations

import msgpack
import pytest

from p2pqueue.errors import ArgumentError, MalformedMessage
from p2pqueue.workers.children.protocol import (
    MESSAGE_LIMIT,
    Assignment,
    Checkpoint,
    Continued,
    Crashed,
    Decoder,
    Ended,
    Failed,
    FileGrant,
    Leave,
    Message,
    OutputFile,
    Progress,
    Ready,
    Reap,
    Reply,
    Request,
    RetryLater,
    Stopped,
    Succeeded,
    TaskDescription,
    TimedOut,
    decode,
    encode,
)

MESSAGES: list[Message] = [
    Assignment("k", "j", "t", 1, b"\x80", "/w", "/l", files={"v": FileGrant("/p", None, "p", 3)}, command={"argv": ["a"]}, deadline=1.5),
    Reply(1, {"id": "x"}),
    Reply(2, error="no"),
    Reap(),
    Leave(),
    Ready(({"name": "t"},)),
    Ready(error="broken"),
    Progress(0.5, "at work"),
    Checkpoint(3, b"state"),
    Request(4, "enqueue", {"task": "t", "args": b"\x80"}),
    Ended(Succeeded(b"\xc0", (OutputFile("result", "/x"),)), clean=True),
    Ended(Failed("E: x", "trace", ("E", "Exception")), clean=False, spent=True),
    Ended(RetryLater("later", 2.0), clean=True),
    Ended(Continued(b"s"), clean=True),
    Ended(Crashed("gone"), clean=True),
    Ended(TimedOut("late"), clean=True),
    Ended(Stopped("held"), clean=True),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    decoder = Decoder()
    decoder.feed(encode(message))
    assert decoder.next() == message
    assert decoder.next() is None


def test_messages_arrive_whole_however_their_bytes_are_cut() -> None:
    data = b"".join(map(encode, MESSAGES))
    decoder, found = Decoder(), []
    for byte in data:
        decoder.feed(bytes([byte]))
        while (message := decoder.next()) is not None:
            found.append(message)
    assert found == MESSAGES


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "nothing"),
        (b"\xc1", "no MessagePack"),
        (b"\x80\x80", "more than a value"),
        (msgpack.packb([1]), "no map"),
        (msgpack.packb({"a": 1}), "a map without a class"),
        (msgpack.packb({"\x00": "Popen", "args": ["sh"]}), "a class that is none of ours"),
        (msgpack.packb({"\x00": ["Reap"]}), "a name that is no text"),
        (msgpack.packb({"\x00": "Progress", "nonsense": 1}), "fields that are not there"),
        (msgpack.packb({"\x00": "Succeeded", "result": b""}), "a part in place of a message"),
        (b"\xdd\xff\xff\xff\xff", "a list of 2**32 - 1 items"),
        (b"\xc6\xff\xff\xff\xff", "4 GiB of bytes"),
        (b"\x91" * 100_000, "100,000 levels"),
        (b"\xc7\x01\x01\x00", "an extension"),
        (b"\x80\x04\x95\x05\x00\x00\x00", "a pickle"),
    ],
)
def test_bytes_that_are_no_message_are_refused(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage):
        decode(body)


def test_a_length_beyond_the_limit_is_refused_before_anything_is_collected() -> None:
    decoder = Decoder()
    decoder.feed((MESSAGE_LIMIT + 1).to_bytes(4, "big"))
    with pytest.raises(MalformedMessage, match="1,048,577 bytes"):
        decoder.next()


@pytest.mark.parametrize("value", [object(), {1, 2}, 1 << 70, "\ud800"], ids=["an object", "a set", "a large int", "a surrogate"])
def test_what_can_not_be_carried_is_refused_where_it_is_sent(value: object) -> None:
    with pytest.raises(ArgumentError):
        encode(Request(1, "x", {"value": value}))


def test_a_message_that_is_too_large_is_refused_where_it_is_sent() -> None:
    with pytest.raises(ArgumentError, match="at most 1,048,576"):
        encode(Checkpoint(1, b"x" * MESSAGE_LIMIT))


def test_a_description_of_a_task_survives_its_map() -> None:
    task = TaskDescription(
        "t", queue="q", retry_on=("OSError",), needs=frozenset({"b", "a"}), parameters=({"name": "x"},), command={"argv": ["a"]}
    )
    assert TaskDescription.from_map(task.describe()) == task
    assert task.describe()["needs"] == ["a", "b"]
