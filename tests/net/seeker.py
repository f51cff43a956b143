"""A process that only finds others: prints what its discovery tells as lines of JSON, and obeys lines on stdin.

`python -m tests.net.seeker --port 7433 --space aa [--interface lo] [--name NAME] [--lifetime 5] [--seek 7]`; the commands are
`nameplate N`, `nameplate` and `close`. Every line says when it was written, by the clock that all hosts here share.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import sys
import time
from contextlib import aclosing
from typing import Any

from blake3 import blake3

from p2pqueue.net.discovery import Discovery, find_nameplate
from p2pqueue.net.interfaces import InterfaceWatch

RETRY_EVERY = 1.0  # seconds: a test doesn't wait as long as a node does


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, "at": time.monotonic()} | fields), flush=True)


class Telling(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.INFO:
            say("log", level=record.levelname, logger=record.name, text=record.getMessage())


async def seek(nameplate: str, watch: InterfaceWatch) -> None:
    async with aclosing(find_nameplate(nameplate, protocol=(1, 1), interfaces=watch)) as found:
        async for sighting in found:
            say("sighting", **dataclasses.asdict(sighting))
            return


async def discover(arguments: argparse.Namespace, watch: InterfaceWatch) -> None:
    key = blake3(arguments.space.encode()).digest()
    names = iter([arguments.name] if arguments.name else [])
    options: dict[str, Any] = {}
    if arguments.name:
        options["make_name"] = lambda: next(names, f"p2pq-{time.time_ns():x}")
    discovery = Discovery(
        port=arguments.port,
        tag=lambda number: blake3(number, key=key).digest(16),
        protocol=(1, 1),
        interfaces=watch,
        on_sighting=lambda sighting: say("sighting", **dataclasses.asdict(sighting)),
        on_lost=lambda instance: say("lost", instance=instance),
        retry_every=RETRY_EVERY,
        lifetime=arguments.lifetime,
        **options,
    )
    await discovery.start()
    say("started", chosen=[interface.name for interface in watch.chosen])
    try:
        while True:
            line = await asyncio.to_thread(sys.stdin.readline)
            command, _, argument = line.strip().partition(" ")
            if command == "nameplate":
                discovery.set_nameplate(argument or None)
            elif command == "trouble":
                say("trouble", text=discovery.trouble)
            else:
                break
    finally:
        await discovery.close()
        say("closed")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=7433)
    parser.add_argument("--space", default="ours")
    parser.add_argument("--interface", action="append", default=[])
    parser.add_argument("--name", default="")
    parser.add_argument("--lifetime", type=int, default=120)
    parser.add_argument("--seek", default="")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, handlers=[Telling()])
    watch = InterfaceWatch(arguments.interface)
    asyncio.run(seek(arguments.seek, watch) if arguments.seek else discover(arguments, watch))


if __name__ == "__main__":
    main()
