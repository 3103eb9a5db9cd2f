"""Following a step that streams, from any process: its parts as they come, and the recorded whole.

A follower reads the log and the pages beside it (see `log.parts`). The log says when an attempt
begins and when the call has ended; the pages have the parts meanwhile. At the end the follower
compares the parts it has told with the record. So it ends with exactly the recorded whole, whatever
happened to writers and pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from msgspec import Raw, Struct

from holdfast.core.decoding import Illegible, damage_in, decode
from holdfast.core.events import Rewound
from holdfast.core.journal import step_failed
from holdfast.core.state import Call
from holdfast.engines.follow import Following
from holdfast.errors import BadInput, HoldfastError, StreamBroken
from holdfast.log.messages import Message
from holdfast.log.parts import PartsPage, StreamAttempt, attempt_of, read_pages
from holdfast.log.reading import Tail, stream_of, value_in
from holdfast.log.states import load_sound, sum_at
from holdfast.stores.port import Store

_PAGES_AT_ONCE = 8


class StreamPart(Struct, frozen=True):
    """One part of a stream, as a follower gets it.

    `number` counts the parts of an attempt from 1. `id` names the part for a reader that comes
    back: `hf.stream(…, after=id)` goes on after it. A part of number 0 says that the step began
    anew, so that what came before no longer counts.

    >>> from collections.abc import Iterator
    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def spell(word: str) -> Iterator[str]:
    ...     yield from word
    >>> @task
    ... def spelling(word: str) -> str:
    ...     return "-".join(spell(word))
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(spelling, "eel", id="eel-1")
    ...     e, ee, eel = hf.stream("eel-1", "spell")
    ...     eel, [part.value for part in hf.stream("eel-1", "spell", after=e.id)]
    (StreamPart(number=3, value='l', attempt=1, id='3-1-3'), ['e', 'l'])
    """

    number: int
    value: Any
    attempt: int
    id: str

    @property
    def begins_anew(self) -> bool:
        """Whether it is no part, and says that the step began anew."""
        return self.number == 0


_ID = re.compile(r"([0-9]{1,18})-([0-9]{1,9})-([0-9]{1,18})(?:-([0-9]{1,18}))?")


class _Reply(Struct, frozen=True):
    """The result of the step of a model, as far as it matters here."""

    message: Message


class StreamFollow(Following[StreamPart]):
    """The parts of a step that streams, as they come, until it has ended.

    Read it with `for`, or on an event loop with `async for`.
    """

    def __init__(
        self, store: Store, id: str, call: str | int, after: str | int = 0, poll_s: float = 0.1
    ) -> None:
        super().__init__(store, poll_s)
        self._id, self._stream = id, stream_of(id)
        self._asked = str(call)
        self._tail: Tail | None = None
        self._path = ""
        self._record: Call | None = None
        self._whole: list[Raw] | None = None
        """The content of the call's record, once that has ended."""
        self._text: str | None = None
        """The recorded text, of a step that asked a model."""
        self._has_ended = False
        self._attempt, self._number, self._length = _place(after)
        """Up to where its reader has the stream; of any attempt, if none is named. Of a text also
        how many characters these are, if that is known."""
        self._told = sha256()
        """Of the parts that it has seen of that attempt, from the first on."""
        self._seen = 0
        self._heard = ""
        """The text of these parts, if they are of one."""
        self._page = 0
        self._epoch = 0

    # Looking at the log

    def _begin(self) -> Tail:
        """Begin with the newest state, by the nearest waypoint. The calls from before a checkpoint
        are not in it: to find one of them, the log is read from its start."""
        state = load_sound(self._store, self._id)
        tail = Tail(self._store, self._id)
        self._path = self._named_in(state.calls)
        if self._path or not state.checkpoints:
            tail.begin(state, sum_at(self._store, self._id, state.seq).encode())
        return tail

    def _named_in(self, calls: Mapping[str, Call]) -> str:
        """The path of the newest call that is asked for."""
        if self._asked in calls:
            return self._asked
        if not self._asked.isidentifier():
            return ""
        return next((path for path in reversed(list(calls)) if self._is_asked(calls[path])), "")

    def _is_asked(self, call: Call) -> bool:
        return self._asked in (call.path, call.name)

    def _read_on(self) -> None:
        is_first = self._tail is None
        if self._tail is None:
            self._tail = self._begin()
            self._look(self._tail, self._path)
        has_path = bool(self._path)
        for _, event in self._tail.read():
            record, path = self._record, getattr(event, "path", "")
            if isinstance(event, Rewound) and record is not None and record.seq > event.to:
                self._record = self._whole = self._text = None
            call = self._tail.state.calls.get(path)
            if not has_path and call is not None and self._is_asked(call):
                self._path, has_path = path, not is_first  # of those in the past, the newest
            self._look(self._tail, self._path)

    def _look(self, tail: Tail, path: str) -> None:
        """Take notice of how the call stands."""
        call = tail.state.calls.get(path)
        if call is None or call is self._record:
            return
        self._record, self._whole, self._text = call, None, None
        if call.status in ("completed", "failed"):
            # Now: a later event may drop what the value refers to.
            value = call.result if call.status == "completed" else call.parts
            self._whole = self._items(tail, call, value)

    def _items(self, tail: Tail, call: Call, value: Any) -> list[Raw]:
        if not isinstance(value, Raw):
            return []
        data = value_in(self._store, tail.state, value)
        if data.startswith(b"{"):
            with suppress(Illegible):
                self._text = decode(data, _Reply).message.text
                return []
        if not data.startswith(b"["):
            raise BadInput(
                f"task {self._id!r}: step {call.path}, {call.name}, does not stream. Its result "
                f"is in hf.task({self._id!r}).outputs"
            )
        with damage_in(self._stream):
            return decode(data, list[Raw])

    # Telling of parts

    def _news(self) -> Iterator[StreamPart]:
        self._read_on()
        record = self._record
        if record is None:
            return
        attempt = attempt_of(record)
        if attempt is not None and attempt != self._attempt:
            yield from self._begun(record, attempt)
        if self._text is not None:
            yield from self._rest_of_text(record, self._text)
            self._has_ended = True
        elif self._whole is not None:
            yield from self._rest(record, self._whole)
            self._has_ended = True
        elif attempt is not None and record.status == "running":
            yield from self._from_pages(record, attempt)

    def _is_over(self) -> bool:
        if self._has_ended:
            if self._record is not None and self._record.status == "failed":
                raise step_failed(self._record)
            return True
        if self._tail is not None and self._tail.finished:
            raise self._broken(self._tail.state.status)
        return False

    def _broken(self, status: str) -> HoldfastError:
        what = f"task {self._id!r} is {status}, and"
        if self._record is None:
            return BadInput(f"{what} never made the call {self._asked!a:.60}")
        return StreamBroken(
            f"{what} its step {self._path}, {self._record.name}, did not come to its end"
        )

    def _begun(self, record: Call, attempt: StreamAttempt) -> Iterator[StreamPart]:
        """Take notice of an attempt. A reader that has parts of another one is told."""
        had, of = self._number, self._attempt
        self._attempt, self._epoch = attempt, 0
        self._forget()
        if of is not None:
            self._number = 0
            if had:
                yield self._anew(record, attempt)

    def _forget(self) -> None:
        """Look at the parts from the first on."""
        self._told, self._seen, self._heard, self._page = sha256(), 0, "", 0

    def _anew(self, record: Call, attempt: StreamAttempt) -> StreamPart:
        self._number, self._length = 0, None
        return StreamPart(0, None, attempt.number, f"{attempt}-0")

    def _from_pages(self, record: Call, attempt: StreamAttempt) -> Iterator[StreamPart]:
        while True:
            wanted = range(self._page, self._page + _PAGES_AT_ONCE)
            pages = list(read_pages(self._store, self._stream, self._path, attempt, wanted))
            for page in pages:
                if self._epoch not in (0, page.epoch):  # another writer, of the same attempt
                    self._forget()
                    self._epoch = page.epoch
                    if self._number:
                        yield self._anew(record, attempt)
                    return
                self._epoch = page.epoch
                yield from self._tell(attempt, page, self._seen + 1 - page.first)
            self._page += max(len(pages) - 1, 0)
            if len(pages) < _PAGES_AT_ONCE:
                return

    def _tell(self, attempt: StreamAttempt, page: PartsPage, begin: int) -> Iterator[StreamPart]:
        """The parts after those that were seen; of them, those that the reader does not have."""
        for part in page.parts[begin:]:
            self._seen += 1
            self._told.update(b"%d:%b" % (len(part), part))
            if page.of_text:
                with damage_in(self._stream):
                    self._heard += decode(part, str)
            if self._seen > self._number:
                self._number = self._seen
                self._length = len(self._heard) if page.of_text else None
                yield self._part(attempt, self._seen, part)

    def _part(self, attempt: StreamAttempt, number: int, part: Raw) -> StreamPart:
        with damage_in(self._stream):
            value = decode(part, object)
        return StreamPart(number, value, attempt.number, self._id_of(attempt, number))

    def _id_of(self, attempt: StreamAttempt, number: int) -> str:
        length = "" if self._length is None or not number else f"-{self._length}"
        return f"{attempt}-{number}{length}"

    def _rest(self, record: Call, whole: list[Raw]) -> Iterator[StreamPart]:
        """The part of the recorded whole that the reader does not have; all of it, if what the
        reader has is something else."""
        attempt = attempt_of(record) or StreamAttempt(record.seq, 1)
        same = sha256()
        for part in whole[: self._seen]:
            same.update(b"%d:%b" % (len(part), part))
        is_same = len(whole) >= max(self._seen, self._number)
        if not is_same or same.digest() != self._told.digest():
            yield self._anew(record, attempt)
        for number, part in enumerate(whole[self._number :], self._number + 1):
            yield self._part(attempt, number, part)
        self._number = len(whole)

    def _rest_of_text(self, record: Call, text: str) -> Iterator[StreamPart]:
        """The part of the recorded text that the reader does not have; all of it, if what the
        reader has is something else."""
        attempt = attempt_of(record) or StreamAttempt(record.seq, 1)
        has = self._length if self._number else 0
        if has is None or has > len(text) or not text.startswith(self._heard):
            yield self._anew(record, attempt)
            has = 0
        if has < len(text):
            self._number, self._length = self._number + 1, len(text)
            id = self._id_of(attempt, self._number)
            yield StreamPart(self._number, text[has:], attempt.number, id)


def _place(after: str | int) -> tuple[StreamAttempt | None, int, int | None]:
    """Up to where a reader has a stream: so many parts, or up to the part of that id."""
    if type(after) is int and after >= 0:
        return None, after, None
    given = after if isinstance(after, str) else ""
    if given.isdecimal() and len(given) <= 18:
        return None, int(given), None
    if (found := _ID.fullmatch(given)) is not None:
        length = None if found[4] is None else int(found[4])
        return StreamAttempt(int(found[1]), int(found[2])), int(found[3]), length
    raise BadInput(
        f"after={after!a:.60} must be how many parts the reader has, or the id of the last one"
    )
