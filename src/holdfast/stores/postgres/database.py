"""The database of the PostgreSQL store: connections to it, its schema, and what is said when it
fails."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from weakref import WeakSet

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.core.words import without_password
from holdfast.errors import BadInput, NewerFormat, StorageFailed
from holdfast.stores.postgres.presence import Connection
from holdfast.stores.queries import migration, must_be_current, queries, schema

VERSION = 5
"""Of the schema: how many migrations there are."""

SQL = queries("postgres")

_WAIT_S = 10.0
_MIGRATING = 1_213_156_421
"""The advisory lock under which a schema is made, so that it is made once."""

_OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    "fallback_application_name": "holdfast",
    # A line that went dead in silence is noticed before the other end gives our locks away.
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


def connect(url: str, durable: bool) -> Connection:
    """Open one connection."""
    conn = psycopg.connect(_conninfo(url), autocommit=True)
    _configure(conn, durable)
    return conn


def _conninfo(url: str) -> str:
    """Our options, and what the URL says, which counts more."""
    try:
        return make_conninfo(**{**_OPTIONS, **conninfo_to_dict(url)})
    except psycopg.ProgrammingError as error:
        raise BadInput(f"{without_password(url)} is no address of a database: {error}") from error


def _configure(conn: Connection, durable: bool) -> None:
    conn.execute(SQL["settings"], {"durable": durable})


class NoneFree(psycopg.OperationalError):
    """Every connection of a process was in use for too long."""


class _Place:
    """The right to use one connection. It is free again when nobody refers to it any more."""


class Connections:
    """A few connections for many threads. Each is made by a thread that needs it, so that a thread
    knows at once that the server is away, and at once that it is back.

    The places are counted by the objects that stand for them, and not by a semaphore: an interrupt
    between taking and using a place drops the object, and so can't lose the place.
    """

    def __init__(self, url: str, durable: bool, size: int) -> None:
        self._url = url
        self._durable = durable
        self._size = size
        self._lock = threading.Lock()
        self._taken: WeakSet[_Place] = WeakSet()
        self._free: list[Connection] = []
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """A connection, for this thread alone until the block ends."""
        place = self._place()
        try:
            conn = self._live() or connect(self._url, self._durable)
            try:
                yield conn
            except BaseException:
                if not isinstance(sys.exc_info()[1], psycopg.Error) or conn.broken or conn.closed:
                    conn.close()  # nobody knows in which state it was left
                raise
            finally:
                if not conn.closed:
                    self._give_back(conn)
        finally:
            self._taken.discard(place)

    def _place(self) -> _Place:
        give_up_at, pause_s = time.monotonic() + _WAIT_S, 0.001
        while (place := self._free_place()) is None:
            if time.monotonic() > give_up_at:
                raise NoneFree(f"all {self._size} connections were in use for {_WAIT_S:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)
        return place

    def _free_place(self) -> _Place | None:
        with self._lock:
            if len(self._taken) >= self._size:
                return None
            place = _Place()
            self._taken.add(place)
        return place

    def _live(self) -> Connection | None:
        while True:
            try:
                conn = self._free.pop()
            except IndexError:
                return None
            try:
                _check(conn)
                return conn
            except (psycopg.Error, OSError):
                conn.close()

    def _give_back(self, conn: Connection) -> None:
        if self._closed:
            conn.close()
        else:
            self._free.append(conn)

    def close(self) -> None:
        """Close the connections that nobody uses; the users of the others close theirs."""
        self._closed = True
        while self._free:
            self._free.pop().close()


POOL_SIZE = 4
"""How many connections a process has for what is asked of the database, if its URL says nothing."""


def with_pool_size(url: str) -> tuple[str, int]:
    """A URL without our own parameter, and what that says.

    >>> with_pool_size("postgresql://db/trips?pool_size=2&sslmode=require")
    ('postgresql://db/trips?sslmode=require', 2)
    """
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    sizes = [value for name, value in given if name == "pool_size"]
    if not sizes:
        return url, POOL_SIZE
    if not (sizes[-1].isascii() and sizes[-1].isdigit() and 1 <= int(sizes[-1]) <= 1000):
        raise BadInput(f"pool_size={sizes[-1]!r:.60} in the URL must be a number from 1 to 1000")
    rest = [(name, value) for name, value in given if name != "pool_size"]
    return urlunsplit(parts._replace(query=urlencode(rest, safe="/"))), int(sizes[-1])


def _check(conn: Connection) -> None:
    """Find out that the server is gone before something is entrusted to the connection.

    An idle one has nothing to read, unless it was ended: that costs no question to the server.
    """
    ready = select.poll()
    ready.register(conn.fileno(), select.POLLIN)
    if ready.poll(0):
        conn.execute("")


class OwnConnection:
    """A connection for one user at a time, who uses it all the time: a pool would cost more."""

    def __init__(self, url: str, durable: bool) -> None:
        self._url = url
        self._durable = durable
        self._conn: Connection | None = None

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """The connection, made (anew) if need be."""
        conn = self._live() or connect(self._url, self._durable)
        self._conn = None  # until it is known to be sound
        try:
            yield conn
        except BaseException:
            conn.close()
            raise
        self._conn = conn

    def _live(self) -> Connection | None:
        if self._conn is not None:
            try:
                _check(self._conn)
            except psycopg.Error:
                self.close()
        return self._conn

    def close(self) -> None:
        """Let it go."""
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


def prepare(url: str, durable: bool, *, migrates: bool = False) -> None:
    """Make the schema if it is not there. An older one is brought up to date only on request:
    a migration is an act of its own, see `holdfast.stores.migrate`."""
    name = without_password(url)
    with _opened(url, durable) as conn:
        if not migrates:
            must_be_current(_version_of(conn, name, VERSION), VERSION, name)
        bring_up_to_date(conn, name)


def version_in(url: str) -> int:
    """The version of the schema in a database; 0 if there is none."""
    with _opened(url, True) as conn:
        return _version_of(conn, without_password(url), VERSION)


@contextmanager
def _opened(url: str, durable: bool) -> Iterator[Connection]:
    name = without_password(url)
    try:
        conn = connect(url, durable)
    except psycopg.OperationalError as error:
        raise StorageFailed(
            f"can't open {name}: {_text(error)}. See that the server is up, that the database is "
            f"there (createdb), and which role and password you use (PGPASSWORD, ~/.pgpass)"
        ) from error
    try:
        with conn:
            yield conn
    except psycopg.Error as error:
        raise failed(f"can't open {name}", error) from error


def bring_up_to_date(
    conn: Connection,
    url: str,
    version: int = VERSION,
    migrate: Callable[[str, int], str] = migration,
) -> None:
    """Make the schema what this version says, from whatever older one it is."""
    if _version_of(conn, url, version) == version:
        return
    with conn.transaction():
        conn.execute("select pg_advisory_xact_lock(%s)", [_MIGRATING])
        found = _version_of(conn, url, version)
        if found == version:
            return
        scripts = [migrate("postgres", number) for number in range(found + 1, version + 1)]
        for script in scripts if found else [schema("postgres")]:
            conn.execute(script.encode())
        conn.execute(SQL["stamp"], {"version": version})


def _version_of(conn: Connection, url: str, known: int) -> int:
    """The version of a database; 0 if there is no store in it."""
    if conn.execute(SQL["is_there"]).fetchall() != [(True,)]:
        return 0
    ((version,),) = conn.execute(SQL["version"]).fetchall()
    if version > known:
        raise NewerFormat(
            f"{url} was made by a newer Holdfast: its schema is of version {version}, this one "
            f"knows {known}. Nothing was changed: open it with that Holdfast, or upgrade this one"
        )
    return int(version)


_ADVICE: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.DiskFull, "The server's disk is full: free some space, then run the task again"),
    (errors.InsufficientPrivilege, "The role needs to create and use the schema holdfast: ask who "
     "owns the database to grant it"),
    (errors.ReadOnlySqlTransaction, "The server takes no writes (is it a standby?): connect to the "
     "primary"),
    (errors.TooManyConnections, "The server has no connection left: raise max_connections"),
    (NoneFree, "No connection was free: raise pool_size in the URL"),
)  # fmt: skip


def failed(what: str, error: BaseException) -> StorageFailed:
    """The message when the database, or the way to it, fails."""
    advice = "What was acknowledged before is safe"
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))
    ):
        advice = (
            f"The connection was lost. {advice}: see that the server is up, then run the task "
            f"again; it goes on from here"
        )
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), advice)
    return StorageFailed(f"{what}: {_text(error)}. {advice}")


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
