"""The stores that come with Holdfast, and how a URL names one.

Internal but for the port, which a store of your own implements. A store keeps lines and blobs, and
knows nothing of tasks. It uses `log` and `core`. Read `port` first: the rules, in words and in
code; then `memory`, which keeps them and nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.errors import BadInput, WrongKey
from holdfast.log.store_calls import streams_in
from holdfast.stores.port import Store
from holdfast.stores.sealed.keys import KEYS, Keys, KeySource

if TYPE_CHECKING:
    from holdfast.stores.sealed.boxes import Box

_LIKE_A_URL = re.compile(r"(postgres(ql)?|sqlite|memory|file):")


def open_store(url: str | os.PathLike[str], *, sync: bool = True) -> Store:
    """The store that a URL names.

    | URL | store |
    |---|---|
    | `workspace`, `file://workspace` | a folder of readable files |
    | `sqlite:///trips.db` | an SQLite database (with four slashes: an absolute path) |
    | `postgresql://user@host/database` | a PostgreSQL database |
    | `memory://` | this process, and nothing after it |

    `sync=False` leaves durability to the operating system: for tests and measurements only.

    >>> open_store("memory://").url
    'memory://'
    """
    text = os.fspath(url)
    must_be_url(text)
    if text == "memory://":
        from holdfast.stores.memory import MemoryStore

        return MemoryStore()
    scheme, found, rest = text.partition("://")
    if not found or scheme == "file":
        from holdfast.stores.files.store import FileStore

        return FileStore(Path(rest if found else text), sync=sync)
    if scheme == "sqlite":
        from holdfast.stores.sqlite.store import SqliteStore

        return SqliteStore(Path(rest[1:]), sync=sync)
    try:
        from holdfast.stores.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        raise BadInput(
            f"a store in PostgreSQL needs {error.name}: pip install 'holdfast[postgres]'"
        ) from error
    return PostgresStore(text, sync=sync)


def must_be_url(text: str) -> None:
    """Refuse a text that can name no store. Nothing is opened.

    >>> must_be_url("sqlite")  # a folder, as good as any
    >>> must_be_url("postgresql://")  # what libpq takes without being told
    >>> must_be_url("redis://localhost")
    Traceback (most recent call last):
    holdfast.errors.BadInput: 'redis://localhost' names no store Holdfast knows: give a folder,
    sqlite:///…, postgresql://…, or memory://
    """
    if text == "memory://":
        return
    scheme, found, rest = text.partition("://")
    if not found and _LIKE_A_URL.match(text):
        raise BadInput(f"{text!r} is neither a folder nor a URL: write {_with_slashes(text)!r}")
    if found and scheme not in ("file", "sqlite", "postgresql", "postgres"):
        raise BadInput(
            f"{text!r} names no store Holdfast knows: give a folder, sqlite:///…, postgresql://…, "
            f"or memory://"
        )
    if found and scheme == "sqlite" and (not rest.startswith("/") or rest in ("/", "/:memory:")):
        raise BadInput(f"{text!r} names no file: give sqlite:///trips.db, or memory://")
    if text in ("", "file://"):
        raise BadInput("the store's folder has no name: give a path, as in Holdfast('state')")


class Migration(Struct, frozen=True):
    """One step of a migration, and what it is for."""

    number: int
    about: str


def migrations_of(url: str) -> list[Migration]:
    """The migrations that a store needs before this version opens it. Nothing is changed."""
    from holdfast.stores.queries import migration

    dialect, database = _database_of(url)
    if database is None:
        return []
    place: Any = Path(url.partition(":///")[2]) if dialect == "sqlite" else url
    found: int = database.version_in(place)
    if not found:  # there is no store yet: it is made whole
        return []
    return [
        Migration(number, _about(migration(dialect, number)))
        for number in range(found + 1, database.VERSION + 1)
    ]


def migrate(url: str) -> list[Migration]:
    """Bring the schema of a store up to date, all or nothing; returns what was done."""
    needed = migrations_of(url)
    dialect, database = _database_of(url)
    if needed and database is not None:
        place: Any = Path(url.partition(":///")[2]) if dialect == "sqlite" else url
        database.prepare(place, True, migrates=True)
    return needed


def _database_of(url: str) -> tuple[str, Any]:
    if url.startswith("sqlite:///"):
        return "sqlite", import_module("holdfast.stores.sqlite.database")
    if url.startswith(("postgresql://", "postgres://")):
        return "postgres", import_module("holdfast.stores.postgres.database")
    return "", None


def _about(script: str) -> str:
    lines = (line[2:].strip() for line in script.splitlines() if line.startswith("--"))
    told = [line for line in lines if line]
    return next((line for line in told if line.startswith("Version")), told[0] if told else "")


def _with_slashes(text: str) -> str:
    scheme, _, rest = text.partition(":")
    return f"{scheme}://{'/' if scheme == 'sqlite' else ''}{rest.lstrip('/')}"


def whole_store(store: Store) -> Store:
    """A store that somebody made, if it has every method of the port.

    >>> whole_store(open_store("memory://")).url
    'memory://'
    """
    port = [name for name in vars(Store) if not name.startswith("_")]
    missing = [name for name in port if _is_missing(store, name)]
    advice = "give a folder, a URL, or an object with every method of holdfast.stores.port.Store"
    if isinstance(store, type) or missing == port:
        raise BadInput(f"{store!a:.80} is no store: {advice}")
    if missing:
        raise BadInput(
            f"{type(store).__name__} is no store, it lacks {', '.join(missing)}: {advice}"
        )
    return store


def _is_missing(store: Store, name: str) -> bool:
    found = getattr(store, name, None)
    # A class that inherits from the protocol has all of its methods, and they do nothing.
    return found is None or getattr(found, "__func__", None) is vars(Store)[name]


def secured(store: Store, key: KeySource | None, sign_key: KeySource | None = None) -> Store:
    """A store, encrypted with `key` and signed with `sign_key`, where they are given.

    If it can't be, it is closed again.

    >>> secured(open_store("memory://"), Keys.new()).url
    'memory://'
    """
    try:
        if key is not None:
            store = _sealed(store, Keys.of(key))
        elif streams_in(store, KEYS):
            raise WrongKey(
                f"{store.url} is encrypted, and no key was given. Nothing was read or changed: "
                f"open it with Holdfast(…, key=…), or holdfast --key-file FILE"
            )
        if sign_key is not None:
            from holdfast.stores.sealed.signed import SignedStore

            store = SignedStore(store, Keys.of(sign_key))
        return store
    except BaseException:
        store.close()
        raise


def box_for_engines(store: Store) -> Box | None:
    """What an engine encrypts with that keeps values of tasks; None in a store without a key.

    >>> box_for_engines(open_store("memory://"))
    >>> box = box_for_engines(secured(open_store("memory://"), Keys.new()))
    >>> box.open(box.close(b"Oslo", "payload"), "payload")
    b'Oslo'
    """
    inner: Store | None = store
    while inner is not None:
        box: Box | None = getattr(inner, "engine_box", None)
        if box is not None:
            return box
        inner = getattr(inner, "inner", None)
    return None


def rotate(store: Store, keys: Keys) -> bool:
    """Make the first of the keys the one that opens an encrypted store; False if it is already.

    >>> store, old, new = open_store("memory://"), Keys.new(), Keys.new()
    >>> secured(store, old).close()
    >>> rotate(store, Keys(new, old)), rotate(store, Keys(new, old))
    (True, False)
    """
    with _encryption_is_there():
        from holdfast.stores.sealed import ring
    return ring.rotate(store, keys)


def _sealed(store: Store, keys: Keys) -> Store:
    with _encryption_is_there():
        from holdfast.stores.sealed.store import SealedStore
    return SealedStore(store, keys)


@contextmanager
def _encryption_is_there() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        what = f"encryption needs {error.name}: pip install 'holdfast[encryption]'"
        raise BadInput(what) from error
