"""Mistakes that both type checkers must find: one on each line that says so, and none elsewhere."""

from __future__ import annotations

from p2pqueue import File, Job, Queue, current_job

queue = Queue("studio")


@queue.task
def transcode(video: File, height: int = 720) -> File:
    return video


@queue.task(timeout=5)
async def summarise(text: str) -> dict[str, int]:
    return {text: 1}


def wrong(job: Job[int]) -> None:
    transcode.enqueue("clip.mov")  # mistake: a path is no File
    transcode.enqueue(File("clip.mov"), height="720")  # mistake: a text is no height
    transcode.enqueue(File("clip.mov"), heigth=720)  # mistake: no such parameter
    transcode.enqueue()  # mistake: the video is missing
    transcode(5)  # mistake: called plainly it wants the same
    transcode.options(after=[job])  # mistake: no such option yet
    transcode.options(priority="high")  # mistake: a priority is a number
    queue.task(schedule="@daily")  # mistake: no such option yet
    queue.task(max_attempts="3")  # mistake: attempts are a number
    name: str = job.result()  # mistake: the result is an int
    other: Job[str] = summarise.enqueue("x")  # mistake: the job of a coroutine gives what it returns
    job.watch().__next__()  # mistake: a watch is to be iterated over
    current_job().set_progress("half")  # mistake: progress is a number
    print(name, other)


async def awrong(job: Job[int]) -> None:
    text: str = await job  # mistake: the result is an int
    await summarise.aenqueue(5)  # mistake: a number is no text
    print(text)


from p2pqueue import no_such_name  # noqa: E402, F401  # mistake: misspelt
