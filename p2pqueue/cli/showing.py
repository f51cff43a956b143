"""What is known of one job, and of this device?"""

from __future__ import annotations

import json
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.home_shape import home_document
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.naming import complete_job
from p2pqueue.cli.opening import node_pid, reading
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.home import Home
    from p2pqueue.jobs.rows import JobRow, RunRow

_LONGEST_VALUE = 400  # characters of an argument or a result that `show` prints for people


@click.command(
    "show",
    cls=Command,
    help="Show one job: what was asked, its attempts, its timeline, and why it waits.",
    examples="""
    p2pqueue show 0199a1b2-c3d4
    p2pqueue show 0199a1b2-c3d4 --json | jq .attempts
    """,
)
@click.argument("job", shell_complete=complete_job)
@pass_invocation
def show_command(invocation: Invocation, job: str) -> None:
    """Shows one job."""
    from p2pqueue.cli.job_shape import jsonable, lone_document, run_document, unpacked, why_waits
    from p2pqueue.jobs import rows

    with reading(invocation.home) as connection:
        row = rows.find(connection, job)
        runs = rows.runs_of(connection, row.id)
        why = why_waits(connection, row, node_running=node_pid(invocation.home) is not None)
        args, options = (unpacked(packed) for packed in rows.spec_of(connection, row.id))
        limit = _limit(connection, row)
        document = lone_document(connection, row, why=why)
    document |= {
        "args": args,
        "options": options,
        "attempts": [{"run": number, **run_document(run)} for number, run in enumerate(runs, 1)],
        "timeline": [{"at": quantities.rfc3339(at), "what": what} for at, what in timeline(row, runs)],
    }
    invocation.result(jsonable(document), lambda: _job_lines(row, runs, document, limit))


def _limit(connection: sqlite3.Connection, row: JobRow) -> int:
    """How many attempts a job has in all: its own word, else that of its task."""
    from p2pqueue.jobs.local import known_tasks
    from p2pqueue.workers.claimed import DEFAULT_ATTEMPTS

    return row.max_attempts or known_tasks(connection).get(row.task, {}).get("max_attempts") or DEFAULT_ATTEMPTS


def timeline(row: JobRow, runs: list[RunRow]) -> list[tuple[int, str]]:
    """What happened to a job, and when (milliseconds UTC), the oldest first."""
    from p2pqueue.jobs.job import MAX_RETRIES

    events = [(row.created_at, "enqueued")]
    if row.run_at:
        events.append((row.run_at, "due"))
    generation = ((runs[0].generation or 0) if runs else row.generation) & ~MAX_RETRIES
    for number, run in enumerate(runs, 1):
        if (run.generation or 0) != generation:
            generation = run.generation or 0
            events.append((run.started_at, "retried"))
        where = f" on {run.worker_label}" if run.worker_label else ""
        events.append((run.started_at, f"attempt #{number} started{where}"))
        if run.ended_at is not None:
            events.append((run.ended_at, f"attempt #{number} {run.status}{f': {run.error}' if run.error else ''}"))
    if row.generation > generation and not row.ended:
        events.append((row.updated_at, "retried"))
    if row.status == "queued" and row.retry_at:
        events.append((row.retry_at, "runs again"))
    told = any(run.status == row.status and run.ended_at == row.finished_at for run in runs)
    if row.finished_at is not None and row.ended and not told:
        events.append((row.finished_at, row.status))
    return sorted(events, key=lambda event: event[0])


def _job_lines(row: JobRow, runs: list[RunRow], document: dict[str, Any], limit: int) -> list[str]:
    lines = output.pairs(_facts(row, document, limit))
    if document["args"]:
        lines += ["", output.colored("Arguments", None, bold=True)]
        args = document["args"] if isinstance(document["args"], dict) else {"?": document["args"]}
        lines += [f"  {plain(name)} = {_value(value)}" for name, value in args.items()]
    if runs:
        lines += ["", output.colored("Attempts", None, bold=True), *_attempts(runs)]
    lines += ["", output.colored("Timeline", None, bold=True)]
    lines += [f"  {quantities.local_time(at)}  {plain(what)}" for at, what in timeline(row, runs)]
    if document["result"] is not None:
        lines += ["", output.colored("Result", None, bold=True), f"  {_value(document['result'])}", *_advice(row, document)]
    trace = next((run.traceback for run in reversed(runs) if run.traceback), None)
    if row.status == "failed" and trace:
        lines += ["", output.colored("Traceback", None, bold=True), plain(trace, lines=True).rstrip()]
    return lines


def _advice(row: JobRow, document: dict[str, Any]) -> list[str]:
    has_file = any(run["output_manifest"] for run in document["attempts"])
    return [f"  p2pqueue result {row.id} -o PATH saves what it made"] if has_file else []


def _facts(row: JobRow, document: dict[str, Any], limit: int) -> list[tuple[str, str]]:
    status = output.colored(row.status, output.STATUS_COLORS.get(row.status))
    size, needs = quantities.bytes_text(row.input_size), document["needs"] or []
    facts = [
        ("Job", row.id),
        ("Title", plain(row.title or "")),
        ("Task", f"{plain(row.task)} (queue {plain(row.queue)})"),
        ("Status", status),
        ("Waits", plain(quantities.localised(document["why"] or ""))),
        ("Done", f"{output.bar(row.progress)}  {plain(row.phase or '')}" if row.status == "running" else ""),
        ("Error" if row.ended else "Last error", plain(row.error or "")),
        ("Device", plain(row.worker_label or "")),
        ("Attempt", f"{row.attempt} of {limit}"),
        ("Priority", str(row.priority) if row.priority else ""),
        ("Input", f"{plain(row.input_name)} ({size})" if row.input_name else ""),
        ("Needs", plain(", ".join(map(str, needs if isinstance(needs, list) else [needs])))),
        ("Unique key", plain(row.unique_key or "")),
    ]
    return [(name, value) for name, value in facts if value]


def _attempts(runs: list[RunRow]) -> list[str]:
    lines = []
    for number, run in enumerate(runs, 1):
        taken = run.duration
        if taken is None and run.ended_at is not None:
            taken = (run.ended_at - run.started_at) / 1000
        lines.append(
            (
                str(number),
                run.status,
                str(run.attempt),
                plain(run.worker_label or "–"),
                quantities.local_time(run.started_at),
                quantities.span(taken),
                plain(run.error or ""),
            )
        )
    colors = [output.STATUS_COLORS.get(run.status) for run in runs]
    return [f"  {text}" for text in output.table(("#", "STATUS", "ATTEMPT", "DEVICE", "STARTED", "TOOK", "ERROR"), lines, colors=colors)]


def _value(value: Any) -> str:
    if isinstance(value, dict) and list(value) == ["__file__"]:
        return "a file"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return plain(text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…")


@click.command(
    "status",
    cls=Command,
    help="Show this device, its node, and how many jobs have which status.",
    examples="""
    p2pqueue status
    p2pqueue status --json | jq .counts
    """,
)
@pass_invocation
def status_command(invocation: Invocation) -> None:
    """Shows this device and its node."""
    from p2pqueue.identity.keys import load
    from p2pqueue.jobs import rows

    home = invocation.home
    with reading(home) as connection:
        counts = rows.counts(connection)
        heads = {author.hex(): seq for author, seq in connection.execute("SELECT author, seq FROM heads ORDER BY author")}
        digest = _digest(connection) if invocation.json else ""
    document = {
        **home_document(home, load(home)),
        "node": _node(home),
        "counts": counts,
        "disk": {"used": _used(home), "free": _free(home)},
        "heads": heads,
        "digest": digest,
    }
    invocation.result(document, lambda: _status_lines(document))


def _status_lines(document: dict[str, Any]) -> list[str]:
    node = document["node"]
    counts = ", ".join(f"{n} {name}" for name, n in document["counts"].items() if n) or "none"
    disk = document["disk"]
    return output.pairs(
        [
            ("Device", f"{plain(document['label'])} ({document['device'][:8]}, {document['role']})"),
            ("Space", f"{plain(document['space_name'])} ({document['space'][:8]})"),
            ("Home", plain(document["home"])),
            ("Node", _node_words(node)),
            *_network_facts(node.get("network")),
            ("Jobs", counts),
            ("Disk", f"{quantities.bytes_text(disk['used'])} used, {quantities.bytes_text(disk['free'])} free"),
        ]
    )


def _node(home: Home) -> dict[str, Any]:
    from p2pqueue.errors import WorldError
    from p2pqueue.replica.doorbell import DoorbellClient

    pid = node_pid(home)
    if pid is None:
        return {"running": False, "pid": None}
    try:
        told = DoorbellClient(home.socket_path).request("status")
    except (WorldError, OSError):
        return {"running": True, "pid": pid}  # it just starts or stops
    return {
        "running": True,
        "pid": pid,
        "started_at": quantities.rfc3339(told.get("started_at")),
        "slots": told.get("slots"),
        "jobs": told.get("running", []),
        "tasks": told.get("tasks", []),
        "network": told.get("network"),
    }


def _network_facts(network: dict[str, Any] | None) -> list[tuple[str, str]]:
    """How the node is linked, a line for each peer."""
    if not network:
        return []
    if not network["online"]:
        off = "nobody to link to yet" if network.get("wanted") else "offline; `p2pqueue online` begins it again"
        return [("Network", plain(network.get("trouble") or off))]
    listening = network.get("listening") or {}
    facts = [("Network", f"listens on port {listening.get('port', '?')}")]
    for peer in network["peers"]:
        slower = f"; slower, as {peer['why']}" if peer.get("why") else ""
        rtt = f", {peer['rtt'] * 1000:.1f} ms" if isinstance(peer.get("rtt"), float) else ""
        facts.append(("Peer", plain(f"{peer['label'] or peer['device'][:8]} by {peer['path']}{rtt}{slower}")))
    troubles = [network.get("trouble"), (network.get("discovery") or {}).get("trouble"), *(each["why"] for each in network["refused"])]
    facts += [("Trouble", plain(str(trouble))) for trouble in troubles if trouble]
    told = [each["address"] for each in network["refused"]]
    facts += [("Trouble", plain(_unreached(each))) for each in network.get("unreached", ()) if each["address"] not in told and each["why"]]
    carried = {lane: size for lane, size in network["carried"].items() if size}
    if carried:
        facts.append(("Fetched", ", ".join(f"{quantities.bytes_text(size)} by {lane}" for lane, size in carried.items())))
    return facts


def _unreached(peer: dict[str, Any]) -> str:
    """Why nobody is linked at an address of `--peer`."""
    host, port = peer["address"]
    again = f"again in {quantities.span(peer['again_in'])}" if peer["again_in"] else "being tried now"
    return f"{host}:{port}: {peer['why']}; tried {quantities.counted(peer['tries'], 'time')}, {again}"


def _node_words(node: dict[str, Any]) -> str:
    if not node["running"]:
        return "not running; start it with `p2pqueue run`"
    if "slots" not in node:
        return f"pid {node['pid']}, which does not answer now"
    tasks = quantities.counted(len(node["tasks"]), "task")
    return f"running, pid {node['pid']}, {len(node['jobs'])} of {quantities.counted(node['slots'], 'slot')} busy, {tasks}"


def _digest(connection: sqlite3.Connection) -> str:
    """One hash over all that has not ended: equal on devices that hold the same."""
    from hashlib import blake2b

    from p2pqueue.replica.comparing import digests
    from p2pqueue.replica.schema import stored_tables
    from p2pqueue.replica.statements import shapes_of

    taken = digests(connection, shapes_of(stored_tables(connection)))
    return blake2b(b"".join(name.encode() + b"\0" + value for name, value in sorted(taken.items())), digest_size=16).hexdigest()


def _used(home: Home) -> int:
    total, folders = 0, [str(home.path)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue  # a working folder that ended meanwhile
    return total


def _free(home: Home) -> int:
    import shutil

    return shutil.disk_usage(home.path).free
