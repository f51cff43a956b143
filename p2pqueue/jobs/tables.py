"""Which replicated tables does a queue live in, and how do their registers show as one row?"""

from __future__ import annotations

from p2pqueue.replica.tables import Column, Derived, Register, Table

TERMINAL = "('succeeded', 'failed', 'cancelled')"

SPEC = Register(
    "spec",
    (
        Column("queue", "TEXT"),
        Column("task", "TEXT"),
        Column("args", "BLOB"),  # MessagePack: a map of the parameters
        Column("max_attempts", "INTEGER"),
        Column("timeout", "REAL"),  # seconds
        Column("stall_timeout", "REAL"),  # seconds
        Column("backoff", "TEXT"),  # JSON: {"first", "factor", "cap"}, seconds
        Column("retry_on", "TEXT"),  # JSON: names of exception classes
        Column("run_at", "INTEGER"),  # milliseconds UTC
        Column("needs", "TEXT"),  # JSON: a list of tags
        Column("on_device", "TEXT"),
        Column("unique_key", "TEXT"),
        Column("after", "TEXT"),  # JSON: a list of job ids
        Column("group_id", "TEXT"),
        Column("owner", "TEXT"),  # device id of the space's owner, or the app's user
        Column("enqueued_by", "TEXT"),  # device id
        Column("created_at", "INTEGER"),  # milliseconds UTC
        Column("options", "BLOB"),  # MessagePack: a map; unknown keys are kept
    ),
    first=True,
    signed=True,
    creating=True,
    kept=("generation", "hlc", "author"),
)
TUNE = Register("tune", (Column("title", "TEXT"), Column("priority", "INTEGER")))
INPUT = Register(
    "input",
    (
        Column("input_manifest", "TEXT"),  # p2pq1-…, of the file, or of a manifest of manifests
        Column("input_name", "TEXT"),
        Column("input_size", "INTEGER"),  # bytes
        Column("for_spec", "TEXT"),  # the spec that it belongs to: "<hlc>:<author in hex>"
    ),
)
STATE = Register(
    "state",
    (
        Column("status", "TEXT", "state_status"),  # queued running succeeded failed cancelled
        Column("attempt", "INTEGER"),
        Column("claim", "INTEGER"),
        Column("worker_id", "TEXT"),
        Column("worker_label", "TEXT"),
        Column("claimed_at", "INTEGER"),
        Column("finished_at", "INTEGER"),
        Column("retry_at", "INTEGER"),
        Column("result_id", "TEXT"),  # id of the run that holds the result
        Column("error", "TEXT"),
        Column("checkpoint_stamp", "TEXT"),
    ),
    kept=("generation", "hlc"),
)
HOLD = Register("hold", (Column("held", "INTEGER"),))
BEAT = Register(
    "beat",
    (
        Column("heartbeat_at", "INTEGER"),
        Column("progress", "REAL", "beat_progress"),
        Column("phase", "TEXT", "beat_phase"),
        Column("worker_id", "TEXT", "beat_worker_id"),
    ),
    kept=("generation", "claim", "hlc"),
)
CHECKPOINT = Register("checkpoint", (Column("checkpoint", "BLOB"),), kept=("generation", "claim", "hlc"))
LIFE = Register("life", (Column("deleted", "INTEGER"),))

_COUNTS = "(state_generation IS NOT NULL AND state_generation >> 16 = spec_generation >> 16)"
_PENDING = "(state_generation IS NOT NULL AND state_generation >> 16 > spec_generation >> 16)"
_BEATS = "(beat_generation = state_generation AND beat_claim = claim AND beat_worker_id = worker_id)"
# Not IN: SQLite would build an index of the three words for every row that it writes, a third of the insert's time.
_HAS_ENDED = "(state_status = 'succeeded' OR state_status = 'failed' OR state_status = 'cancelled')"
_STATUS = f"""CASE
    WHEN spec_generation IS NULL OR {_PENDING} THEN NULL
    WHEN {_COUNTS} AND {_HAS_ENDED} THEN state_status
    WHEN held = 1 THEN 'paused'
    WHEN {_COUNTS} THEN state_status
    ELSE 'queued' END"""
_PHASE = f"""CASE state_status WHEN 'succeeded' THEN 'Done' WHEN 'failed' THEN 'Failed' WHEN 'cancelled' THEN 'Cancelled'
    ELSE CASE WHEN {_BEATS} THEN beat_phase ELSE 'Queued' END END"""
_INPUT_COUNTS = "for_spec IS NOT NULL AND for_spec = spec_hlc || ':' || lower(hex(spec_author))"

JOBS = Table(
    "jobs",
    "id",
    (SPEC, TUNE, INPUT, STATE, HOLD, BEAT, CHECKPOINT, LIFE),
    derived=(
        Derived("status", "TEXT", _STATUS, stored=True),
        Derived("live", "INTEGER", "spec_generation IS NOT NULL AND coalesce(deleted, 0) = 0", stored=True),
        Derived("due_at", "INTEGER", "max(coalesce(run_at, 0), coalesce(retry_at, 0))", stored=True),
        # 0: comes due later, is moved by `wake_due`; 2: set aside by a worker that can't do it, until its node's next start.
        # Named in it, an input that comes later makes it anew: the job was set aside for want of that.
        Derived("ready", "INTEGER", "due_at <= updated_at AND coalesce(input_generation, 0) >= 0", stored=True),
        Derived("rank_priority", "INTEGER", "-coalesce(priority, 0)", stored=True),
        Derived("input_counts", "INTEGER", _INPUT_COUNTS),
        Derived("progress", "REAL", f"CASE WHEN state_status = 'succeeded' THEN 1.0 WHEN {_BEATS} THEN beat_progress ELSE 0.0 END"),
        Derived("phase", "TEXT", _PHASE),
    ),
    indexes=(
        "CREATE INDEX jobs_ready ON jobs(rank_priority, due_at, created_at) WHERE ready = 1 AND status = 'queued' AND live = 1",
        "CREATE INDEX jobs_later ON jobs(due_at) WHERE ready = 0 AND status = 'queued' AND live = 1",
        "CREATE INDEX jobs_by_status ON jobs(status, created_at)",
    ),
    counted=True,
    ended=f"status IN {TERMINAL}",
    ended_at="coalesce(finished_at, created_at)",
)

RUNS = Table(
    "runs",
    "id",  # "<job>/<generation>/<claim>/<first half of the author, in hex>"
    (
        Register(
            "run",
            (
                Column("job_id", "TEXT"),
                Column("attempt", "INTEGER"),
                Column("worker_id", "TEXT"),
                Column("worker_label", "TEXT"),
                Column("started_at", "INTEGER"),
                Column("ended_at", "INTEGER"),
                Column("status", "TEXT"),  # running succeeded failed cancelled skipped released lost
                Column("result", "BLOB"),  # MessagePack
                Column("output_manifest", "TEXT"),
                Column("error", "TEXT"),
                Column("traceback", "TEXT"),
                Column("log_tail", "TEXT"),
                Column("duration", "REAL"),  # seconds
                Column("trigger", "TEXT"),
                Column("metadata", "BLOB"),  # MessagePack
            ),
            creating=True,
        ),
    ),
    indexes=("CREATE INDEX runs_running ON runs(worker_id) WHERE status = 'running'",),
    compact=True,
    ended="status <> 'running'",
    ended_at="coalesce(ended_at, started_at)",
)

TABLES = (JOBS, RUNS)
