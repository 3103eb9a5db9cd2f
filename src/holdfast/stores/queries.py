"""SQL, from the `.sql` files in which it stands: named queries, schemas and their migrations.

sql/<dialect>/queries.sql           each query under its name, `-- name --`
sql/<dialect>/find.sql              the parts of one that is put together, in the same way
sql/<dialect>/schema.sql            a database of the newest version, made at once
sql/<dialect>/migrations/001.sql …  how each version is made of the one before
"""

from __future__ import annotations

import pkgutil
import re

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
