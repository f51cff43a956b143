"""Handlers that behave and misbehave in each way that a supervisor must survive."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from p2pqueue import Queue, Retry, current_job
from p2pqueue.errors import Cancelled

queue = Queue("children")

print("printed while the module is imported")
os.write(1, b"and written to the descriptor itself\n")


@queue.task
def echo(value: Any = None) -> Any:
    """Gives back what it is given."""
    return value


@queue.task
async def echo_async(value: Any = None) -> Any:
    await asyncio.sleep(0)
    return [current_job().attempt, value]


@queue.task
def whoami() -> list[int]:
    return [os.getpid(), os.getpgid(0), os.getsid(0)]


@queue.task
def chatter(megabytes: int = 1, end: str = "the end") -> int:
    block = b"x" * 99 + b"\n"
    for _ in range(megabytes * 10):
        sys.stdout.buffer.write(block * 1000)
    print(end)
    return megabytes


@queue.task
def say(words: str, file: str = "stdout") -> None:
    print(words, file=getattr(sys, file))


@queue.task
def say_everywhere() -> None:
    print("from print")
    print("from stderr", file=sys.stderr)
    os.write(1, b"from the descriptor\n")
    subprocess.run([sys.executable, "-c", "print('from a program')"], check=True)
    current_job().log("from the log", 1)
    current_job().run([sys.executable, "-c", "print('from a program of the job')"])


@queue.task
def read_stdin() -> str:
    return sys.stdin.read() + os.read(0, 10).decode()


@queue.task
def environment() -> dict[str, str]:
    return dict(os.environ)


@queue.task
def fail(message: str = "as asked") -> None:
    raise ValueError(message)


@queue.task
def fail_deeply() -> None:
    def down(level: int) -> None:
        if level == 0:
            raise KeyError("x" * 100_000)
        down(level - 1)

    down(500)


class Odd(ConnectionError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@queue.task
def fail_oddly() -> None:
    raise Odd


@queue.task
def adds_a_text(value: Any = "x") -> Any:
    return 1 + value


@queue.task
def leave(status: int = 3) -> None:
    sys.exit(status)


@queue.task
def retry(delay: float | None = None) -> None:
    raise Retry("not yet", delay=delay)


@queue.task
def returns_an_object() -> Any:
    return object()


@queue.task
def returns_too_much() -> str:
    return "x" * 100_000


@queue.task
def spread(steps: int = 100) -> int:
    job = current_job()
    for step in range(steps):
        job.set_progress((step + 1) / steps, f"step {step + 1}")
    return steps


@queue.task
def one_step_then_work(seconds: float = 0.3) -> None:
    current_job().set_progress(0.1, "first")
    current_job().set_progress(0.5, "second")
    time.sleep(seconds)


@queue.task
def keep(state: Any) -> list[Any]:
    job = current_job()
    before = job.resume_from
    job.checkpoint(state)
    return [before, state]


@queue.task
def go_on(state: Any) -> None:
    current_job().continue_(state)


@queue.task
def follow(value: str) -> str:
    return current_job().enqueue(echo.options(priority=3), value)


@queue.task
def ask_in_vain() -> str:
    try:
        return current_job().enqueue("nothing")
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return f"{type(error).__name__}: {error}"


@queue.task
def crash_by(number: int) -> None:
    print("about to crash", flush=True)
    os.kill(os.getpid(), number)
    time.sleep(30)


@queue.task
def exit_hard(status: int = 0) -> None:
    os._exit(status)


@queue.task
def segfault() -> None:
    ctypes.string_at(0)


@queue.task
def overflow() -> None:
    """Overflows the stack of C, not only that of Python."""
    nested: Any = ()
    for _ in range(1_000_000):
        nested = (nested,)
    hash(nested)


@queue.task
def recurse() -> None:
    recurse.function()


@queue.task(memory_limit=200 << 20)
def hog(megabytes: int = 1000) -> int:
    return len(bytearray(megabytes << 20))


@queue.task
def close_everything() -> None:
    os.closerange(0, 256)
    time.sleep(30)


@queue.task
def close_stdout() -> None:
    sys.stdout.close()


@queue.task
def sleep(seconds: float = 30.0) -> None:
    print("sleeping", flush=True)
    time.sleep(seconds)


@queue.task
async def sleep_async(note: str, seconds: float = 30.0) -> None:
    try:
        Path(note).write_text("started")
        await asyncio.sleep(seconds)
    finally:
        Path(note).write_text("tidied up")


@queue.task
def tidy_up(note: str) -> None:
    try:
        Path(note).write_text("started")
        time.sleep(30)
    except Cancelled:
        job = current_job()
        job.checkpoint("half")
        Path(note).write_text(f"cancelled {job.cancelled}")
        raise


@queue.task
def swallow(note: str) -> str:
    try:
        Path(note).write_text("started")
        time.sleep(30)
    except Cancelled:
        pass
    return "done all the same"


@queue.task
def ignore_term(note: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program = "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    Path(note).write_text(str(child.pid))
    time.sleep(60)


@queue.task
def hold_the_interpreter(note: str) -> None:
    """Never leaves a call into C that keeps the interpreter's lock."""
    Path(note).write_text("started")
    ctypes.PyDLL(None).sleep(60)


@queue.task
def stop_oneself(note: str) -> None:
    child = subprocess.Popen(["sleep", "60"])
    Path(note).write_text(str(child.pid))
    os.kill(os.getpid(), signal.SIGSTOP)


@queue.task
def run_program(note: str) -> None:
    current_job().run(["sh", "-c", f"echo $$ > {note}; sleep 60 & sleep 60"])


def _daemon(note: str) -> None:
    """Forks twice, with a session of its own between, and stays."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(note, "a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(60)
        os._exit(0)


@queue.task
def leave_daemon(note: str, wait: float = 0.0) -> str:
    _daemon(note)
    while not os.path.exists(note) or not Path(note).read_text().endswith("\n"):
        time.sleep(0.01)
    time.sleep(wait)
    return "left"


@queue.task
def leave_daemon_and_crash(note: str) -> None:
    leave_daemon.function(note)
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task
def leave_background(note: str) -> str:
    child = subprocess.Popen(["sleep", "60"])
    Path(note).write_text(f"{child.pid}\n")
    return "left"


@queue.task
def fork_tree(note: str, depth: int = 4, wait: float = 60.0) -> None:
    """Every process of the tree forks twice, deaf to TERM, in sessions of their own."""
    root = os.getpid()
    for _ in range(depth):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.setsid()
    with open(note, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(wait if os.getpid() == root else 60)


@queue.task
def fork_and_return() -> int:
    os.fork()
    return os.getpid()


@queue.task
def talk_from_a_fork(note: str) -> str:
    pid = os.fork()
    if pid == 0:
        try:
            current_job().set_progress(0.5)
            Path(note).write_text("sent")
        except LookupError as error:
            Path(note).write_text(str(error))
        os._exit(0)
    os.waitpid(pid, 0)
    return Path(note).read_text()


@queue.task
def talk_from_threads(steps: int = 200) -> int:
    def talk() -> None:
        for step in range(steps):
            current_job().set_progress(step / steps)
        current_job().checkpoint(threading.get_ident())

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads)


@queue.task
def use_workdir() -> str:
    folder = current_job().workdir
    (folder / "left.bin").write_bytes(b"x" * 1000)
    return str(folder)


@queue.task
def stay_in_workdir() -> None:
    """Leaves its process in a folder that is no longer there."""
    folder = current_job().workdir
    os.chdir(folder)
    os.rmdir(folder)


@queue.task
def change_folder() -> str:
    before = os.getcwd()
    os.chdir("/")
    return before


@queue.task
def flood(seconds: float = 1.0) -> int:
    """Sends progress as fast as it can, past the handler's own throttle."""
    from p2pqueue.workers.children.protocol import Progress

    link = current_job()._channel._link  # type: ignore[attr-defined]
    until, sent = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        link.send(Progress(0.5, "x" * 200))
        sent += 1
    return sent


@queue.task
def send_garbage() -> None:
    os.write(current_job()._channel._link.descriptor, b"\xff" * 1000)  # type: ignore[attr-defined]
    time.sleep(30)


@queue.task
def step_slowly(steps: int, pause: float) -> None:
    for step in range(steps):
        current_job().set_progress(step / steps)
        time.sleep(pause)


@queue.task
def brief(seconds: float) -> None:
    time.sleep(seconds)


@queue.task
def hog_by_programs() -> None:
    program = "x = bytearray(60 << 20); import time; time.sleep(30)"
    for child in [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]:
        child.wait()


@queue.task
def say_surrogate() -> None:
    print("\udcff")


@queue.task
def spin(note: str) -> None:
    Path(note).write_text("started")
    while True:
        pass


@queue.task
def leave_files(note: str) -> None:
    folder = current_job().workdir / "deep" / "er"
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    (folder / "link").symlink_to("/")
    folder.chmod(0o500)
    Path(note).write_text("started")
    time.sleep(60)
