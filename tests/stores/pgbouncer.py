"""A real PgBouncer in front of the PostgreSQL of the tests, for those that go through one.

It listens on a port of loopback, gives every transaction whatever session is free, and ends with
the process that started it. As root it runs as `nobody`, because it refuses to run as root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from holdfast.testing.servers import free_ports
from tests.stores.postgres_server import PostgresServer, end_with_parent

SESSIONS = 3
"""How many sessions of the server all processes share for each database."""

_CONFIG = """
[databases]
* = host={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 300
server_login_retry = 1
"""


def program() -> str | None:
    """PgBouncer, if it is installed; as a rule not on the path of those who are not root."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class PgBouncer:
    """A pooler that runs."""

    def __init__(self, server: PostgresServer, port: int) -> None:
        self._server, self._port = server, port

    def url(self, database_url: str, *, with_session: bool = True) -> str:
        """A database of the server through the pooler, with the way to a session of its own."""
        database = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
        more = f"?{urlencode({'session_host': str(self._server.folder), 'session_port': 5432})}"
        url = f"postgresql://postgres@127.0.0.1:{self._port}/{database}"
        return url + (more if with_session else "")


@contextmanager
def running(server: PostgresServer) -> Iterator[PgBouncer]:
    """A PgBouncer until the block ends; the test is skipped where there is none."""
    found = program()
    if found is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    port = next(free_ports())
    with tempfile.TemporaryDirectory(prefix="holdfast-bouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        config = folder / "pgbouncer.ini"
        config.write_text(_CONFIG.format(server=server.folder, port=port, sessions=SESSIONS))
        as_user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with open(folder / "log", "ab") as log:
            process = subprocess.Popen(
                [found, *as_user, str(config)],
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,  # noqa: PLW1509  # a bare system call
            )
        try:
            bouncer = PgBouncer(server, port)
            give_up_at = time.monotonic() + 30
            while True:
                try:
                    psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
                    break
                except psycopg.OperationalError:
                    said = (folder / "log").read_text()
                    assert process.poll() is None and time.monotonic() < give_up_at, said
                    time.sleep(0.05)
            yield bouncer
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
