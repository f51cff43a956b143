"""Which errors can p2pqueue raise, and whose fault is each?

Everything raised on purpose is a `P2PQueueError`. The tree splits by whose fault it was::

    P2PQueueError
    ├── MisuseError                 the caller asked for something that can't be done as asked
    │   ├── NotInitialised          this home has no space yet: `p2pqueue init` makes one
    │   ├── AlreadyInitialised      this home has a space already
    │   ├── ArgumentError           an argument or a result can't be carried (type or size)
    │   ├── UnknownTask             no task of that name is registered here
    │   ├── NoSuchJob               no job has that id or prefix
    │   ├── NoSuchDevice            no device of the space has that id, prefix or label
    │   ├── AmbiguousId             several jobs or devices share that prefix
    │   ├── WrongState              the job's state doesn't allow it (cancelling what has ended)
    │   ├── NotAllowed              the role of this device doesn't allow it
    │   └── ConfigError             a setting, a flag or a task file can't be read
    ├── PeerError                   a peer or a file sent something that can't be accepted
    │   ├── MalformedMessage        bytes that are no message of ours, or beyond its limits
    │   ├── BadSignature            a signed write whose signature doesn't fit
    │   ├── BadShard                a shard or manifest that doesn't fit its address or key
    │   ├── LinkRefused             a device that can't be linked: another space, protocol, or not admitted
    │   └── PairingFailed           a pairing came to nothing: a wrong or used code, or another protocol
    ├── WorldError                  the disk, the network or the machine; retried where that can help
    │   ├── DiskFull                no space left where something had to be written
    │   ├── ReadOnlyHome            the home can't be written
    │   ├── DamagedHome             a key, the database or a setting in the home can't be read
    │   ├── NewerDatabase           the database was written by a newer version
    │   ├── HomeBusy                another program has held the home's write lock for too long
    │   ├── HomeInUse               another node runs on this home
    │   ├── KeyInUse                another running device has the key of this one
    │   ├── NodeNotRunning          no node of this home answers
    │   ├── NobodyThere             no device answers at that address, or with that code
    │   ├── InputUnreadable         a file can't be opened or read
    │   ├── InputChanged            a file changed since it was taken in, or while it was read
    │   ├── PayloadUnavailable      no source has the file's shards now
    │   ├── PeerGone                the device is not linked any more
    │   ├── NoBulk                  no connection for large transfers can be had to that device now
    │   ├── ConnectFailed           no direct connection to a device could be built
    │   └── ChannelClosed           a direct connection to a device has ended
    └── JobError                    how a job ended, told to whoever waits for it
        ├── JobFailed               it failed; carries the error and the traceback
        ├── JobCancelled            it was cancelled
        └── ResultTimeout           it has not ended in the time allowed

`Retry` and `Cancelled` are no errors of this tree: a handler raises the first to be run again later,
and meets the second when its job was cancelled, held or timed out.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any


class P2PQueueError(Exception):
    """Any error that p2pqueue raises on purpose; its text says what happened and what to do."""


def told(error: BaseException) -> str:
    """What the network or the system says of an error, in its plainest words: `Connection refused`."""
    cause = getattr(error, "os_error", error)  # as aiohttp keeps it
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0 and os.name != "nt":
        return os.strerror(cause.errno)
    return getattr(cause, "strerror", None) or str(error) or type(error).__name__


class MisuseError(P2PQueueError):
    """The caller asked for something that can't be done as asked."""


class NotInitialised(MisuseError):
    """This home has no space yet: run `p2pqueue init`, or `p2pqueue join CODE`."""


class AlreadyInitialised(MisuseError):
    """This home has a space already; choose another with `--home`."""


class ArgumentError(MisuseError):
    """An argument or a result can't be carried: its type or its size is beyond what a job's row holds."""


class UnknownTask(MisuseError):
    """No task of that name is registered here."""


class NoSuchJob(MisuseError):
    """No job has that id."""


class NoSuchDevice(MisuseError):
    """No device of the space has that id or label."""


class AmbiguousId(MisuseError):
    """Several jobs, or several devices, begin with that prefix; type more of it."""


class WrongState(MisuseError):
    """The job's state doesn't allow what was asked."""


class NotAllowed(MisuseError):
    """The role of this device doesn't allow what was asked."""


class ConfigError(MisuseError):
    """A setting, a flag or a task file can't be used as it stands."""


class PeerError(P2PQueueError):
    """A peer, or a file made elsewhere, sent something that can't be accepted."""


class MalformedMessage(PeerError):
    """These bytes are no message of ours, or lie beyond its limits."""


class BadSignature(PeerError):
    """The signature of a signed write doesn't fit its content or its author."""


class BadShard(PeerError):
    """A shard or a manifest doesn't fit its address or its key."""


class LinkRefused(PeerError):
    """The other device can't be linked: it is of another space, speaks another protocol, or is not admitted."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code  # the code that its connection is closed with


class PairingFailed(PeerError):
    """Two devices were not paired: the code was wrong, used or too old, or they speak differently."""


class WorldError(P2PQueueError):
    """The disk, the network or the machine is in the way; retried where that can help."""


class DiskFull(WorldError):
    """No space is left on the device where something had to be written."""


class ReadOnlyHome(WorldError):
    """The home can't be written by this user."""


class DamagedHome(WorldError):
    """A key, the database or a setting in the home can't be read."""


class NewerDatabase(WorldError):
    """The database was written by a newer version of p2pqueue; upgrade this one."""


class HomeBusy(WorldError):
    """Another program has held the home's write lock for too long."""


class HomeInUse(WorldError):
    """Another node runs on this home."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class KeyInUse(WorldError):
    """Another running device has the key of this one: one of the two homes was copied; run `p2pqueue identity renew` there."""


class NodeNotRunning(WorldError):
    """No node of this home answers; start one with `p2pqueue run`."""


class NobodyThere(WorldError):
    """No device answers at that address, or with that code."""


class InputUnreadable(WorldError):
    """A file can't be opened or read."""


class InputChanged(WorldError):
    """A file changed since it was taken in, or while it was being read."""


class PayloadUnavailable(WorldError):
    """No source has the file's shards now."""


class PeerGone(WorldError):
    """The other device is not linked any more."""


class NoBulk(WorldError):
    """No connection for large transfers can be had to the other device now."""


class ConnectFailed(WorldError):
    """No direct connection to that device could be built; its link carries everything meanwhile, and another attempt follows."""


class ChannelClosed(WorldError):
    """The direct connection to that device has ended; its link or another lane takes over."""


class JobError(P2PQueueError):
    """How a job ended, told to whoever waits for its result."""

    def __init__(self, message: str, *, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)  # by itself a copy would be made without the job_id


def _again(kind: type[JobError], args: tuple[object, ...], state: dict[str, object]) -> JobError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class JobFailed(JobError):
    """The job failed; `error` is its last error and `traceback` the handler's, where there is one."""

    def __init__(self, message: str, *, job_id: str, error: str = "", traceback: str = "") -> None:
        super().__init__(message, job_id=job_id)
        self.error = error
        self.traceback = traceback


class JobCancelled(JobError):
    """The job was cancelled."""


class ResultTimeout(JobError, TimeoutError):
    """The job has not ended in the time allowed."""


class Retry(Exception):
    """Raised by a handler to be run again later.

    `delay` is in seconds or a `timedelta`; without it the task's backoff decides. The attempt counts.
    """

    def __init__(self, reason: str = "the handler asked for a retry", *, delay: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.delay = delay.total_seconds() if isinstance(delay, timedelta) else None if delay is None else float(delay)


class Cancelled(BaseException):
    """Raised inside a handler whose job was cancelled, held or timed out, or whose node stops."""
