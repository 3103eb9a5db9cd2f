"""The contract of a store by theme: a class of tests each, which `StoreContract` joins.

Here is what they share: the lines that they write, and leases that run out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.port import Lease, Store

# So that a failing test of a store shows what it found, as tests in a test module do.
_THEMES = ("appending", "blobs", "facts", "leases")
pytest.register_assert_rewrite(*(f"{__name__}.{theme}" for theme in _THEMES))


STREAM = "tasks/t-1"
LONG_S = 60.0
SHORT_S = 0.01
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)

HOSTILE_NAMES = (
    "a",
    "A",
    "a/b",
    "../a",
    "a b",
    "a%",
    "a_",
    "\u00e9",
    "e\u0301",
    "con",
    "x" * 255,
    "\U00020000" * 255,
    ".",
    "..",
    "~",
    "%41",
    "'; drop table streams; --",
    '"; drop schema holdfast cascade; --',
    "%s %(stream)s %% :stream ? $1 {0}",
    "back\\slash \\' \\x00",
    "line\nbreak\ttab",
)


def lines_of(stream: str, count: int, width: int = 0) -> list[bytes]:
    """Lines like those of a log: each says which it is, and the first whose."""
    event = {"type": "noted", "id": stream.split("/", 1)[1]}
    return [
        msgspec.json.encode({**event, "seq": seq, "text": "x" * width})
        for seq in range(1, count + 1)
    ]


def begun(store: Store, stream: str = STREAM, count: int = 1) -> Lease:
    """A stream of a few lines, synced and held."""
    lease = acquire_one(store, stream, "me", LONG_S)
    store.append(lease, 0, lines_of(stream, count))
    sync_one(store, lease)
    return lease


def hung(store: Store, stream: str = STREAM, count: int = 1) -> Lease:
    """The lease of a holder that was silent for too long, with a few lines that it synced."""
    lease = acquire_one(store, stream, "frozen", SHORT_S)
    if count:
        store.append(lease, 0, lines_of(stream, count))
        sync_one(store, lease)
    run_out()
    return lease


def run_out() -> None:
    """Wait until a lease of `SHORT_S` may be taken over."""
    time.sleep(5 * SHORT_S)


def at_once(works: Iterable[Callable[[], object]]) -> None:
    """Do several things in threads, and pass on what one of them raises."""
    trouble: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
