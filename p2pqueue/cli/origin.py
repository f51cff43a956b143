"""How is an origin run, the store for devices that are never there at the same time?"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from p2pqueue.cli import quantities
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from p2pqueue.payload.origin import Origin

_LISTEN = "127.0.0.1:7434"
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


@click.command(
    "origin",
    cls=Command,
    help="Run an origin: an HTTP store of sealed files, which devices use where none of the others has them. It sees ciphertext only. "
    "It needs no space and no home of its own, and prints one line: its URL, with the token that it asks for.",
    examples="""
    p2pqueue origin
    p2pqueue origin --store file:///srv/p2pqueue --listen 0.0.0.0:7434
    p2pqueue config set origin http://TOKEN@nas.local:7434
    """,
)
@click.option("--store", metavar="URL", help="The folder behind it, as a path or a file:// URL.  [default: `origin` in the home]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=_LISTEN,
    show_default=True,
    help="Where it listens; port 0 takes a free one.",
)
@click.option("--quota", metavar="SIZE", default="20GiB", show_default=True, help="How much it keeps.")
@click.option("--open", "open_reading", is_flag=True, help="Let anybody read who knows an address; writing needs the token all the same.")
@pass_invocation
def origin_command(invocation: Invocation, store: str | None, listen: str, quota: str, open_reading: bool) -> None:
    """Runs an origin until it is stopped."""
    from p2pqueue.payload.origin import Origin, ShardFolder
    from p2pqueue.private import make_private_dir

    if store is None:
        invocation.home.ensure()
    folder = invocation.home.path / "origin" if store is None else _folder(store)
    make_private_dir(folder)
    shards = ShardFolder(folder / "shards", quota=quantities.size(quota))
    token = _token(folder / "token")
    asyncio.run(_serve(invocation, Origin(shards, token=token, open_reading=open_reading), token, listen))


async def _serve(invocation: Invocation, origin: Origin, token: str, listen: str) -> None:
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
        await stop.wait()
    finally:
        await runner.cleanup()
    invocation.say("stopped")


def _folder(store: str) -> Path:
    parts = urlsplit(store)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and len(parts.scheme) > 1:  # a single letter is a drive
        raise click.BadParameter(f"{plain(store)} is no folder; an origin keeps its shards in a folder so far.", param_hint="--store")
    return Path(store).absolute()


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
