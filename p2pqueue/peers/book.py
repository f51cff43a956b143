"""Where does a node keep the addresses at which it reached other devices? In a local table that never replicates."""

from __future__ import annotations

from p2pqueue.net.addresses import AddressBook, Row
from p2pqueue.replica.store import Store
from p2pqueue.replica.writer import Writer

_TABLE = """CREATE TABLE IF NOT EXISTS addresses (
    device TEXT NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL, good_at INTEGER NOT NULL,
    PRIMARY KEY (device, host, port)) WITHOUT ROWID"""


async def load(store: Store) -> AddressBook:
    """The addresses as they were kept last."""

    def read(writer: Writer) -> list[Row]:
        writer.connection.execute(_TABLE)
        return writer.connection.execute("SELECT device, host, port, good_at FROM addresses").fetchall()

    return AddressBook(await store.write(read, quiet=True))


def note(writer: Writer, device: str, host: str, port: int) -> None:
    """Keeps one more address at which a device was reached just now."""
    writer.connection.execute(_TABLE)
    writer.connection.execute("INSERT OR REPLACE INTO addresses VALUES (?, ?, ?, ?)", (device, host, port, writer.now))


async def save(store: Store, book: AddressBook) -> None:
    """Keeps the addresses as they are now."""
    rows = book.dump()

    def replace(writer: Writer) -> None:
        writer.connection.execute("DELETE FROM addresses")
        writer.connection.executemany("INSERT INTO addresses (device, host, port, good_at) VALUES (?, ?, ?, ?)", rows)

    await store.write(replace, quiet=True)
