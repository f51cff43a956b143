"""How does a device get another key?"""

from __future__ import annotations

import logging

import click

from p2pqueue.cli import output
from p2pqueue.cli.group import Group
from p2pqueue.cli.invocation import Invocation, pass_invocation
from p2pqueue.cli.output import plain


@click.group("identity", cls=Group, help="Change who this device is.")
def identity_command() -> None:
    """Groups the commands about this device's key."""


@identity_command.command(
    "renew",
    help="Make this device a new one, with a key of its own: on a disk that was cloned, where two devices have one key. "
    "The node must not run. A device that holds no root key needs a CODE, made by `p2pqueue invite` on another one.",
    examples="""
    p2pqueue identity renew
    p2pqueue identity renew 7-orbit-velvet
    """,
)
@click.argument("code", required=False)
@click.option("--peer", metavar="HOST:PORT", help="Where the device listens that made the code.")
@click.option("--interface", "interfaces", metavar="I", multiple=True, help="The network interface to look on; may be repeated.")
@pass_invocation
def renew_command(invocation: Invocation, code: str | None, peer: str | None, interfaces: tuple[str, ...]) -> None:
    """Renews the key of this device."""
    from p2pqueue.cli.opening import check_initialised
    from p2pqueue.identity.keys import load
    from p2pqueue.peers.renewal import renew

    home = invocation.home
    check_initialised(home)
    logging.getLogger("p2pqueue.replica").setLevel(logging.ERROR)  # that its database goes on under a new author is meant here
    old = load(home)
    if code is None:
        new = renew(home)
    else:
        from p2pqueue.cli.commands.pairing import come_in
        from p2pqueue.peers.renewal import check_stopped

        check_stopped(home)
        new = come_in(invocation, code, label=old.label, peer=peer, interfaces=interfaces, keep=lambda space, /, *, at: renew(home, space))
    document = {"schema": 1, "device": new.device_id, "was": old.device_id, "label": new.label, "role": new.role}
    invocation.result(
        document,
        lambda: output.pairs(
            [("Device", f"{plain(new.label)} ({new.device_id[:8]})"), ("Was", f"{old.device_id[:8]}, which is another device from now on")]
        ),
    )
