"""How is an origin run, the store for devices that are never there at the same time?"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from p2pqueue.cli import quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation

if TYPE_CHECKING:
    from p2pqueue.payload.origins.keeping import Keeping
    from p2pqueue.payload.origins.objects import ObjectStore
    from p2pqueue.payload.origins.origin import Origin

_LISTEN = "127.0.0.1:7434"
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


@click.command(
    "origin",
    cls=Command,
    help="Run an origin: an HTTP store of sealed files and sealed mailboxes, which devices use where none of the others is there. "
    "It sees ciphertext only. It needs no space and no home of its own, and prints one line: its URL, with the token that it asks for. "
    "What nobody has read for 30 days is removed.",
    examples="""
    p2pqueue origin
    p2pqueue origin --store file:///srv/p2pqueue --listen 0.0.0.0:7434
    p2pqueue origin --store s3://bucket/prefix --sign
    p2pqueue config set origin http://TOKEN@nas.local:7434
    """,
)
@click.option(
    "--store",
    metavar="URL",
    help="What is behind it: a folder, as a path or a file:// URL, or a bucket, as s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
    "az://CONTAINER/PREFIX, whose keys come from the environment.  [default: `origin` in the home]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=_LISTEN,
    show_default=True,
    help="Where it listens; port 0 takes a free one.",
)
@click.option("--quota", metavar="SIZE", default="20GiB", show_default=True, help="How much it keeps.")
@click.option("--open", "open_reading", is_flag=True, help="Let anybody read who knows an address; writing needs the token all the same.")
@click.option(
    "--sign",
    "signs",
    is_flag=True,
    help="Send devices on to the bucket by signed URLs, so that no file comes past here; only readers check what is put there.",
)
@pass_invocation
def origin_command(invocation: Invocation, store: str | None, listen: str, quota: str, open_reading: bool, signs: bool) -> None:
    """Runs an origin until it is stopped."""
    if store is None or not _is_folder(store):
        invocation.home.ensure()
    folder = _state(invocation, store)
    token = _token(folder / "token")
    asyncio.run(_run(invocation, _store(store, folder), folder, token, listen, quantities.size(quota), open_reading, signs))


async def _run(
    invocation: Invocation, store: ObjectStore, folder: Path, token: str, listen: str, quota: int, open_reading: bool, signs: bool
) -> None:
    from p2pqueue.errors import WorldError
    from p2pqueue.payload.origins.keeping import Keeping
    from p2pqueue.payload.origins.objects import StoreFailed
    from p2pqueue.payload.origins.origin import Origin

    try:
        keeping = await Keeping.open(store, quota=quota, state=folder / "read.json")
    except StoreFailed as error:
        raise WorldError(str(error)) from error
    await _serve(invocation, Origin(keeping, token=token, open_reading=open_reading, signs=signs), keeping, token, listen)


async def _serve(invocation: Invocation, origin: Origin, keeping: Keeping, token: str, listen: str) -> None:
    from aiohttp import web

    from p2pqueue.net.listener import bind

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOPPING:
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    runner = web.AppRunner(origin.app, access_log=None)
    await runner.setup()
    try:
        for listening in bind(listen):
            await web.SockSite(runner, listening).start()
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        url = f"http://{token}@{shown}:{bound[1]}"
        click.echo(json.dumps({"schema": 1, "ready": True, "url": url}) if invocation.json else url)
        async with asyncio.TaskGroup() as group:
            tidying = group.create_task(keeping.run())
            await stop.wait()
            tidying.cancel()
    finally:
        await runner.cleanup()
    invocation.say("stopped")


def _is_folder(store: str) -> bool:
    scheme = urlsplit(store).scheme
    return scheme in ("", "file") or len(scheme) == 1  # a single letter is a drive


def _state(invocation: Invocation, store: str | None) -> Path:
    """The folder of the token: the store itself, or one in the home for each bucket."""
    from p2pqueue.private import make_private_dir

    if store is not None and _is_folder(store):
        folder = Path(unquote(urlsplit(store).path)) if urlsplit(store).scheme == "file" else Path(store).absolute()
    else:
        name = "origin" if store is None else "origin-" + hashlib.blake2b(store.strip().rstrip("/").encode(), digest_size=8).hexdigest()
        folder = invocation.home.path / name
    make_private_dir(folder)
    return folder


def _store(store: str | None, folder: Path) -> ObjectStore:
    from p2pqueue.errors import ConfigError

    if store is None or _is_folder(store):
        from p2pqueue.payload.origins.folder import Folder

        return Folder(folder)
    from p2pqueue.payload.origins.bucket import Bucket

    try:
        return Bucket(store)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--store") from error


def _token(path: Path) -> str:
    """The token of the folder's origin, the same after every start; made at the first."""
    from p2pqueue.errors import DamagedHome
    from p2pqueue.private import write_private

    try:
        token = path.read_text("ascii").strip()
    except FileNotFoundError:
        token = secrets.token_urlsafe(24)
        write_private(path, token.encode() + b"\n", replace=False)
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedHome(f"{path} can't be read ({error}); remove it, and give the nodes the new URL") from error
    if not token:
        raise DamagedHome(f"{path} is empty; remove it, and give the nodes the new URL")
    return token
