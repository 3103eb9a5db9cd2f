"""All tables of SQL: what each takes from a log, how they are filled, and their reference page."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from holdfast.core.conversation import Conversation
from holdfast.core.decoding import damage_in, decode
from holdfast.core.events import Failure, Fork
from holdfast.core.kinds import MEMORY, SESSION, id_of
from holdfast.core.memories import Memories
from holdfast.core.state import Attempt, Call, State, scope_of
from holdfast.core.usage import Usage, Used, used_by
from holdfast.errors import StoreError
from holdfast.log.reading import stream_of
from holdfast.log.states import load_any
from holdfast.log.store_calls import streams_in
from holdfast.stores.listing import TaskRecord, page_of_tasks
from holdfast.stores.port import LONGEST_PAGE, Store
from holdfast.views.sql.apart import inner
from holdfast.views.sql.columns import (
    AS_STORED,
    Broken,
    Column,
    MemoryLog,
    SessionLog,
    Source,
    SqlValues,
    Table,
    TaskLog,
    integer,
    real,
    seconds,
    text,
    time,
    value,
)
from holdfast.views.sql.of_tasks import (
    DECISIONS,
    EVENTS,
    FACTS,
    FILES,
    INDEXED,
    MEMORIES,
    MESSAGES,
    NOTES,
    PLANS,
    SESSIONS,
    SUMMARIES,
    TASKS,
)

# The tables of what tasks called: steps, tools, attempts, failures, questions.


class Tried(NamedTuple):
    """An attempt, and what it is of."""

    call: Call
    attempt: Attempt


def _calls(*kinds: str) -> Callable[[TaskLog], Iterator[Call]]:
    def each(log: TaskLog) -> Iterator[Call]:
        return (call for call in log.state.calls.values() if not kinds or call.kind in kinds)

    return each


def _tries(log: TaskLog) -> Iterator[Tried]:
    for call in log.state.calls.values():
        for attempt in call.attempts:
            yield Tried(call, attempt)


def _summary(failure: Failure | None) -> str | None:
    return None if failure is None else failure.summary()


def _failed(call: Call) -> int:
    return sum(attempt.failure is not None for attempt in call.attempts)


def _failure_of(call: Call) -> Failure | None:
    """Why it failed; not what went wrong before it went well."""
    return None if call.status == "completed" else call.failure


_TASK = text("task_id", "The task.", lambda log, _: log.id)

_CALL: tuple[Column, ...] = (
    _TASK,
    text("path", "Its place in the tree of calls: 6, or 6.2.1.", lambda _, c: c.path),
    text("name", "What was called.", lambda _, c: c.name),
)

_COURSE: tuple[Column, ...] = (
    text(
        "status",
        "running, backing_off, in_doubt, retrying, waiting, completed or failed.",
        lambda _, c: c.status,
    ),
    value("input", "Its arguments.", lambda log, c: log.value(c.args)),
    value("output", "What it returned; NULL while it has not.", lambda log, c: log.value(c.result)),
    text(
        "failure",
        "Why it failed, or why the last attempt did; NULL once it went well.",
        lambda _, c: _summary(_failure_of(c)),
    ),
    integer("attempts", "How often it was tried.", lambda _, c: len(c.attempts)),
    integer("failures", "How many attempts failed.", lambda _, c: _failed(c)),
    time("started_at", "When it was first begun.", lambda _, c: c.at),
    time("ended_at", "When it ended; NULL if it has not.", lambda _, c: c.ended_at),
    real(
        "duration_s", "How long it took, retries and all.", lambda _, c: seconds(c.at, c.ended_at)
    ),
    text("key", "A tool's idempotency key; a question's id.", lambda _, c: c.key),
    text(
        "scope", "The call or branch it was made in; '' in the body.", lambda _, c: scope_of(c.path)
    ),
    integer("seq", "The event that began it.", lambda _, c: c.seq),
    text("args_hash", "Equal for calls with the same arguments.", lambda _, c: c.args_hash),
    integer(
        "shared",
        "1 if the task has it from the one that it is a fork of.",
        lambda log, c: log.is_shared(c.seq),
    ),
    text(
        "adopted",
        "How a call that was not made came by its output: reused, stub, recorded or edited.",
        lambda _, c: c.adopted,
    ),
    time("retry_at", "When it is tried next.", lambda _, c: c.retry_at),
)

_DOUBT: tuple[Column, ...] = (
    integer("in_doubt", "1 if nobody knows whether it happened.", lambda _, c: _is_doubtful(c)),
    text("why", "What was said of it: a doubt, a verdict, a question.", lambda _, c: c.why),
    text(
        "settled_by", "Who settled or answered it: a check, or a person.", lambda _, c: c.settled_by
    ),
    integer("can_undo", "1 if it can be undone.", lambda _, c: c.undo),
)

_DETAILS: tuple[Column, ...] = (
    time("until", "For what waits: up to when.", lambda _, c: c.until),
    text("child", "For a child: the id of its task.", lambda _, c: c.child),
    text("reused", "For a read that an earlier one answered: the path of that.", lambda _, c: c.of),
    time("as_of", "For a read of the outside world: how old it is.", lambda _, c: c.as_of),
)


def _is_doubtful(call: Call) -> bool:
    return call.status == "in_doubt" or (call.doubt and call.status != "completed")


STEPS = Table(
    "steps",
    "Every call of a task: steps, tools, decisions, questions, sleeps, children, limits.",
    "task",
    _calls(),
    (
        *_CALL,
        text(
            "kind",
            "step, tool, decision, fact, sleep, reading, question, approval, child or limit.",
            lambda _, c: c.kind,
        ),
        *_COURSE,
        *_DOUBT,
        *_DETAILS,
    ),
)

TOOL_CALLS = Table(
    "tool_calls",
    "The calls of tools: those of `steps` that touch the outside world.",
    "task",
    _calls("tool"),
    (*_CALL, *_COURSE, *_DOUBT),
)

ATTEMPTS = Table(
    "attempts",
    "Every try of every call.",
    "task",
    _tries,
    (
        _TASK,
        text("path", "The call.", lambda _, t: t.call.path),
        text("name", "What was called.", lambda _, t: t.call.name),
        text("kind", "step or tool.", lambda _, t: t.call.kind),
        integer("number", "Which try it is, counted from 1.", lambda _, t: t.attempt.number),
        time("started_at", "When it was begun.", lambda _, t: t.attempt.at),
        time("ended_at", "When it ended; NULL if nobody knows.", lambda _, t: t.attempt.ended_at),
        real(
            "duration_s",
            "How long it took.",
            lambda _, t: seconds(t.attempt.at, t.attempt.ended_at),
        ),
        text("failure", "Why it failed, if it did.", lambda _, t: _summary(t.attempt.failure)),
    ),
)


def _of_failure(name: str, about: str, of: Callable[[Failure], str]) -> Column:
    def get(_: TaskLog, found: Broken) -> str:
        return of(found.failure)

    return text(name, about, get)


FAILURES = Table(
    "failures",
    "Everything that broke: each failed attempt, and what a task failed with.",
    "task",
    lambda log: log.failures(),
    (
        _TASK,
        text("path", "The call; '' for the task itself.", lambda _, f: f.path),
        text("name", "What was called.", lambda _, f: f.name),
        integer("attempt", "Which try it was; 0 for the task itself.", lambda _, f: f.attempt),
        time("at", "When it broke.", lambda _, f: f.at),
        _of_failure("type", "The class of the exception.", lambda f: f.type),
        _of_failure("message", "What the exception said.", lambda f: f.message),
        _of_failure("traceback", "Where it was raised.", lambda f: f.traceback),
        _of_failure("module", "The module of the exception's class.", lambda f: f.module),
        integer("timed_out", "1 if it took too long.", lambda _, f: f.failure.timed_out),
        value("input", "What it was called with.", lambda log, f: log.value(f.args)),
    ),
)

QUESTIONS = Table(
    "questions",
    "What tasks asked people, and what was answered.",
    "task",
    _calls("question", "approval"),
    (
        _TASK,
        text("path", "The place in the tree of calls.", lambda _, c: c.path),
        text("id", "The question's id, by which it is answered.", lambda _, c: c.key),
        text("kind", "question, or approval of a call.", lambda _, c: c.kind),
        text("question", "What was asked.", lambda _, c: c.why),
        text("expects", "What an answer has to be.", lambda _, c: c.expects),
        text("status", "waiting, completed, or failed if nobody answered.", lambda _, c: c.status),
        value("answer", "What was answered.", lambda log, c: log.value(c.result)),
        text("answered_by", "Who answered.", lambda _, c: c.settled_by),
        time("asked_at", "When it was asked.", lambda _, c: c.at),
        time("answered_at", "When it was answered, or given up.", lambda _, c: c.ended_at),
        real("duration_s", "How long it waited.", lambda _, c: seconds(c.at, c.ended_at)),
        time("until", "Up to when an answer counts.", lambda _, c: c.until),
        text("call", "For an approval: the path of the call.", lambda _, c: c.approves),
        value("input", "For an approval: the arguments.", lambda log, c: log.value(c.args)),
        value("default_answer", "What counts if nobody does.", lambda log, c: log.value(c.default)),
    ),
)


# The table of model calls: what each took, as the provider reported it.


class Replied(NamedTuple):
    """A call that a model answered, and what that took."""

    call: Call
    used: Used


def _replies(log: TaskLog) -> Iterator[Replied]:
    calls = log.state.calls
    for path, used in used_by(calls.values(), lambda raw: decode(log.whole(raw))).items():
        yield Replied(calls[path], used)


def _tokens(replied: Replied, name: str) -> int | None:
    """How many there were; None where the provider told of nothing."""
    usage = replied.used.usage
    return None if usage == Usage() else getattr(usage, name)


MODEL_CALLS = Table(
    "model_calls",
    "The steps that a model answered, and what each took.",
    "task",
    _replies,
    (
        text("task_id", "The task.", lambda log, _: log.id),
        text("path", "The call: a row of `steps`.", lambda _, r: r.call.path),
        text("name", "The name of the step.", lambda _, r: r.call.name),
        text("model", "The model, as the provider calls it.", lambda _, r: r.used.model or None),
        integer("input_tokens", "What it read.", lambda _, r: _tokens(r, "input_tokens")),
        integer("output_tokens", "What it wrote.", lambda _, r: _tokens(r, "output_tokens")),
        integer(
            "cached_tokens",
            "Those of the input that the provider had at hand.",
            lambda _, r: _tokens(r, "cached_tokens"),
        ),
        real(
            "cost",
            "What it cost, in whatever prices are in.",
            lambda _, r: r.used.usage.cost or None,
        ),
        text(
            "stop",
            "Why it stopped: end, tool_calls, length, refusal or other.",
            lambda _, r: r.used.stop or None,
        ),
        integer(
            "shared",
            "1 if the task has it from the one that it is a fork of, which has the same row.",
            lambda log, r: log.is_shared(r.call.seq),
        ),
        integer("attempts", "How often it was tried.", lambda _, r: len(r.call.attempts)),
        time("started_at", "When it was begun.", lambda _, r: r.call.at),
        real(
            "duration_s",
            "How long it took, retries and all.",
            lambda _, r: seconds(r.call.at, r.call.ended_at),
        ),
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        TASKS,
        STEPS,
        TOOL_CALLS,
        MODEL_CALLS,
        ATTEMPTS,
        FAILURES,
        DECISIONS,
        QUESTIONS,
        PLANS,
        NOTES,
        FACTS,
        FILES,
        SESSIONS,
        MESSAGES,
        SUMMARIES,
        MEMORIES,
        EVENTS,
    )
}


# The tables, as SQL that can be read, and as the page of the reference.
#
# python -m holdfast.views.sql.tables > docs/reference/sql.md


HEAD = """\
# SQL

What `holdfast sql "select …"` and `hf.sql("select …")` can select from, in any store. How it is
used: [Ask with SQL](../how-to/sql.md). This page is made from the declarations of the tables by
`python -m holdfast.views.sql.tables > docs/reference/sql.md`; change those, not this.

The SQL is that of SQLite, with its functions. Of the types:

- `text` is `''` where there is nothing, or NULL where the column says so.
- `integer` is 0 or 1 where it answers yes or no.
- `time` is text in UTC, `2026-01-31 18:00:00.000000`: the form of SQLite's `datetime`, so it
  compares with `datetime('now', '-7 days')`.
- `json` is text that holds JSON, for `->`, `->>`, `json_extract` and `json_each`. NULL says that
  there is no value; the text `null` is one. Types that JSON does not have are written as in the
  log: see [the log format](log-format.md). (`->` and `->>` need SQLite 3.38.)
"""

_SHOWN = {"value": "json"}


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(_section, TABLES.values())])


def schema() -> str:
    """The same as SQL with comments, for a terminal or a prompt."""
    return "\n".join(map(_declared, TABLES.values()))


def _section(table: Table) -> str:
    rows = "\n".join(
        f"| `{column.name}` | {_SHOWN.get(column.kind, column.kind)} | {column.about} |"
        for column in table.columns
    )
    return f"## `{table.name}`\n\n{table.about}\n\n| column | type | |\n|---|---|---|\n{rows}\n"


def _declared(table: Table) -> str:
    wide = max(len(column.name) for column in table.columns)
    lines = []
    for column in table.columns:
        comma = "" if column is table.columns[-1] else ","
        kind = _SHOWN.get(column.kind, column.kind) + comma
        lines.append(f"  {column.name:{wide}} {kind:8}  -- {column.about}")
    return f"-- {table.about}\ncreate view {table.name} (\n" + "\n".join(lines) + "\n);\n"


# The tables of a query, filled from the logs: only those tables, and of them only those columns,
# that it reads. A log that can't be read adds no row to any of them, and is told of.


Tell = Callable[[str, int, int], None]
"""Told which log was read, how many of them by now, and of how many."""
Log = TaskLog | SessionLog | MemoryLog
Wanted = Mapping[str, Collection[str]]
"""The columns that a query reads, by table."""


class _Part(Struct, frozen=True):
    """One table to fill, as far as it is wanted."""

    table: Table
    columns: tuple[Column, ...]

    @property
    def insert(self) -> str:
        name = inner(self.table.name)
        if not self.columns:  # the query only counts them
            return f"insert into {name} default values"
        names = ", ".join(f'"{column.name}"' for column in self.columns)
        return f"insert into {name} ({names}) values ({', '.join('?' * len(self.columns))})"

    def rows(self, log: Log) -> list[list[Any]]:
        made = [(column.of, AS_STORED[column.kind]) for column in self.columns]
        found = []
        for each in self.table.each(log):
            row = [of(log, each) for of, _ in made]
            for place, (_, stored) in enumerate(made):
                if row[place] is not None:
                    row[place] = stored(row[place])
            found.append(row)
        return found


class Filling:
    """Fills the tables of one query."""

    def __init__(
        self,
        db: sqlite3.Connection,
        store: Store,
        values: SqlValues,
        unreadable: list[StoreError],
        tell: Tell,
    ) -> None:
        self._db = db
        self._store = store
        self._values = values
        self._unreadable = unreadable
        self._tell = tell

    def fill(self, wanted: Wanted, filters: Mapping[str, Any]) -> None:
        """Fill the tables with the tasks that match, and the sessions these belong to.

        Without a filter: with all tasks and all sessions.
        """
        tables = [TABLES[name] for name in wanted]
        sources: dict[Source, tuple[_Part, ...]] = {
            source: tuple(
                _Part(table, table.chosen(set(wanted[table.name])))
                for table in tables
                if table.source == source
            )
            for source in ("task", "session", "memory")
        }
        given = {name: value for name, value in filters.items() if value not in (None, {})}
        with_tasks = sources["task"] or (sources["session"] and given)
        records = list(self._records(given)) if with_tasks else []
        self._db.execute("begin")
        if set(wanted) & _OF_TASKS == {TASKS.name} and set(wanted[TASKS.name]) <= INDEXED:
            self._from_index(records, sources["task"])
        elif sources["task"]:
            self._read([stream_of(record.id) for record in records], self._task, sources["task"])
        if sources["session"]:
            self._read(self._sessions(records, given), self._session, sources["session"])
        if sources["memory"]:
            memories = sorted(streams_in(self._store, MEMORY.prefix))
            self._read(memories, self._memory, sources["memory"])
        self._db.execute("commit")

    def _records(self, filters: Mapping[str, Any]) -> Iterator[TaskRecord]:
        cursor: str | None = None
        while True:
            page = page_of_tasks(self._store, filters, LONGEST_PAGE, cursor)
            if cursor is None:  # the same for every page
                self._unreadable.extend(page.unreadable)
            yield from page.tasks
            cursor = page.next
            if cursor is None:
                return

    def _sessions(self, records: Sequence[TaskRecord], filters: Mapping[str, Any]) -> list[str]:
        known = sorted(streams_in(self._store, SESSION.prefix))
        if not filters:
            return known
        meant = {record.session for record in records} | {filters.get("session")}
        return [stream for stream in known if id_of(stream) in meant]

    def _from_index(self, records: Sequence[TaskRecord], parts: tuple[_Part, ...]) -> None:
        for record in records:
            state = State(
                id=record.id,
                task=record.type,
                status=record.status,
                user=record.user,
                session=record.session,
                labels=record.labels,
                parent=record.parent,
                created_at=record.created_at,
                fork=Fork(of=record.origin, seq=0, sum="") if record.origin else None,
            )
            self._insert(TaskLog(self._store, self._values, record.id, state), parts)

    def _read(
        self,
        streams: Sequence[str],
        opened: Callable[[str], Log | None],
        parts: tuple[_Part, ...],
    ) -> None:
        for done, stream in enumerate(streams, 1):
            try:
                with damage_in(stream):
                    log = opened(stream)
                    if log is not None:  # else it was deleted meanwhile
                        self._insert(log, parts)
            except StoreError as error:
                self._unreadable.append(error)
            self._tell(id_of(stream), done, len(streams))

    def _insert(self, log: Log, parts: tuple[_Part, ...]) -> None:
        made = [(part, part.rows(log)) for part in parts]  # all of them, or none
        for part, rows in made:
            self._db.executemany(part.insert, rows)

    def _task(self, stream: str) -> TaskLog:
        return TaskLog(self._store, self._values, id_of(stream))

    def _session(self, stream: str) -> SessionLog | None:
        state = load_any(self._store, stream)
        is_there = isinstance(state, Conversation) and state.seq
        return SessionLog(self._store, state) if is_there else None  # type: ignore[arg-type]

    def _memory(self, stream: str) -> MemoryLog | None:
        state = load_any(self._store, stream)
        is_there = isinstance(state, Memories) and state.seq
        return MemoryLog(state) if is_there else None  # type: ignore[arg-type]


_OF_TASKS = {table.name for table in TABLES.values() if table.source == "task"}


if __name__ == "__main__":
    sys.stdout.write(reference())
