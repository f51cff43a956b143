"""What does `make bench` do? It runs every benchmark and writes their tables into one report."""

from __future__ import annotations

import json
import platform
import sqlite3
import subprocess
import sys
from datetime import date
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
BENCHMARKS = ("jobs", "children", "network", "payload", "small_files", "transfers", "replication", "scale")  # those that exist are run
REPORT = HERE / "report.md"
_HOW_TO_READ = (
    'Ratios count; absolute figures don\'t travel. "At reference" is a value at the speed of the machine that the absolute targets '
    'were set for, by things measured around each section that have nothing of ours in them; "scaled" holds at that speed alone.'
)


def main(arguments: list[str]) -> int:
    """Runs all benchmarks with these arguments; gives 1 when a target of any does not hold, 2 when one could not run."""
    worst = 0
    parts = [f"# Benchmarks\n\n{_machine()}\n{_HOW_TO_READ}\n"]
    for name in BENCHMARKS:
        if not (HERE / f"{name}.py").exists():
            continue
        print(f"== {name}", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--json", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE.parent,
            check=False,
        )
        try:
            part = _markdown(json.loads(done.stdout))
        except ValueError:
            part, worst = "It could not be run to its end.\n", 2
        parts.append(f"## {name}.py\n\n{part}")
        print(part)
        worst = max(worst, done.returncode)
    REPORT.write_text("\n".join(parts), encoding="utf-8")
    print(f"written: {REPORT.relative_to(HERE.parent)}", file=sys.stderr)
    return worst


def _markdown(rows: list[dict[str, object]]) -> str:
    lines = ["| figure | value | unit | peer | its value | at reference | target | holds |", "|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {row['name']} | {_number(row['value'])} | {row['unit']} | {row['peer'] or ''} | {_number(row['peer_value'])} "
        f"| {_number(row['at_reference'])} | {row['target'] or ''} | {_holds(row)} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _number(value: object) -> str:
    if not isinstance(value, (int, float)):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _holds(row: dict[str, object]) -> str:
    if row["holds"] is None:
        return ""
    return "yes" if row["holds_as_it_is"] else "scaled" if row["holds"] else "**no**"


def _machine() -> str:
    memory = psutil.virtual_memory().total / 1e9
    parts = (platform.system(), platform.machine(), f"{psutil.cpu_count()} cores", f"{memory:.0f} GB of memory")
    versions = (f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}")
    return f"Taken on {date.today().isoformat()}: {', '.join(parts)}; {', '.join(versions)}.\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
