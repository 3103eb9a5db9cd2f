"""All tables, in the order in which they are explained."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.core.conversation import Conversation
from holdfast.core.decoding import damage_in
from holdfast.core.events import Fork
from holdfast.core.kinds import MEMORY, SESSION, id_of
from holdfast.core.memories import Memories
from holdfast.core.state import State
from holdfast.errors import StoreError
from holdfast.log.reading import stream_of
from holdfast.log.states import load_any
from holdfast.log.store_calls import streams_in
from holdfast.stores.listing import TaskRecord, page_of_tasks
from holdfast.stores.port import LONGEST_PAGE, Store
from holdfast.views.sql.apart import inner
from holdfast.views.sql.columns import (
    AS_STORED,
    Column,
    MemoryLog,
    SessionLog,
    Source,
    SqlValues,
    Table,
    TaskLog,
)
from holdfast.views.sql.of_calls import (
    ATTEMPTS,
    FAILURES,
    MODEL_CALLS,
    QUESTIONS,
    STEPS,
    TOOL_CALLS,
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
