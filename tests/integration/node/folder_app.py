"""Tasks that take and make folders."""

from __future__ import annotations

from typing import Any

from p2pqueue import File, Queue, current_job

queue = Queue("node-tests")


def seen(folder: File) -> dict[str, Any]:
    """Name, size and the files of a folder as a handler sees them."""
    files = {str(each.relative_to(folder.path)): each.stat().st_size for each in sorted(folder.path.rglob("*")) if each.is_file()}
    return {"name": folder.name, "size": folder.size, "is_folder": folder.is_folder, "path": str(folder.path), "files": files}


@queue.task
def survey(folder: File, beside: File | None = None) -> list[dict[str, Any]]:
    """What a handler sees of folders; of a file beside them its text."""
    return [seen(folder)] + ([{"text": beside.bytes().decode()}] if beside is not None else [])


@queue.task(inline=True)
async def inline_survey(folder: File) -> dict[str, Any]:
    return seen(folder)


@queue.task
def make_frames(count: int, size: int = 10, follow: bool = False) -> File:
    """Makes a folder of so many files; has another job look at it, if wanted."""
    folder = current_job().workdir / "frames"
    (folder / "deep").mkdir(parents=True)
    for number in range(count):
        with (folder / "deep" / f"{number}.png").open("wb") as file:
            file.write(f"{number}".encode())
            file.truncate(size)
    if follow:
        current_job().enqueue("survey", folder=File(folder))
    return File(folder)


@queue.task
def link_frames(path: str) -> File:
    """Makes a large folder with a link that leads out of it."""
    folder = current_job().workdir / "frames"
    folder.mkdir()
    (folder / "large.bin").symlink_to(path)
    return File(folder)
