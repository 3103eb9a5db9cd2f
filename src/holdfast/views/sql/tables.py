"""All tables, in the order in which they are explained."""

from __future__ import annotations

import sys

from holdfast.views.sql.columns import Table
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


# What there is to select from, as SQL that can be read, and as the page of the reference.
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


if __name__ == "__main__":
    sys.stdout.write(reference())
