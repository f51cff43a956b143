"""Can this device reach others, and be reached? The part of `doctor` that tries the network; all of it works offline.

What the running node knows is asked of it; everything else is tried, with sockets of this command's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from p2pqueue.cli import quantities
from p2pqueue.cli.commands.finding import Finding

if TYPE_CHECKING:
    from p2pqueue.net.interfaces import Interface
    from p2pqueue.settings import Settings

MOST_INTERFACES: Final = 8  # that are tried: each takes a second where it is deaf
MOST_PEERS: Final = 8  # that are tried
CLOCKS_APART: Final = 5.0  # seconds from which times that people compare look wrong
ORIGIN_WAIT: Final = 5.0  # seconds
_ALLOW: Final = "allow it in the firewall of this machine"


def network(settings: Settings, node: Mapping[str, Any] | None) -> Iterator[Finding]:
    """What was found; `node` is what the running node tells of its networking, None where none runs."""
    from p2pqueue.net.interfaces import choose, current

    if not settings.network and node is None:
        yield Finding("network", "ok", "switched off by the setting `network`")
        return
    if node is not None and node.get("listening") and node.get("trouble"):  # it has met its twin
        words, _, mend = str(node["trouble"]).partition("; ")
        yield Finding("key", "wrong", words, mend)
    there = current()
    chosen = choose(there, settings.interfaces)
    yield _interfaces(settings, chosen, there)
    yield _port(settings, node, chosen)
    yield from _datagrams(chosen)
    if settings.discovery:
        yield from _multicast(chosen)
    else:
        yield Finding("mdns", "ok", "switched off by the setting `discovery`; other devices are found by known addresses and `peers`")
    yield from _peers(settings)
    if settings.origin and "origin" in settings.lanes:
        yield _origin(settings)
    yield from _clocks((node or {}).get("peers", ()))


def _interfaces(settings: Settings, chosen: tuple[Interface, ...], there: tuple[Interface, ...]) -> Finding:
    if chosen:
        shown = (f"{each.name} ({', '.join(str(address.ip) for address in each.addresses)})" for each in chosen)
        return Finding("interfaces", "ok", ", ".join(shown))
    names = ", ".join(each.name for each in there if each.up and each.addresses) or "none"
    if settings.interfaces:
        words = f"none of {', '.join(settings.interfaces)} is up; there are {names}"
        return Finding("interfaces", "warning", words, "plug it in, or change the setting `interfaces`")
    words = "no network interface is up that leads to other devices"
    return Finding("interfaces", "warning", words, f"connect to a network; or choose one of {names} with the setting `interfaces`")


def _port(settings: Settings, node: Mapping[str, Any] | None, chosen: tuple[Interface, ...]) -> Finding:
    listening = (node or {}).get("listening")
    if listening:
        return _own_port(listening, chosen)
    if node is None:
        return _free_port(settings)
    if node.get("trouble"):
        return Finding("port", "wrong", str(node["trouble"]), "choose another with the setting `listen`, and start the node again")
    if node.get("wanted"):
        return Finding("port", "ok", "the node listens once another device is known; `p2pqueue invite` lets one in")
    return Finding("port", "warning", "the node is offline", "`p2pqueue online` begins its networking again")


def _own_port(listening: Mapping[str, Any], chosen: tuple[Interface, ...]) -> Finding:
    from p2pqueue.net import trying

    port = int(listening["port"])
    hosts = [str(listening["host"])] if listening.get("host") else [str(each.addresses[0].ip) for each in chosen]
    for host in hosts or ["127.0.0.1"]:
        try:
            trying.connect(host, port)
        except OSError as error:
            words = f"the node listens on port {port}, and {host}:{port} does not answer ({error.strerror or error})"
            return Finding("port", "wrong", words, f"TCP to port {port} is blocked: {_ALLOW}")
    return Finding("port", "ok", f"{port}, where this home's node listens and answers")


def _free_port(settings: Settings) -> Finding:
    from p2pqueue.errors import P2PQueueError
    from p2pqueue.net.addresses import DEFAULT_PORT
    from p2pqueue.net.listener import bind

    try:
        sockets = bind(settings.listen or None)
    except P2PQueueError as error:
        return Finding("port", "wrong", str(error), "end the program that holds it, or change the setting `listen`")
    port = sockets[0].getsockname()[1]
    for each in sockets:
        each.close()
    if settings.listen or port == DEFAULT_PORT:
        return Finding("port", "ok", f"{settings.listen or port} is free for a node")
    words = f"{DEFAULT_PORT} is taken by another program; a node would take {port}"
    return Finding("port", "warning", words, "nothing need be done, unless a firewall lets only one port through: name it with `listen`")


def _datagrams(chosen: tuple[Interface, ...]) -> Iterator[Finding]:
    from p2pqueue.net import trying

    passed = []
    hosts = [("loopback", "127.0.0.1")] + [(each.name, str(each.addresses[0].ip)) for each in chosen if each.kind != "loopback"]
    for name, host in hosts[: MOST_INTERFACES + 1]:
        try:
            trying.pass_datagram(host)
        except OSError as error:
            words = f"no UDP on {name} ({host}): {error.strerror or error}"
            yield Finding("udp", "warning", words, f"{_ALLOW}; without it files come by HTTP, and devices are found by `peers` alone")
        else:
            passed.append(name)
    if passed:
        yield Finding("udp", "ok", f"datagrams pass on {', '.join(passed)}")


def _multicast(chosen: tuple[Interface, ...]) -> Iterator[Finding]:
    from p2pqueue.net import trying

    for each in chosen[:MOST_INTERFACES]:
        try:
            others = trying.ask_around(each)
        except OSError as error:
            words = f"{each.name}: multicast can't be sent and heard ({error.strerror or error})"
            mend = f"UDP port {trying.MDNS_PORT} is blocked or held by another program: {_ALLOW}; or name other devices with `peers`"
            yield Finding("mdns", "warning", words, mend)
        else:
            told = f"{quantities.counted(others, 'other host')} answered" if others else "no other host answers"
            yield Finding("mdns", "ok", f"{each.name}: multicast is sent and heard; {told}")


def _peers(settings: Settings) -> Iterator[Finding]:
    from p2pqueue.net import trying
    from p2pqueue.net.addresses import DEFAULT_PORT, endpoint

    answering = []
    for peer in settings.peers[:MOST_PEERS]:
        try:
            trying.connect(*endpoint(peer, default_port=DEFAULT_PORT))
        except OSError as error:
            words = f"{peer} doesn't answer ({error.strerror or error})"
            mend = "see whether a node runs there and its firewall lets TCP in; or change the setting `peers`"
            yield Finding("peers", "warning", words, mend)
        else:
            answering.append(peer)
    if answering:
        yield Finding("peers", "ok", f"{', '.join(answering)}: somebody listens")


def _origin(settings: Settings) -> Finding:
    import asyncio
    import re

    from p2pqueue.payload.fetching.source import SourceFailed
    from p2pqueue.payload.origins.access import check_origin, open_origin, shown_origin
    from p2pqueue.payload.origins.bucket import is_bucket

    check_origin(settings.origin)
    shown = shown_origin(settings.origin)

    async def ask() -> None:
        import aiohttp

        async with aiohttp.ClientSession() as session, asyncio.timeout(ORIGIN_WAIT):
            origin = open_origin(settings.origin, lambda: session)
            await (origin.list_mail("0" * 32) if is_bucket(settings.origin) else origin.has(bytes(32)))

    try:
        asyncio.run(ask())
    except SourceFailed as error:
        if " answers 401" in str(error):
            return Finding("origin", "wrong", str(error), "set `origin` to the URL with the token, as `p2pqueue origin` prints it there")
        if re.search("refuses these credentials|has no credentials|is not there", str(error)):
            return Finding("origin", "wrong", str(error), "set `origin` to a bucket that is there, and its keys in the environment")
        if is_bucket(settings.origin):
            return Finding("origin", "warning", str(error), "see whether this device is connected, and the endpoint in the environment")
        return Finding("origin", "warning", str(error), "start `p2pqueue origin` there, or see whether this device is connected")
    except TimeoutError:
        words = f"the origin {shown} does not answer in {ORIGIN_WAIT:.0f} seconds"
        return Finding("origin", "warning", words, "see whether it runs, and whether this device is connected")
    return Finding("origin", "ok", f"{shown} answers and takes the {'token' if shown.startswith('http') else 'keys'}")


def _clocks(peers: Any) -> Iterator[Finding]:
    """How far the clocks of linked devices are off."""
    known = [(each["label"] or each["device"][:8], each["clock_offset"]) for each in peers if each.get("clock_offset") is not None]
    if not known:
        return
    apart = [(label, offset) for label, offset in known if abs(offset) > CLOCKS_APART]
    if not apart:
        widest = max(abs(offset) for _, offset in known)
        yield Finding("clocks", "ok", f"{quantities.counted(len(known), 'linked device')}, at most {widest:.1f} s apart")
        return
    told = ", ".join(f"{label} is {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}" for label, offset in apart)
    whose = "this device's clock" if len(apart) == len(known) > 1 else "the clock that is wrong"
    yield Finding("clocks", "warning", told, f"set {whose}, or start its time service: what was written apart is ordered by it")
