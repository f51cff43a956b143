"""How does a job talk to a program by lines of JSON, so that neither waits for the other for ever?

One loop looks at three pipes. The program is read no faster than its words are dealt with: a checkpoint is on disk
before the next line is taken. What it does not read waits here. A stop is a line first, then TERM, then KILL.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from p2pqueue.workers.children.context import JobContext
from p2pqueue.workers.children.interrupt import Interrupt
from p2pqueue.workers.children.program import end
from p2pqueue.workers.children.spoken import LINE_LIMIT, Garbled, Refused, Said, read, stop_line
from p2pqueue.workers.running import processes

GRACE: Final = 0.5  # seconds from the line that asks for the end to TERM
KILL_AFTER: Final = 1.7  # seconds from that line to KILL: the node itself kills at 2
LINGER: Final = 5.0  # seconds that a program may take to end after it has said how its attempt ended
_TICK: Final = 0.2  # seconds between looks at whether the program has ended, while others hold its pipes
_SHORT: Final = 0.001  # the same, once it has closed them: the end is near
_READ: Final = 64 * 1024
_LAST_READS: Final = 32  # of each pipe, once the program has ended
_OUTPUT, _ERRORS = 0, 1


class Conversation:
    """One program that runs and is talked to. `said` is the line that ended its attempt, None while there is none."""

    def __init__(self, job: JobContext, note: Callable[[str], object], reason: Callable[[], str]) -> None:
        self.said: Said | None = None
        self.garbled: str | None = None  # what was wrong with the last line that was nearly JSON
        self.forced = False  # it was told or made to end
        self._job = job
        self._note = note
        self._reason = reason
        self._outgoing = bytearray()
        self._rest = (bytearray(), bytearray())  # of the output and of the errors: a line that has no end yet
        self._is_piece = [False, False]  # whether that is the rest of a long line, which the log has in pieces
        self._fraction = 0.0
        self._marks: list[float] = []  # when the next force is used
        self._ended_at: float | None = None
        self._stopping = False
        self._told_stop = False
        self._wake_read, self._wake_write = os.pipe()

    def run(self, words: Sequence[str], line: bytes, interrupt: Interrupt, *, folder: Path, env: Mapping[str, str] | None) -> int:
        """Runs the program to its end; gives its exit status. Raises `Refused`, `OSError` where it can't be started."""
        self._outgoing += line
        try:
            interrupt.open(self._stop)  # a stop that raised in here could lose a line half-way
            if self._stopping:
                return 0
            pipe = subprocess.PIPE
            around = None if env is None else {**os.environ, **env}
            process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=around, bufsize=0)
            try:
                return self._talk(process)
            except BaseException:
                end(process)
                raise
            finally:
                _close(process.stdin, process.stdout, process.stderr)
        finally:
            interrupt.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _stop(self) -> None:
        self._stopping = True
        os.write(self._wake_write, b"\0")

    def _talk(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stdin.fileno(), False)
        streams = {process.stdout.fileno(): _OUTPUT, process.stderr.fileno(): _ERRORS}
        poll = select.poll()
        for descriptor in (*streams, self._wake_read):
            poll.register(descriptor, select.POLLIN)
        nap, left = _SHORT, _LAST_READS
        while True:
            self._write(process.stdin, poll)
            self._use_force(process)
            ended = process.poll() is not None
            nap = min(_TICK, nap * 2) if not streams else _SHORT
            events = dict(poll.poll(0 if ended else 1000 * (_TICK if streams else nap)))
            if self._wake_read in events:
                os.read(self._wake_read, 64)
            heard = [descriptor for descriptor in list(streams) if descriptor in events]
            for descriptor in heard:
                if not self._hear(descriptor, streams[descriptor]):
                    poll.unregister(descriptor)
                    del streams[descriptor]
            left -= ended
            if ended and not (heard and left):  # what others still hold open, or go on writing, is not waited for
                self._take_rest(_ERRORS)
                self._take_rest(_OUTPUT)
                return process.wait()

    # -- to the program -----------------------------------------------------------------------------------------------

    def _write(self, stdin: IO[bytes], poll: select.poll) -> None:
        if self._stopping and not self._told_stop:
            self._told_stop = True
            self._outgoing += stop_line(self._reason())
            now = time.monotonic()
            self._marks = [now + GRACE, now + KILL_AFTER]
        if stdin.closed:
            return
        if self.said is not None:  # there is nothing more to say: a program that reads to the end comes to it
            self._outgoing.clear()
        try:
            while self._outgoing:
                written = os.write(stdin.fileno(), self._outgoing)
                del self._outgoing[:written]
        except BlockingIOError:
            poll.register(stdin.fileno(), select.POLLOUT)
            return
        except OSError:  # it reads no more
            self._outgoing.clear()
        try:
            poll.unregister(stdin.fileno())
        except KeyError:
            pass
        if self.said is not None:
            stdin.close()

    def _use_force(self, process: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        if self.said is not None and not self._marks:
            self._marks = [now + LINGER, now + LINGER + 1]
        while self._marks and now >= self._marks[0]:
            self._marks.pop(0)
            if process.poll() is not None:
                continue
            self.forced = True
            if self._marks and self._stopping:
                processes.send_group(os.getpid(), signal.SIGTERM)  # all that it started as well; here it is only noted
            elif self._marks:
                process.terminate()
            else:
                process.kill()

    # -- from the program ---------------------------------------------------------------------------------------------

    def _hear(self, descriptor: int, stream: int) -> bool:
        """Takes in what came; False at the end of the stream."""
        data = os.read(descriptor, _READ)
        if not data:
            return False
        rest = self._rest[stream]
        begin, searched = 0, len(rest)
        rest += data
        while (at := rest.find(b"\n", max(begin, searched))) >= 0:
            self._take(bytes(rest[begin:at]), stream)
            begin = at + 1
        del rest[:begin]
        if len(rest) > LINE_LIMIT:
            self._take_rest(stream)
            self._is_piece[stream] = True
        return True

    def _take_rest(self, stream: int) -> None:
        if rest := bytes(self._rest[stream]):
            self._rest[stream].clear()
            self._take(rest, stream)

    def _take(self, line: bytes, stream: int) -> None:
        said = None
        is_piece, self._is_piece[stream] = self._is_piece[stream], False
        if stream == _OUTPUT and not is_piece:
            try:
                said = read(line)
            except Garbled as problem:
                self.garbled = str(problem)
        if said is None or (self.said is not None and said.end is None):
            self._note(line.decode("utf-8", "replace").removesuffix("\r"))
        elif self.said is not None:
            raise Refused(f"it wrote {said.end} after {self.said.end}: an attempt ends once")
        else:
            self._do(said)

    def _do(self, said: Said) -> None:
        words = said.words
        if "log" in words:
            text = words["log"]
            self._note(text if isinstance(text, str) else json.dumps(text))
        if "progress" in words:
            self._fraction = float(words["progress"])
        if "progress" in words or "phase" in words:
            self._job.set_progress(self._fraction, words.get("phase"))
        if "checkpoint" in words:
            self._job.checkpoint(words["checkpoint"])
        if said.end is not None:
            self.said = said


def _close(*streams: IO[Any] | None) -> None:
    for stream in streams:
        if stream is not None:
            stream.close()
