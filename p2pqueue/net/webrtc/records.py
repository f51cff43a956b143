"""How are many packets encrypted and decrypted without pyOpenSSL's work around each of them?

DTLS stays OpenSSL's: its functions are called on the connection that pyOpenSSL made and shook hands with, with
buffers that are kept. Several packets are sealed into one block, and several records opened in one go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from OpenSSL import SSL
from OpenSSL._util import ffi, lib

VERSION = "DTLSv1.2"  # whose records say in clear what they are and how long
APPLICATION_DATA = 23
_NEEDED = ("SSL_write", "SSL_read", "BIO_read", "BIO_write", "ERR_clear_error")  # of OpenSSL, as cryptography offers it
_NEEDED_OF_CONNECTION = ("_ssl", "_into_ssl", "_from_ssl")

_BLOCK = 128 * 1024  # bytes: more than the records of one burst
_LARGEST = 16 * 1024  # bytes of a packet
_AT_ONCE = 15_000  # bytes of records that OpenSSL takes for one datagram
_HEAD = 13


def lacking(connection: SSL.Connection) -> list[str]:
    """What would have to be there, and isn't."""
    names = [name for name in _NEEDED if not hasattr(lib, name)]
    return names + [name for name in _NEEDED_OF_CONNECTION if not hasattr(connection, name)]


class Records:
    """Seals and opens application data on a connection that is established."""

    def __init__(self, connection: SSL.Connection) -> None:
        self._kept = connection  # the pointers live as long as it does
        self._ssl, self._into, self._out = (getattr(connection, name) for name in _NEEDED_OF_CONNECTION)
        self._sealed = ffi.new("char[]", _BLOCK)
        self._block = memoryview(ffi.buffer(self._sealed, _BLOCK)).cast("B")
        self._opened = ffi.new("char[]", _LARGEST)
        self._plain = ffi.buffer(self._opened, _LARGEST)
        cipher = connection.get_cipher_name() or ""
        self._even = "GCM" in cipher or "CHACHA20" in cipher  # a record is longer than its packet by always the same

    def seal(self, packets: Sequence[bytes]) -> tuple[memoryview, list[int]]:
        """A block with a record for each packet, `TOGETHER` at most, and their lengths. The next call overwrites it."""
        write, ssl = lib.SSL_write, self._ssl
        for packet in packets:
            if write(ssl, packet, len(packet)) <= 0:
                lib.ERR_clear_error()
                raise ConnectionError("a packet can't be encrypted")
        return self.pending(packets)

    def pending(self, packets: Sequence[bytes] = ()) -> tuple[memoryview, list[int]]:
        """The records that OpenSSL has to be sent: those of `packets`, or answers of its own."""
        size = lib.BIO_read(self._out, self._sealed, _BLOCK)
        return (self._block[:size], self._lengths(packets, size)) if size > 0 else (self._block[:0], [])

    def open(self, records: Sequence[bytes]) -> list[bytes]:
        """The packets in these records; one that can't be opened is left out."""
        packets: list[bytes] = []
        read, ssl, opened, plain = lib.SSL_read, self._ssl, self._opened, self._plain
        for block in _blocks(records):
            lib.BIO_write(self._into, block, len(block))
            while (size := read(ssl, opened, _LARGEST)) > 0:
                packets.append(plain[:size])
            lib.ERR_clear_error()
        return packets

    def _lengths(self, packets: Sequence[bytes], size: int) -> list[int]:
        block = self._block
        if self._even and packets:
            more = _HEAD + (block[_HEAD - 2] << 8 | block[_HEAD - 1]) - len(packets[0])
            lengths = [len(packet) + more for packet in packets]
            if sum(lengths) == size:
                return lengths
        lengths, at = [], 0
        while at + _HEAD <= size:
            length = _HEAD + (block[at + 11] << 8 | block[at + 12])
            lengths.append(length)
            at += length
        return lengths


def _blocks(records: Sequence[bytes]) -> Iterator[bytes]:
    """The records, several in a row as if they had come in one datagram; whatever is no whole record comes alone."""
    together: list[bytes] = []
    size = 0
    for record in records:
        length = len(record)
        if length < _HEAD or length != _HEAD + (record[11] << 8 | record[12]):
            yield record
            continue
        if size + length > _AT_ONCE and together:
            yield b"".join(together)
            together, size = [], 0
        together.append(record)
        size += length
    if together:
        yield b"".join(together) if len(together) > 1 else together[0]
