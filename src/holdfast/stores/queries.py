"""SQL, from the `.sql` files in which it stands: named queries, schemas and their migrations.

sql/<dialect>/queries.sql           each query under its name, `-- name --`
sql/<dialect>/find.sql              the parts of one that is put together, in the same way
sql/<dialect>/schema.sql            a database of the newest version, made at once
sql/<dialect>/migrations/001.sql …  how each version is made of the one before
"""

from __future__ import annotations

import pkgutil
import re
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import MigrationNeeded
from holdfast.stores.port import Facts, Query

_NAME = re.compile(r"^-- (\w+) --\n", re.MULTILINE)


def queries(dialect: str) -> dict[str, str]:
    """The queries of a dialect, by name.

    >>> queries("sqlite")["stream"]
    'select id, head from streams where name = :stream;'
    """
    return _named(f"{dialect}/queries.sql")


def parts_of_find(dialect: str) -> dict[str, str]:
    """The parts of the query that finds a page of a list, by name (see `filters`).

    >>> parts_of_find("sqlite")["user"]
    'and +s.user = :user'
    """
    return _named(f"{dialect}/find.sql")


def _named(script: str) -> dict[str, str]:
    _, *parts = _NAME.split(_script(script))
    return {name: _bare(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def schema(dialect: str) -> str:
    """The script that makes a database of the newest version."""
    return _script(f"{dialect}/schema.sql")


def migration(dialect: str, version: int) -> str:
    """The script that makes a version of the one before it."""
    return _script(f"{dialect}/migrations/{version:03}.sql")


def _script(name: str) -> str:
    data = pkgutil.get_data("holdfast.stores", f"sql/{name}")
    if data is None:
        raise FileNotFoundError(f"holdfast was installed without its sql/{name}")
    return data.decode()


def _bare(text: str) -> str:
    """A query without what is said about it: the database reads it with every call."""
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip()


# Facts as columns of a row, and names by prefix: what the stores in databases have in common.


def columns_of(facts: Facts) -> dict[str, Any]:
    """Facts as columns. Only `status` is never NULL: it shows that the others are known."""
    return {
        "status": facts.status,
        "task": facts.task or None,
        "user": facts.user or None,
        "session": facts.session or None,
        "labels": facts.labels or None,
        "parent": facts.parent or None,
        "created_at": facts.created_at,
        "updated_at": facts.updated_at,
        "wake_at": facts.wake_at,
        "origin": facts.origin or None,
    }


def facts_in(columns: Sequence[Any]) -> Facts | None:
    """The facts that `columns_of` made columns of; None if nobody knows the facts.

    >>> facts = Facts(task="greet", labels={"a": "1"})
    >>> facts_in(list(columns_of(facts).values())) == facts
    True
    """
    status, task, user, session, labels, parent, created_at, updated_at, wake_at, origin = columns
    if status is None:
        return None
    return Facts(
        task or "",
        status,
        user or "",
        session or "",
        labels or {},
        parent or "",
        created_at,
        updated_at,
        wake_at,
        origin or "",
    )


def beyond(prefix: str) -> str:
    """A name that sorts after all that begin with `prefix`, and before most others.

    >>> beyond("tasks/")
    'tasks0'
    """
    last = prefix[-1:]
    return prefix[:-1] + chr(ord(last) + 1) if "" < last < "\x7f" else "\U0010ffff" * 8


# A query as SQL: which of the parts in `find.sql` the statement has, and the values to bind.
#
# The parts are ours and the values are bound, so nothing that a user gives becomes SQL.


_TEXTS = ("parent", "origin", "session", "user", "task")
_TIMES = ("created_after", "created_before", "updated_after", "updated_before")


def filters(query: Query, kept: Callable[[datetime], Any]) -> tuple[list[str], dict[str, Any]]:
    """The parts that both dialects have, and their values; `kept` is how a time is kept.

    >>> filters(Query(user="ada", session=""), str)
    (['no_session', 'user'], {'prefix': 'tasks/', 'most': 51, 'user': 'ada'})
    """
    parts: list[str] = []
    # One more than was asked for shows that there are more.
    given: dict[str, Any] = {
        "prefix": query.prefix,
        "most": None if query.limit is None else query.limit + 1,
    }
    for name in _TEXTS:
        text = getattr(query, name)
        if text:
            parts.append(name)
            given[name] = text
        elif text is not None:
            parts.append(f"no_{name}")  # an empty one is kept as NULL
    for name in _TIMES:
        time = getattr(query, name)
        if time is not None:
            parts.append(name)
            given[name] = kept(time)
    if query.beyond is not None:
        parts.append("beyond")
        given |= {"beyond_at": kept(query.beyond[0]), "beyond_name": query.beyond[1]}
    return parts, given


# Longer lines, packed: PostgreSQL itself compresses only rows above a quarter of a page.
#
# A line is JSON, which packs well, and a row of a kilobyte leaves much of a page empty. A packed
# line begins with a zero byte; a line that itself begins with one is always packed.


_WORTH_IT = 512
_MARK = b"\0"
_MOST_BYTES = 1 << 30


def packed(line: bytes) -> bytes:
    """A line as it is kept.

    >>> packed(b'{"seq":1}'), len(packed(b"x" * 1000)) < 100
    (b'{"seq":1}', True)
    """
    if len(line) < _WORTH_IT and not line.startswith(_MARK):
        return line
    small = _MARK + zlib.compress(line, 1)
    return small if len(small) < len(line) or line.startswith(_MARK) else line


def unpacked(data: bytes) -> bytes:
    """The line again. A line that can't be unpacked is given as it is, and will not fit its sum.

    >>> unpacked(packed(b"x" * 1000)) == b"x" * 1000
    True
    """
    if not data.startswith(_MARK):
        return data
    try:
        return zlib.decompressobj().decompress(data[1:], _MOST_BYTES)
    except zlib.error:
        return data


def must_be_current(found: int, wanted: int, name: str) -> None:
    """Raise `MigrationNeeded` for a database that an older Holdfast made; 0 is an empty one."""
    if 0 < found < wanted:
        raise MigrationNeeded(
            f"{name} was made by an older Holdfast: its schema is of version {found}, this one "
            f"needs {wanted}. Nothing was changed: see what would be by `holdfast migrate "
            f"--dry-run`, make a backup, then run `holdfast migrate`"
        )
