"""The database of the PostgreSQL store: connections to it, its schema, and what is said when it
fails."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from weakref import WeakSet

import psycopg
from msgspec import Struct
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
_TRIES = 5
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


POOL_SIZE = 4
"""How many connections a process has for what is asked of the database, if its URL says nothing."""

_SESSION = ("host", "port", "dbname", "user")


class DatabaseAddress(Struct, frozen=True):
    """Where a database is, and how many connections a process may have to it.

    `url` may lead to a pooler that gives each transaction another session, such as PgBouncer's mode
    `transaction`. Then `session_url` leads to a session that stays: see `address_of`.
    """

    url: str
    session_url: str
    pool_size: int = POOL_SIZE

    @property
    def is_pooled(self) -> bool:
        """Whether statements can't count on what one before them set or prepared."""
        return self.session_url != self.url


def address_of(url: str) -> DatabaseAddress:
    """The address in a URL, without the parameters that are our own.

    >>> address_of("postgresql://db/trips?pool_size=2&sslmode=require").url
    'postgresql://db/trips?sslmode=require'
    >>> address_of("postgresql://bouncer:6432/trips?session_host=db&session_port=5432").session_url
    'postgresql://bouncer:6432/trips?host=db&port=5432'
    """
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    ours = {"pool_size", *(f"session_{name}" for name in _SESSION)}
    said = {name: value for name, value in given if name in ours}
    if not said:
        return DatabaseAddress(url, url)
    size = said.pop("pool_size", str(POOL_SIZE))
    if not (size.isascii() and size.isdigit() and 1 <= int(size) <= 1000):
        raise BadInput(f"pool_size={size!r:.60} in the URL must be a number from 1 to 1000")
    rest = {name: value for name, value in given if name not in ours}
    session = rest | {name.removeprefix("session_"): value for name, value in said.items()}

    def with_parameters(parameters: dict[str, str]) -> str:
        return urlunsplit(parts._replace(query=urlencode(parameters, safe="/")))

    return DatabaseAddress(with_parameters(rest), with_parameters(session), int(size))


def connect(url: str, durable: bool, *, is_pooled: bool = False) -> Connection:
    """Open one connection."""
    # A statement that was prepared in one session of a pooler is unknown in the next.
    more: dict[str, Any] = {"prepare_threshold": None} if is_pooled else {}
    conn = psycopg.connect(_conninfo(url), autocommit=True, **more)
    try:
        if is_pooled:
            _configure_pooled(conn, durable)
        else:
            conn.execute(SQL["settings"], {"durable": durable})
    except BaseException:
        conn.close()
        raise
    return conn


def _configure_pooled(conn: Connection, durable: bool) -> None:
    """Of a session that others share nothing is changed but the time zone, which the pooler keeps
    apart for each of its clients."""
    ((_, commits),) = conn.execute(SQL["pooled_settings"]).fetchall()
    if durable and commits == "off":
        raise StorageFailed(
            "synchronous_commit is off in the sessions of the pooler, so a commit may be lost: "
            "turn it on for the role or the database (alter role … set synchronous_commit = on)"
        )


def _conninfo(url: str) -> str:
    """Our options, and what the URL says, which counts more."""
    try:
        return make_conninfo(**{**_OPTIONS, **conninfo_to_dict(url)})
    except psycopg.ProgrammingError as error:
        raise BadInput(f"{without_password(url)} is no address of a database: {error}") from error


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

    def __init__(self, address: DatabaseAddress, durable: bool) -> None:
        self._connect = partial(connect, address.url, durable, is_pooled=address.is_pooled)
        self._size = address.pool_size
        self._lock = threading.Lock()
        self._taken: WeakSet[_Place] = WeakSet()
        self._free: list[Connection] = []
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """A connection, for this thread alone until the block ends."""
        place = self._place()
        try:
            conn = self._live() or self._connect()
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

    def __init__(self, address: DatabaseAddress, durable: bool) -> None:
        self._connect = partial(connect, address.url, durable, is_pooled=address.is_pooled)
        self._conn: Connection | None = None

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """The connection, made (anew) if need be."""
        conn = self._live() or self._connect()
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
    url = address_of(url).session_url
    name = without_password(url)
    with _opened(url, durable) as conn:
        _must_keep_session(conn, url)
        if not migrates:
            must_be_current(_version_of(conn, name, VERSION), VERSION, name)
        bring_up_to_date(conn, name)


def _must_keep_session(conn: Connection, url: str) -> None:
    """Refuse a pooler of transactions in place of a session: the lock that shows that this process
    is alive, and what it listens to, would be somebody else's."""
    ((pid,),) = conn.execute("select pg_backend_pid()").fetchall()
    if pid == conn.info.backend_pid:  # it is the server itself that answers
        return
    with connect(url, True) as other:
        for _ in range(_TRIES):
            ((now,),) = conn.execute(SQL["mark_session"], {"mark": str(pid)}).fetchall()
            ((marked,),) = other.execute(SQL["marked_session"]).fetchall()
            if now != pid or marked == str(pid):
                raise StorageFailed(
                    f"{without_password(url)} leads to a pooler that gives each transaction "
                    f"another session, and one connection of a process needs a session of its own: "
                    f"add ?session_host=…&session_port=… of the server itself to the URL, or the "
                    f"session_dbname of a pool in session mode"
                )


def version_in(url: str) -> int:
    """The version of the schema in a database; 0 if there is none."""
    url = address_of(url).session_url
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
