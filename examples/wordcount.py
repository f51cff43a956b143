"""Counts the words of a text of any size, and goes on where it was when it was interrupted.

    p2pqueue run examples/wordcount.py
    p2pqueue enqueue wordcount -f text=novel.txt --wait
    p2pqueue pause ID; p2pqueue resume ID           # goes on from its checkpoint

Shows reading by chunks (the memory needed is one chunk, whatever the size), progress, and a checkpoint: a small
value that the job's next attempt finds in `resume_from`, on this device or on another one.
"""

from __future__ import annotations

from p2pqueue import File, Queue, current_job

queue = Queue("texts")

BETWEEN_CHECKPOINTS = 16 * 1024 * 1024  # bytes: at most this much is counted twice


@queue.task(max_attempts=5)
def wordcount(text: File) -> dict[str, int]:
    """Gives how many words, lines and bytes the text has."""
    job = current_job()
    counted = dict(job.resume_from or {"bytes": 0, "words": 0, "lines": 0, "in_word": 0})
    kept = counted["bytes"]
    position = 0
    for chunk in text.chunks():
        start, position = position, position + len(chunk)
        if position <= counted["bytes"]:
            continue  # counted before the interruption
        _count(chunk[max(0, counted["bytes"] - start) :], counted)
        job.set_progress(counted["bytes"] / text.size if text.size else 1.0, f"{counted['words']:,} words")
        if counted["bytes"] - kept >= BETWEEN_CHECKPOINTS:
            job.checkpoint(counted)
            kept = counted["bytes"]
    del counted["in_word"]
    return counted


def _count(piece: bytes, counted: dict[str, int]) -> None:
    starts_in_space = piece[:1].isspace()
    counted["words"] += len(piece.split()) - (1 if counted["in_word"] and piece and not starts_in_space else 0)
    counted["lines"] += piece.count(b"\n")
    counted["bytes"] += len(piece)
    if piece:
        counted["in_word"] = 0 if piece[-1:].isspace() else 1
