"""How is the networking of the running node stopped for a while, and begun again?"""

from __future__ import annotations

from typing import Any

import click

from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.opening import check_initialised


@click.command(
    "offline",
    cls=Command,
    help="Stop all networking of the running node; it goes on working on its own until `online`, or until it starts again.",
    examples="""
    p2pqueue offline
    """,
)
@pass_invocation
def offline_command(invocation: Invocation) -> None:
    """Stops networking."""
    _ask(invocation, "offline", "offline: this device works on its own until `p2pqueue online`")


@click.command(
    "online",
    cls=Command,
    help="Begin the networking of the running node again.",
    examples="""
    p2pqueue online
    """,
)
@pass_invocation
def online_command(invocation: Invocation) -> None:
    """Begins networking."""
    _ask(invocation, "online", "online: looking for the other devices")


def _ask(invocation: Invocation, wanted: str, words: str) -> None:
    from p2pqueue.replica.door.doorbell import DoorbellClient

    check_initialised(invocation.home)
    network: dict[str, Any] = DoorbellClient(invocation.home.socket_path).request(wanted)
    if network.get("trouble"):
        invocation.warn(str(network["trouble"]))
    invocation.result({"schema": 1, "network": network}, lambda: [words])
