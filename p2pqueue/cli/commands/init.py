"""How does a home come to have a space?"""

from __future__ import annotations

import click

from p2pqueue.cli import output
from p2pqueue.cli.home_shape import home_document, home_facts
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation


@click.command(
    "init",
    cls=Command,
    help="Make this device's key and a new space, in a home that has none.",
    examples="""
    p2pqueue init
    p2pqueue init --space studio --label "big box"
    """,
)
@click.option("--space", "space_name", metavar="NAME", help="A name for the space; only a label.  [default: home]")
@click.option("--label", metavar="L", help="A name for this device.  [default: the host's name]")
@pass_invocation
def init_command(invocation: Invocation, space_name: str | None, label: str | None) -> None:
    """Makes a space."""
    from p2pqueue.identity.keys import create, load
    from p2pqueue.jobs.opening import open_replica

    home = invocation.home
    if home.identity_file.exists() and not home.replica_file.exists() and space_name is None and label is None:
        identity = load(home)  # an earlier `init` was cut short, or the database is gone
        invocation.warn("this home has keys but no database; making an empty one")
    else:
        identity = create(home, space_name=space_name, label=label)
    open_replica(home, identity).close()
    invocation.result(home_document(home, identity), lambda: output.pairs(home_facts(home, identity)))
    if not invocation.json:
        invocation.say("next: `p2pqueue run APP` starts the node, `p2pqueue enqueue TASK` makes a job")
