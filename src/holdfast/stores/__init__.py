"""The stores that come with Holdfast, and how a URL names one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import BadInput, WrongKey
from holdfast.keys import Keys, KeySource
from holdfast.store import Store

KEYS = "keys/"
"""Where an encrypted store has its keys: streams of that prefix."""


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
    if text == "memory://":
        from holdfast.stores.memory import MemoryStore

        return MemoryStore()
    scheme, found, rest = text.partition("://")
    if not found or scheme == "file":
        from holdfast.stores.files import FileStore

        if not (rest if found else text):
            raise BadInput("the store's folder has no name: give a path, as in Holdfast('state')")
        return FileStore(Path(rest if found else text), sync=sync)
    if scheme == "sqlite":
        from holdfast.stores.sqlite import SqliteStore

        if not rest.startswith("/") or rest in ("/", "/:memory:"):
            raise BadInput(f"{text!r} names no file: give sqlite:///trips.db, or memory://")
        return SqliteStore(Path(rest[1:]), sync=sync)
    if scheme in ("postgresql", "postgres"):
        try:
            from holdfast.stores.postgres import PostgresStore
        except ModuleNotFoundError as error:
            raise BadInput(
                f"a store in PostgreSQL needs {error.name}: pip install 'holdfast[postgres]'"
            ) from error
        return PostgresStore(text, sync=sync)
    raise BadInput(
        f"{text!r} names no store Holdfast knows: give a folder, sqlite:///…, postgresql://…, "
        f"or memory://"
    )


def secured(store: Store, key: KeySource | None, sign_key: KeySource | None = None) -> Store:
    """A store, encrypted with `key` and signed with `sign_key`, where they are given.

    If it can't be, it is closed again.

    >>> secured(open_store("memory://"), Keys.new()).url
    'memory://'
    """
    try:
        if key is not None:
            store = _sealed(store, Keys.of(key))
        elif next(iter(store.streams(KEYS)), None) is not None:
            raise WrongKey(
                f"{store.url} is encrypted, and no key was given. Nothing was read or changed: "
                f"open it with Holdfast(…, key=…), or holdfast --key-file FILE"
            )
        if sign_key is not None:
            from holdfast.stores.signed import SignedStore

            store = SignedStore(store, Keys.of(sign_key))
        return store
    except BaseException:
        store.close()
        raise


def rotate(store: Store, keys: Keys) -> bool:
    """Make the first of the keys the one that opens an encrypted store; False if it is already.

    >>> store, old, new = open_store("memory://"), Keys.new(), Keys.new()
    >>> secured(store, old).close()
    >>> rotate(store, Keys(new, old)), rotate(store, Keys(new, old))
    (True, False)
    """
    with _encryption_is_there():
        from holdfast.stores import ring
    return ring.rotate(store, keys)


def _sealed(store: Store, keys: Keys) -> Store:
    with _encryption_is_there():
        from holdfast.stores.sealed import SealedStore
    return SealedStore(store, keys)


@contextmanager
def _encryption_is_there() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        what = f"encryption needs {error.name}: pip install 'holdfast[encryption]'"
        raise BadInput(what) from error
