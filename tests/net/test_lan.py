"""The LAN that other tests stand on does what it says, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.net.lan import PREFIX, Host, Lan, ip

pytestmark = pytest.mark.root

ECHO = """
import select, socket, sys
socks = [socket.socket(socket.AF_INET, kind) for kind in (socket.SOCK_DGRAM, socket.SOCK_DGRAM, socket.SOCK_STREAM)]
for sock, port in zip(socks, (5353, 9000, 9000)):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", port if port != 5353 or sys.argv[1] == "mdns" else 0))
socks[2].listen()
print(flush=True)
while True:
    for sock in select.select(socks, [], [])[0]:
        if sock is socks[2]:
            connection, _ = sock.accept()
            connection.sendall(connection.recv(10)); connection.close()
        else:
            data, sender = sock.recvfrom(9000)
            sock.sendto(data, sender)
"""
ASK = """
import socket, sys
kind, host, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
sock.settimeout(float(sys.argv[5]))
try:
    sock.bind(("", 0 if port != 5353 else 5353))
    sock.connect((host, port)); sock.send(b"x" * size); answer = sock.recv(9000)
except OSError:
    answer = b""
sys.exit(0 if answer else 1)
"""


def serve(host: Host, ports: str = "others") -> None:
    process = host.start(sys.executable, "-c", ECHO, ports, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()


def answers(asker: Host, asked: Host, kind: str = "udp", *, port: int = 9000, size: int = 10) -> bool:
    """Says whether a packet and its answer pass; one that should is waited for, since a first one meets a cold cache."""
    return asker.run(sys.executable, "-c", ASK, kind, asked.address, str(port), str(size), "1.0", check=False).returncode == 0


@pytest.fixture
def pair(lan: Lan) -> tuple[Host, Host]:
    h1, h2 = lan.add("h1"), lan.add("h2")
    serve(h1)
    serve(h2, "mdns")
    assert answers(h1, h2)
    assert answers(h2, h1)
    return h1, h2


@pytest.mark.parametrize("silent", [False, True], ids=["with its carrier", "silently"])
def test_a_cut_host_hears_nothing_until_it_is_mended(pair: tuple[Host, Host], silent: bool) -> None:
    h1, h2 = pair
    h2.cut(silent=silent)
    assert not answers(h1, h2)
    assert ("NO-CARRIER" in h2.ip("link", "show", "eth0")) is not silent
    h2.mend()
    assert answers(h1, h2)


@pytest.mark.parametrize("way", ["to", "from", "both"])
def test_blocked_udp_spares_mdns_and_tcp(pair: tuple[Host, Host], way: str) -> None:
    h1, h2 = pair
    h2.block_udp(way)  # type: ignore[arg-type]
    assert not answers(h1, h2)
    assert not answers(h2, h1)
    assert answers(h1, h2, port=5353)
    assert answers(h1, h2, "tcp")
    h2.unblock()
    assert answers(h1, h2)


def test_a_narrow_path_eats_large_packets_alone(pair: tuple[Host, Host]) -> None:
    h1, h2 = pair
    h2.narrow(1200)
    assert answers(h1, h2, size=1100)
    assert not answers(h1, h2, size=1300)
    h2.narrow(None)
    assert answers(h1, h2, size=1300)


def test_a_host_answers_at_its_new_address_alone(pair: tuple[Host, Host]) -> None:
    h1, h2 = pair
    h2.readdress("10.77.0.9/24")
    assert h2.address == "10.77.0.9"
    assert answers(h1, h2)
    h2.address = "10.77.0.2"
    assert not answers(h1, h2)


def test_a_card_can_be_taken_out_and_put_in_again(pair: tuple[Host, Host]) -> None:
    h1, h2 = pair
    h2.unplug()
    assert not answers(h1, h2)
    h2.plug("10.77.0.2/24")
    assert answers(h1, h2)


def test_nothing_stays_behind(lan: Lan) -> None:
    with Lan() as other:
        host = other.add("h1")
        child = host.start("sh", "-c", f"{sys.executable} -c 'import time; time.sleep(600)' & wait")
        assert host.namespace in ip("netns", "list")
    assert child.poll() is not None
    assert other.name not in ip("netns", "list")
    assert lan.name in ip("netns", "list")


def test_what_a_killed_run_left_is_swept_away(lan: Lan) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = f"{PREFIX}-{gone.pid}-1"
    ip("netns", "add", left)
    with Lan():
        assert left not in ip("netns", "list")
    assert f"{PREFIX}-{os.getpid()}" in ip("netns", "list")
