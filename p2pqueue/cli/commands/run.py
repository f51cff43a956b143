"""How does a node run in the foreground, and how does it stop?

It says one line on stdout when it takes jobs; everything else, a handler's print too, goes to stderr. The first
SIGINT or SIGTERM stops it in order, a second one at once.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.output import plain
from p2pqueue.settings import TABLE, TABLE_BY_NAME

if TYPE_CHECKING:
    from p2pqueue.node import Node, Ready

_NAMED = (  # have a flag of their own form, or come first
    "slots", "work", "tags", "max_input", "score", "allow_exec", "allow_tasks", "network", "discovery", "peers", "interfaces",
)  # fmt: skip
_SWITCHES = {  # what the flag does, where the setting's words say what both of its values decide
    "work": "Take no jobs: this device only hands them out, keeps and shows them.",
    "allow_exec": "Let `exec` jobs and command tasks, which start any program, run here.",
    "network": "Link to no other device until `p2pqueue online`.",
    "discovery": "Don't look for other devices by mDNS.",
}
_SWITCH_AFTER = 0.0005  # seconds for which busy handlers in the loop keep the thread waiting that writes; Python's own are 5 ms
_COLLECT_EVERY = 2_000  # objects left over between two searches for garbage in cycles, which may be large; Python's own are 700
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def _setting(name: str, declaration: str, **attributes: Any) -> Callable[[Any], Any]:
    setting = TABLE_BY_NAME.get(name)
    if setting is None:
        return lambda command: command
    told = f"{_SWITCHES.get(name, setting.doc)}  [{setting.variable}]"
    return click.option(declaration, name, default=None, help=told, allow_from_autoenv=False, **attributes)


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    others = [each for each in TABLE if each.name not in _NAMED]
    metavars = {"duration": "D", "size": "SIZE", "count": "N", "text": "TEXT", "list": "A,B", "switch": "BOOL"}
    for setting in reversed(others):
        command = _setting(setting.name, setting.flag, metavar=metavars[setting.kind])(command)
    for decorate in (
        _setting("interfaces", "--interface", metavar="I", multiple=True),
        _setting("discovery", "--no-discovery", is_flag=True, flag_value="false"),
        _setting("peers", "--peer", metavar="HOST:PORT", multiple=True),
        _setting("network", "--no-network", is_flag=True, flag_value="false"),
        _setting("allow_exec", "--allow-exec", is_flag=True, flag_value="true"),
        _setting("allow_tasks", "--allow-task", metavar="NAME", multiple=True),
        _setting("score", "--score", metavar="N"),
        _setting("max_input", "--max-input", metavar="SIZE"),
        _setting("tags", "--tag", metavar="T", multiple=True),
        _setting("work", "--no-work", is_flag=True, flag_value="false"),
        _setting("slots", "--slots", metavar="N"),
    ):
        command = decorate(command)
    return command


@click.command(
    "run",
    cls=Command,
    help="Run the node, which does the jobs of this device. APP is `module:queue`, a .py file, or a .toml of command tasks.",
    examples="""
    p2pqueue run examples/transcode.py
    p2pqueue run tasks:queue --slots 2 --tag gpu
    p2pqueue run --allow-exec
    p2pqueue run tasks:queue --burst
    """,
)
@click.argument("app", required=False)
@_settings
@click.option("--burst", is_flag=True, help="End when nothing is left to do here; jobs that are due later are waited for.")
@pass_invocation
def run_command(invocation: Invocation, /, app: str | None, burst: bool, **overrides: Any) -> None:
    """Runs the node until it is stopped."""
    from p2pqueue.node import Node

    _log_to_stderr(invocation)
    given = {name: value for name, value in overrides.items() if value not in (None, ())}
    node = Node(invocation.home, application=app, overrides=given)
    if app is None and node.settings.work and not node.settings.allow_exec:
        invocation.warn("without APP this node has no tasks; name one, or use --allow-exec or --no-work")
    announce = _take_stdout()

    def started(ready: Ready) -> None:
        announce(_ready_line(invocation, ready))
        _tell_start(invocation, node)

    asyncio.run(_run(invocation, node, started, burst=burst))


def _tell_start(invocation: Invocation, node: Node) -> None:
    if node.recovered:
        invocation.say(f"took back {quantities.counted(len(node.recovered), 'job')} of an earlier run")
    if node.application is not None and not node.tasks and node.settings.work:
        invocation.warn(f"{plain(node.application)} has no tasks; decorate its functions with @queue.task()")
    commands = {name for name, task in node.tasks.items() if task.command is not None}
    if unknown := sorted(set(node.settings.allow_tasks) - commands):
        invocation.warn(f"allowed by name, and no command task of this node: {plain(', '.join(unknown))}")
    commands -= set(node.settings.allow_tasks)
    if commands and node.settings.work and not node.settings.allow_exec:
        wait = "1 task waits" if len(commands) == 1 else f"{len(commands)} tasks wait"
        invocation.warn(f"{wait} until the node is started with --allow-exec: {plain(', '.join(sorted(commands)))}")


async def _run(invocation: Invocation, node: Node, announce: Callable[[Ready], None], *, burst: bool) -> None:
    stop = asyncio.Event()
    started = False
    task = asyncio.current_task()

    def on_signal() -> None:
        if not started and not stop.is_set() and task is not None:
            task.cancel()
        elif stop.is_set():
            node.hurry()
        else:
            _tell_stop(invocation, node)
        stop.set()

    _on_signals(on_signal)
    try:
        ready = await node.start()
    except asyncio.CancelledError:
        if stop.is_set():
            return
        raise
    started = True
    announce(ready)
    _collect_seldom()
    sys.setswitchinterval(_SWITCH_AFTER)
    try:
        await _until_over(node, stop, burst=burst)
    finally:
        stop.set()
        await node.stop()
    invocation.say("stopped")


def _collect_seldom() -> None:
    """Searches for garbage in cycles seldom: there is hardly any, and the search took a tenth of a busy node's time."""
    gc.freeze()  # what the start left is there to stay
    gc.set_threshold(_COLLECT_EVERY, *gc.get_threshold()[1:])


def _tell_stop(invocation: Invocation, node: Node) -> None:
    if running := len(node.worker.runs):
        wait = quantities.span(node.settings.grace)
        invocation.say(f"stopping: waiting up to {wait} for {quantities.counted(running, 'job')}; once more to stop at once")
    else:
        invocation.say("stopping")


async def _until_over(node: Node, stop: asyncio.Event, *, burst: bool) -> None:
    async with asyncio.TaskGroup() as group:
        ends = [group.create_task(stop.wait()), group.create_task(node.wait())]
        if burst and not node.settings.work:
            stop.set()  # it takes no jobs, so nothing is left to do
        elif burst:
            ends.append(group.create_task(node.drained()))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()


def _on_signals(handler: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in _STOPPING:
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(handler))


def _take_stdout() -> Callable[[str], None]:
    """Keeps stdout for the ready line alone: whatever else is printed in this process goes to stderr."""
    sys.stdout.flush()
    try:
        kept = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    except (OSError, ValueError):  # closed, or no real file
        kept = -1

    def announce(text: str) -> None:
        if kept < 0:
            return
        try:
            os.write(kept, text.encode() + b"\n")
        except OSError:
            pass  # nobody listens any more; the node runs all the same
        os.close(kept)

    return announce


def _ready_line(invocation: Invocation, ready: Ready) -> str:
    if invocation.json:
        return json.dumps({"schema": 1, "ready": True, **asdict(ready)})
    where = f", reached at {', '.join(ready.addresses)}" if ready.addresses else ""
    tasks = quantities.counted(len(ready.tasks), "task")
    slots = quantities.counted(ready.slots, "slot") if ready.slots else "takes no jobs"
    return f"ready: {plain(ready.label)} in {plain(ready.space)}, {tasks}, {slots}, pid {ready.pid}{where}"


class _Plain(logging.Formatter):
    """Log lines in which nothing steers a terminal: they carry titles and errors that came from elsewhere."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record), lines=True)


def _log_to_stderr(invocation: Invocation) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain("%(asctime)s %(levelname)s %(message)s"))
    levels = [logging.INFO, logging.DEBUG]
    level = logging.ERROR if invocation.quiet else levels[min(invocation.verbose, 2) - 1] if invocation.verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler])
    for chatty in ("aioice", "aiortc", "zeroconf"):  # every step of every connection
        logging.getLogger(chatty).setLevel(logging.WARNING if invocation.verbose < 2 else level)
