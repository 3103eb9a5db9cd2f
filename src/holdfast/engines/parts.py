"""Parts of streams, written beside the log while the step runs, for everybody who follows it.

The step hands its parts to its caller and adds them to a list; more it does not do. One thread, the
`PartsKeeper`, looks at the lists of all steps that stream, many times a second, and writes what is
new beside the logs (see `log.parts`). So a part costs the step no write, and a slow store makes
larger pages, not slower streams. `stream_follow` reads them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import filterfalse
from operator import attrgetter
from weakref import WeakSet

import msgspec
from msgspec import Raw

from holdfast.core.scope import scope_var
from holdfast.errors import HoldfastError
from holdfast.log.log import Log
from holdfast.log.parts import (
    PAGE_BYTES,
    PartsPage,
    StreamAttempt,
    attempt_of,
    drop_pages,
    page_name,
    page_names,
    put_page,
)

EVERY_S = 0.05
"""How often the keeper looks for new parts."""


class PartsWriter:
    """The pages of one attempt. `raws` is the list that the step adds its parts to."""

    def __init__(self, log: Log, path: str, raws: list[bytes], of_text: bool = False) -> None:
        self.log = log
        self.raws = raws
        self._of_text = of_text
        self.has_ended = False
        """Whether the call has ended, and its record has every part."""
        self._path = path
        self._attempt = attempt_of(log.state.calls[path]) or StreamAttempt(0, 0)
        self._page = self._first = self._put = 0

    def put(self) -> None:
        """Write what is new."""
        upto = len(self.raws)
        if upto == self._put:
            return
        self.log.flush()  # so that a follower knows of the attempt
        raws = self.raws[self._first : upto]
        page = PartsPage(
            path=self._path,
            attempt=self._attempt,
            epoch=self.log.lease.epoch,
            first=self._first + 1,
            parts=[Raw(raw) for raw in raws],
            of_text=self._of_text,
        )
        news = self.raws[self._put : upto]
        if self._of_text:  # a secret may come in two pieces
            news = [b'"%b"' % b"".join(raw[1:-1] for raw in self.raws[:upto])]
        for raw in news:
            self.log.redact.must_be_free(raw)
        put_page(self.log.store, self.log.lease.stream, self._page, page)
        self._put = upto
        if sum(map(len, raws)) > PAGE_BYTES:
            self._page, self._first = self._page + 1, upto

    def names(self) -> list[str]:
        """The pages that it wrote."""
        return [page_name(self._attempt, page) for page in range(self._page + 1)] * bool(self._put)


class PartsKeeper:
    """One thread that writes the parts of every step that streams in this process, of one store.

    It runs while there are such steps. A fault in it does not matter to them: the whole is recorded
    at the end.
    """

    def __init__(self) -> None:
        self._writers: list[PartsWriter] = []
        self._swept: WeakSet[Log] = WeakSet()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, log: Log, path: str, raws: list[bytes], of_text: bool = False) -> PartsWriter:
        """Look after the parts of an attempt that begins, until it has ended."""
        writer = PartsWriter(log, path, raws, of_text)
        with self._lock:
            self._writers.append(writer)
            if self._thread is None or not self._thread.is_alive():  # a fork leaves it behind
                self._closing.clear()
                self._thread = threading.Thread(
                    target=self._keep, name="holdfast parts", daemon=True
                )
                self._thread.start()
        return writer

    def close(self) -> None:
        """End the thread; the pages of steps that have ended are dropped first."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _keep(self) -> None:
        while True:
            is_closing = self._closing.wait(EVERY_S)
            with self._lock:
                writers = list(self._writers)
                self._writers = list(filterfalse(attrgetter("has_ended"), writers))
                is_last = is_closing or not self._writers
                if is_last:
                    self._thread, self._writers = None, []
            for writer in writers:
                with suppress(HoldfastError, OSError):
                    self._look_after(writer, writers)
            if is_last:
                return

    def _look_after(self, writer: PartsWriter, others: Sequence[PartsWriter]) -> None:
        log = writer.log
        if writer.has_ended:
            drop_pages(log.store, log.lease.stream, writer.names())
            return
        writer.put()
        if log not in self._swept:
            self._swept.add(log)
            ours = {name for other in others if other.log is log for name in other.names()}
            # Those of attempts that were cut off by a crash, here or elsewhere.
            stale = set(page_names(log.store, log.lease.stream)) - ours
            drop_pages(log.store, log.lease.stream, stale)


@contextmanager
def text_as_it_comes() -> Iterator[Callable[[str], None]]:
    """In a step: a function that takes the pieces of the text which the step is about to return,
    for those who follow it. Elsewhere it takes them for nobody."""
    scope = scope_var.get()
    log = None if scope is None or scope.call is None else scope.run.log
    keeper = None if log is None else log.keeper
    raws: list[bytes] = []
    kept: list[PartsWriter] = []

    def take(piece: str) -> None:
        if keeper is None or scope is None or scope.call is None:
            return
        raws.append(msgspec.json.encode(piece))
        if not kept:
            kept.append(keeper.begin(log, scope.call.path, raws, of_text=True))

    try:
        yield take
    finally:
        for writer in kept:
            writer.has_ended = True
