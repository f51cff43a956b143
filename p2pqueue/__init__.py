"""An offline-first job queue that the devices of one owner share without a server.

Everything here is imported when it is first used: `import p2pqueue` itself costs next to nothing.
"""

TYPE_CHECKING = False  # type checkers take it for true; importing typing would cost more than all the rest here
if TYPE_CHECKING:
    from p2pqueue.errors import AlreadyInitialised as AlreadyInitialised
    from p2pqueue.errors import AmbiguousId as AmbiguousId
    from p2pqueue.errors import ArgumentError as ArgumentError
    from p2pqueue.errors import BadShard as BadShard
    from p2pqueue.errors import BadSignature as BadSignature
    from p2pqueue.errors import Cancelled as Cancelled
    from p2pqueue.errors import ChannelClosed as ChannelClosed
    from p2pqueue.errors import ConfigError as ConfigError
    from p2pqueue.errors import ConnectFailed as ConnectFailed
    from p2pqueue.errors import DamagedHome as DamagedHome
    from p2pqueue.errors import DiskFull as DiskFull
    from p2pqueue.errors import HomeBusy as HomeBusy
    from p2pqueue.errors import HomeInUse as HomeInUse
    from p2pqueue.errors import InputChanged as InputChanged
    from p2pqueue.errors import InputUnreadable as InputUnreadable
    from p2pqueue.errors import JobCancelled as JobCancelled
    from p2pqueue.errors import JobError as JobError
    from p2pqueue.errors import JobFailed as JobFailed
    from p2pqueue.errors import KeyInUse as KeyInUse
    from p2pqueue.errors import LinkRefused as LinkRefused
    from p2pqueue.errors import MalformedMessage as MalformedMessage
    from p2pqueue.errors import MisuseError as MisuseError
    from p2pqueue.errors import NewerDatabase as NewerDatabase
    from p2pqueue.errors import NobodyThere as NobodyThere
    from p2pqueue.errors import NoBulk as NoBulk
    from p2pqueue.errors import NodeNotRunning as NodeNotRunning
    from p2pqueue.errors import NoSuchDevice as NoSuchDevice
    from p2pqueue.errors import NoSuchJob as NoSuchJob
    from p2pqueue.errors import NotAllowed as NotAllowed
    from p2pqueue.errors import NotInitialised as NotInitialised
    from p2pqueue.errors import P2PQueueError as P2PQueueError
    from p2pqueue.errors import PairingFailed as PairingFailed
    from p2pqueue.errors import PayloadUnavailable as PayloadUnavailable
    from p2pqueue.errors import PeerError as PeerError
    from p2pqueue.errors import PeerGone as PeerGone
    from p2pqueue.errors import ReadOnlyHome as ReadOnlyHome
    from p2pqueue.errors import ResultTimeout as ResultTimeout
    from p2pqueue.errors import Retry as Retry
    from p2pqueue.errors import UnknownTask as UnknownTask
    from p2pqueue.errors import WorldError as WorldError
    from p2pqueue.errors import WrongState as WrongState
    from p2pqueue.jobs.backoff import Backoff as Backoff
    from p2pqueue.jobs.handle import Attempt as Attempt
    from p2pqueue.jobs.handle import Job as Job
    from p2pqueue.jobs.handle import Progress as Progress
    from p2pqueue.jobs.queue import Queue as Queue
    from p2pqueue.jobs.task import Task as Task
    from p2pqueue.payload.file import File as File
    from p2pqueue.workers.children.context import JobContext as JobContext
    from p2pqueue.workers.children.context import current_job as current_job

__version__: str = "0.1.0"

_ERRORS = (
    "AlreadyInitialised", "AmbiguousId", "ArgumentError", "BadShard", "BadSignature", "Cancelled", "ChannelClosed",
    "ConfigError", "ConnectFailed", "DamagedHome", "DiskFull", "HomeBusy", "HomeInUse", "InputChanged",
    "InputUnreadable", "JobCancelled", "JobError", "JobFailed", "KeyInUse", "LinkRefused", "MalformedMessage", "MisuseError",
    "NewerDatabase", "NoBulk", "NoSuchDevice", "NoSuchJob", "NobodyThere", "NodeNotRunning", "NotAllowed",
    "NotInitialised", "P2PQueueError", "PairingFailed", "PayloadUnavailable", "PeerError", "PeerGone",
    "ReadOnlyHome", "ResultTimeout", "Retry", "UnknownTask", "WorldError", "WrongState",
)  # fmt: skip
_HOME_OF = dict.fromkeys(_ERRORS, "p2pqueue.errors") | {
    "Attempt": "p2pqueue.jobs.handle",
    "Backoff": "p2pqueue.jobs.backoff",
    "File": "p2pqueue.payload.file",
    "Job": "p2pqueue.jobs.handle",
    "JobContext": "p2pqueue.workers.children.context",
    "Progress": "p2pqueue.jobs.handle",
    "Queue": "p2pqueue.jobs.queue",
    "Task": "p2pqueue.jobs.task",
    "current_job": "p2pqueue.workers.children.context",
}

__all__ = ["__version__", *_HOME_OF]

if not TYPE_CHECKING:  # seen by a type checker, `__getattr__` would make every misspelt name a known one

    def __getattr__(name):
        if name not in _HOME_OF:
            raise AttributeError(f"module 'p2pqueue' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return found

    def __dir__():
        return sorted({*globals(), *_HOME_OF})
