"""News as they come: server-sent events made by looking at the store from time to time.

A reader that comes back says which event it saw last, so that nothing is told twice or left out.
Nothing is kept between two looks but where the reader is; so the number of readers is limited, and
each look runs in a thread, off the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import to_builtins

from holdfast.api.async_forms import away
from holdfast.engines.stream_follow import StreamFollow, StreamPart
from holdfast.errors import HoldfastError, StoreError, TaskNotFound
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import holder_of
from holdfast.stores.listing import page_of_tasks
from holdfast.web.asked import Failing, PageRequest, Site, encoded
from holdfast.web.logs import event_rows, head_of, state_at
from holdfast.web.needs import gathered, row_of
from holdfast.web.shapes import IN_LISTS, plain_value
from holdfast.web.tasks import filters_of, holds

MOST_READERS = 24
_TASK_S, _LIST_S, _INBOX_S, _BEAT_S = 0.25, 1.0, 3.0, 10.0
_REST = 4
"""A reader rests this much longer than its look took, so that a slow store is not kept busy."""
_BATCH, _MOST_ROWS, _MOST_TEXT = 500, 200, 16 * 1024
_OVERLAP = timedelta(seconds=5)
"""How far back a list is looked at again: clocks of several machines differ."""

Data = dict[str, Any]
Look = Callable[[], list[bytes]]


def sent(event: str, data: Any, id: int | str | None = None) -> bytes:
    """One server-sent event.

    >>> sent("events", {"head": 7}, 7)
    b'event: events\\nid: 7\\ndata: {"head":7}\\n\\n'
    """
    numbered = b"" if id is None else f"id: {id}\n".encode()
    return b"event: %b\n%bdata: %b\n\n" % (event.encode(), numbered, encoded(data))


class _Task:
    """One reader of one task."""

    def __init__(self, site: Site, asked: PageRequest) -> None:
        self._site, self._id = site, asked.id
        self._after = int(asked.number("after", 0) or 0)
        head_of(site.hf.store, self._id)
        self._stood: tuple[str, str | None] | None = None
        self._gone = False

    def look(self) -> list[bytes]:
        """The news since the last look."""
        if self._gone:
            return []
        store, id, told = self._site.hf.store, self._id, list[bytes]()
        try:
            head = head_of(store, id)
            holder = holder_of(store, stream_of(id))
            is_new = head > self._after or self._stood is None
            stood = self._stood[0] if self._stood is not None else ""
            status: str = state_at(store, id, None).status if is_new else stood
            if head > self._after:
                rows = event_rows(store, id, self._after, _BATCH)
                if rows:
                    self._after = rows[-1]["seq"]
                more = self._after < head
                data = {"events": rows, "head": head, "status": status, "more": more}
                told.append(sent("events", data, self._after))
            if (status, holder) != self._stood:
                self._stood = (status, holder)
                data = {"status": status, "at_work": holder, "seq": self._after}
                told.append(sent("task", data))
        except TaskNotFound:
            self._gone = True
            told.append(sent("gone", {"id": id}))
        except StoreError as error:
            told.append(sent("problem", {"message": str(error)[:500]}))
        return told


class _InboxCount:
    """How much needs somebody: counted once for all readers, now and then."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._due = 0.0
        self._count: int | None = None
        self._turn = threading.Lock()
        self._is_counting = False

    def newest(self) -> int | None:
        """The count; None until it is known. Readers that come meanwhile get the last one."""
        began = time.monotonic()
        with self._turn:
            is_ours = not self._is_counting and began >= self._due
            self._is_counting = self._is_counting or is_ours
        if is_ours:
            try:
                self._count = gathered(self._site).count
                ended = time.monotonic()
                self._due = ended + max(_INBOX_S, _REST * (ended - began))
            finally:
                self._is_counting = False
        return self._count


class _List:
    """One reader of the list of tasks, and of the inbox's count; or of that alone."""

    def __init__(self, site: Site, asked: PageRequest, inbox: _InboxCount) -> None:
        self._site, self._filters, self._inbox = site, filters_of(asked), inbox
        self._only_inbox = asked.text("only") == "inbox"
        self._text = asked.text("text").casefold()
        self._since = datetime.now(UTC) - _OVERLAP
        self._seen: dict[str, tuple[str, datetime]] = {}
        self._count: int | None = None
        page_of_tasks(site.hf.store, self._filters, 1)  # a wrong filter is told at once

    def look(self) -> list[bytes]:
        """The changes since the last look."""
        told = list[bytes]()
        try:
            if not self._only_inbox and (rows := self._changed()):
                told.append(sent("tasks", {"tasks": rows}))
            count = self._inbox.newest()
            if count is not None and count != self._count:
                self._count = count
                told.append(sent("inbox", {"count": count}))
        except StoreError as error:
            told.append(sent("problem", {"message": str(error)[:500]}))
        return told

    def _changed(self) -> list[Data]:
        now = datetime.now(UTC)
        filters = self._filters | {"updated_after": self._since}
        page = page_of_tasks(self._site.hf.store, filters, _MOST_ROWS)
        found = []
        for record in page.tasks:
            stood = (record.status, record.updated_at)
            if self._seen.get(record.id) != stood and holds(record, self._text):
                found.append(row_of(record))
        self._seen = {each.id: (each.status, each.updated_at) for each in page.tasks}
        self._since = now - _OVERLAP
        return found


def _part_data(part: StreamPart) -> Data:
    """A part as the page is sent it: text as text, anything else as a value."""
    value = part.value
    told: Data = {"number": part.number, "attempt": part.attempt, "begins_anew": part.begins_anew}
    if isinstance(value, str):
        return told | {"text": value[:_MOST_TEXT]}
    if part.begins_anew:
        return told
    return told | {"value": plain_value(to_builtins(value, enc_hook=repr), "", IN_LISTS)}


class Readers:
    """Everybody who follows something."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._inbox = _InboxCount(site)
        self.count: int = 0
        self.closing: asyncio.Event = asyncio.Event()

    async def task(self, asked: PageRequest) -> AsyncIterator[bytes]:
        """Follow a task."""
        self._must_have_room()
        return self._follow((await away(_Task, self._site, asked)).look, _TASK_S)

    async def tasks(self, asked: PageRequest) -> AsyncIterator[bytes]:
        """Follow a list."""
        self._must_have_room()
        return self._follow((await away(_List, self._site, asked, self._inbox)).look, _LIST_S)

    async def parts(self, asked: PageRequest) -> AsyncIterator[bytes]:
        """Follow the parts of a step that streams."""
        self._must_have_room()
        await away(head_of, self._site.hf.store, asked.id)
        after = asked.text("after")
        told = self._site.hf.stream(asked.id, asked.part("path"), after=after or 0, poll_s=_TASK_S)
        return self._streamed(told)

    async def _streamed(self, told: StreamFollow) -> AsyncIterator[bytes]:
        self.count += 1
        coming, closing = aiter(told), asyncio.ensure_future(self.closing.wait())
        ahead = asyncio.ensure_future(anext(coming, None))
        try:
            yield sent("hello", {"now": datetime.now(UTC)})
            while not self.closing.is_set():
                await asyncio.wait([ahead, closing], timeout=_BEAT_S, return_when="FIRST_COMPLETED")
                if not ahead.done():
                    yield b": still here\n\n"
                    continue
                part = ahead.result()
                if part is None:
                    break
                ahead = asyncio.ensure_future(anext(coming, None))
                yield sent("part", _part_data(part), part.id)
            yield sent("end", {"problem": ""})
        except HoldfastError as error:  # it failed, was rewound, or does not stream
            yield sent("end", {"problem": str(error)[:500]})
        finally:
            ahead.cancel()
            closing.cancel()
            self.count -= 1

    def _must_have_room(self) -> None:
        if self.count >= MOST_READERS:
            raise Failing(429, "too_many", f"{MOST_READERS} pages follow already: close one")

    async def _follow(self, look: Look, every_s: float) -> AsyncIterator[bytes]:
        self.count += 1
        loop = asyncio.get_running_loop()
        try:
            yield sent("hello", {"now": datetime.now(UTC)})
            beat = loop.time()
            while not self.closing.is_set():
                began = loop.time()
                for message in await away(look):
                    yield message
                    beat = loop.time()
                rest_s = max(every_s, _REST * (loop.time() - began))
                if loop.time() - beat >= _BEAT_S:
                    yield b": still here\n\n"
                    beat = loop.time()
                try:
                    async with asyncio.timeout(rest_s):
                        await self.closing.wait()
                except TimeoutError:
                    continue
        finally:
            self.count -= 1
