"""An interrupt (Ctrl-C) in the main thread, at every moment that Python has for it.

It costs the task that was interrupted, and nothing else: no lock stays locked, no transaction
open, nothing acknowledged is lost or written twice. So other threads and processes go on.
"""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pytest

from holdfast.errors import StoreError
from holdfast.log.store_calls import acquire_one, inbox_of, post_to, sync_one, unpost
from holdfast.stores import open_store
from holdfast.stores.port import Facts, Store
from tests.interrupting import interrupted
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401 (fixtures)
from tests.thorough import THOROUGH

LONG_S = 60.0
PATIENCE_S = 60.0
EVERY = {"files": 5, "sqlite": 5, "postgres": 61, "memory": 2}
NOT_OURS = "psycopg_pool"
"""On 3.13 it has loops under a lock; and an interrupt may cost it one of its eight connections."""

LINES = [b'{"n":%d}' % n for n in range(4)]
FACTS = Facts("job", "in_progress", labels={"a": "b"}, created_at=datetime(2031, 5, 4, tzinfo=UTC))


def story(store: Store, stream: str, acknowledged: list[bytes]) -> None:
    """What a task does to its log, all of it."""
    lease = acquire_one(store, stream, "me", LONG_S)
    for seq, line in enumerate(LINES):
        store.append(lease, seq, [line], None if seq % 2 else FACTS)
        sync_one(store, lease)
        acknowledged.append(line)
    store.renew(lease)
    post_to(store, stream, "post", b"{}")
    inbox_of(store, [stream])
    unpost(store, stream, "post")
    store.get_blob(store.put_blob(b"blob of " + stream.encode()))
    list(store.read(stream))
    store.release([lease])


def in_time(work: Callable[[], object], what: str) -> None:
    """Do something in another thread, that must not hang."""
    problems: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), f"{what} hangs"
    if problems:
        raise AssertionError(what) from problems[0]


# An object that an interrupt took from its owner complains when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_at_any_moment_hurts_nobody_else(kind, new_url):  # noqa: F811
    url = new_url(kind)
    ours = open_store(url, sync=False)
    theirs = ours if kind == "memory" else open_store(url, sync=False)
    story(ours, "tasks/first", [])  # what is opened and imported once is
    step = 1 if THOROUGH else EVERY[kind]
    for at in itertools.count(step // 2, step):
        acknowledged: list[bytes] = []
        work = partial(story, ours, f"tasks/{at}", acknowledged)
        if not interrupted(work, at, __file__, NOT_OURS):
            break
        for store, where in ((ours, "beside"), (theirs, "apart")):
            work = partial(story, store, f"tasks/{at}-{where}", [])
            in_time(work, f"another task {where} it, after moment {at}")
        found = list(theirs.read(f"tasks/{at}"))
        assert found == LINES[: len(found)], f"moment {at}"
        assert len(found) >= len(acknowledged), f"moment {at}"
        if kind == "postgres":
            in_time(ours.close, f"closing it after moment {at}")
            ours = open_store(url, sync=False)
    assert at > 50
    in_time(ours.close, "closing it")
    with suppress(StoreError):
        theirs.close()
    gc.collect()  # here, and not in the middle of another test, which would be told of it
