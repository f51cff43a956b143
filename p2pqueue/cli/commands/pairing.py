"""How does a device come into the space of another: one makes a code, the other is told it?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from p2pqueue.cli import output, quantities
from p2pqueue.cli.edge import NOT_FINISHED, Refusal
from p2pqueue.cli.home_shape import home_document, home_facts
from p2pqueue.cli.invocation import Command, Invocation, pass_invocation
from p2pqueue.cli.opening import check_initialised, node_pid
from p2pqueue.cli.output import plain

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from p2pqueue.identity.codes import Code
    from p2pqueue.identity.keys import Identity
    from p2pqueue.peers.joining import Endpoint, Keep

_ROLES = ("member", "worker", "viewer", "admin", "owner")  # a store holds no key of the space; no node runs as one yet
_LONGEST_CODE = 2048  # characters read from stdin
_interfaces_option = click.option(
    "--interface",
    "interfaces",
    metavar="I",
    multiple=True,
    help="The network interface to use; may be repeated.  [default: the ordinary ones]",
)


@click.command(
    "invite",
    cls=Command,
    help="Make a code that lets one device in, and wait until it is in or the code has expired. The running node listens; "
    "without one, this command does. Whoever types a wrong code uses it up.",
    examples="""
    p2pqueue invite
    p2pqueue invite --role worker --ttl 2m
    p2pqueue invite --json
    """,
)
@click.option("--role", type=click.Choice(_ROLES), default="member", show_default=True, help="What the device may do.")
@click.option("--ttl", metavar="D", default="10m", show_default=True, help="How long the code is good.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen, if no node runs.  [default: port 7433, or the next free one]")
@_interfaces_option
@pass_invocation
def invite_command(invocation: Invocation, role: str, ttl: str, listen: str | None, interfaces: tuple[str, ...]) -> None:
    """Lets a device in."""
    check_initialised(invocation.home)
    seconds = quantities.duration(ttl)
    if node_pid(invocation.home) is not None:
        ended = _through_node(invocation, role, seconds, elsewhere=bool(listen or interfaces))
    else:
        ended = asyncio.run(_alone(invocation, role, seconds, listen=listen, interfaces=interfaces))
    if not ended:
        raise Refusal("the code has expired, and no device came in. Make a new one: p2pqueue invite", NOT_FINISHED)


async def _alone(invocation: Invocation, role: str, seconds: float, *, listen: str | None, interfaces: Sequence[str]) -> bool:
    from p2pqueue.config import load_settings
    from p2pqueue.peers import options
    from p2pqueue.peers.inviting import invite

    given = {"listen": listen, "interfaces": tuple(interfaces) or None}
    settings = load_settings(invocation.home, given)
    for words in options.check(settings):
        invocation.warn(plain(words))
    async with aclosing(invite(invocation.home, role=role, ttl=seconds, settings=settings)) as events:
        async for event in events:
            if _tell(invocation, event):
                return True
    return False


def _through_node(invocation: Invocation, role: str, seconds: float, *, elsewhere: bool) -> bool:
    from p2pqueue.errors import NodeNotRunning
    from p2pqueue.replica.door.doorbell import DoorbellClient

    if elsewhere:
        invocation.warn("the running node listens where it was told to; --listen and --interface count without one")
    for event in DoorbellClient(invocation.home.socket_path).stream("invite", role=role, ttl=seconds):
        if _tell(invocation, event):
            return True
        if "expired" in event:
            return False
    raise NodeNotRunning("The node stopped, and the code with it")


def _tell(invocation: Invocation, event: dict[str, Any]) -> bool:
    """Tells one event of an invitation; says whether a device is in. Raises where none will be."""
    if "code" in event:
        _show_code(invocation, event)
    elif "refused" in event:
        invocation.warn(f"{plain(event['refused'])} (failures so far: {event['failures']}); the code is still good")
    elif "failed" in event:
        raise Refusal(f"{event['failed']}. Make a new one: p2pqueue invite")
    elif "joined" in event:
        _show_joined(invocation, event["joined"])
        return True
    return False


def _complete_code(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from p2pqueue.identity.codes import complete

    return [CompletionItem(text) for text in complete(incomplete)]


@click.command(
    "join",
    cls=Command,
    help="Come into the space of the device that made CODE with `p2pqueue invite`, in a home that has no space. Without CODE it is "
    "asked for; - reads it from stdin.",
    examples="""
    p2pqueue join 7-orbit-velvet
    p2pqueue join 7-orbit-velvet --label laptop --peer 192.168.1.20:7433
    echo "$CODE" | p2pqueue join -
    """,
)
@click.argument("code", required=False, shell_complete=_complete_code)
@click.option("--label", metavar="L", help="A name for this device.  [default: the host's name]")
@click.option("--peer", metavar="HOST:PORT", help="Where the inviting device listens.  [default: found by its number on the local network]")
@_interfaces_option
@pass_invocation
def join_command(invocation: Invocation, code: str | None, label: str | None, peer: str | None, interfaces: tuple[str, ...]) -> None:
    """Joins a space."""
    from p2pqueue.identity.keys import check_empty, host_label
    from p2pqueue.peers.joining import settle

    home = invocation.home
    home.ensure()
    check_empty(home)
    name = host_label(label)
    keep = partial(settle, home, label=name)
    identity = come_in(invocation, code, label=name, peer=peer, interfaces=interfaces, keep=keep)
    inviter = identity.inviter or ("", "")
    document = {**home_document(home, identity), "inviter": {"id": inviter[0], "label": inviter[1]}}
    facts = [*home_facts(home, identity, more=f", {identity.role}"), ("Invited by", f"{plain(inviter[1])} ({inviter[0][:8]})")]
    invocation.result(document, lambda: output.pairs(facts))
    if not invocation.json:
        invocation.say("next: `p2pqueue run APP` starts the node, which links to the others")


def come_in(
    invocation: Invocation, code: str | None, *, label: str, peer: str | None, interfaces: Sequence[str],
    keep: Keep,
) -> Identity:  # fmt: skip
    """Pairs this device by a code; gives what `keep` made of it."""
    from p2pqueue.config import load_settings
    from p2pqueue.peers import joining, options

    parsed, named = _read_code(code)
    addresses = _addresses([peer] if peer else named)
    if not addresses:
        invocation.say(f"looking for the device that shows the number {parsed.nameplate} …")
    joiner = joining.new_joiner(parsed, label)
    wanted = tuple(interfaces) or load_settings(invocation.home).interfaces
    for words in options.check_interfaces(wanted):
        invocation.warn(plain(words))
    return asyncio.run(joining.join(joiner, parsed, keep=keep, addresses=addresses, interfaces=wanted))


def _read_code(typed: str | None) -> tuple[Code, tuple[str, ...]]:
    from p2pqueue.identity.codes import parse_link

    if typed is None:
        if not sys.stdin.isatty():
            raise click.UsageError("name the CODE, or - to read it from stdin.")
        typed = click.prompt("Code", err=True)
    elif typed == "-":
        typed = sys.stdin.readline(_LONGEST_CODE)
    return parse_link(str(typed))


def _addresses(typed: Sequence[str]) -> list[Endpoint]:
    from p2pqueue.net.addresses import DEFAULT_PORT, endpoint

    try:
        return [endpoint(each, default_port=DEFAULT_PORT) for each in typed]
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def _show_code(invocation: Invocation, event: dict[str, Any]) -> None:
    addresses = [str(each) for each in event["addresses"]]
    if invocation.json:
        expires = quantities.rfc3339(event["expires_at"])
        output.document({"schema": 1, "code": event["code"], "role": event["role"], "expires_at": expires, "addresses": addresses})
        return
    if output.on_terminal():
        _show_qr(event["code"], addresses)
    output.line(event["code"])
    sys.stdout.flush()
    invocation.say(f"type it on the other device before {quantities.local_time(event['expires_at'])}: p2pqueue join {event['code']}")
    if addresses:
        invocation.say(f"if it isn't found there, add --peer {' or '.join(addresses[:3])}")


def _show_qr(code: str, addresses: Sequence[str]) -> None:
    import segno

    from p2pqueue.identity import codes

    picture = segno.make(codes.link(codes.parse(code), addresses[:4]), error="l", micro=False)
    picture.terminal(out=sys.stdout, border=2, compact=True)


def _show_joined(invocation: Invocation, joined: dict[str, Any]) -> None:
    if invocation.json:
        output.document({"schema": 1, "joined": joined})
        return
    invocation.say(f"{plain(joined['label'])} ({joined['id'][:8]}) is in, as {joined['role']}")
