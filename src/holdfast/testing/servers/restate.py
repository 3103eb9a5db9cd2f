"""Restate's server as a single node, with settings for one machine."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.testing.servers.running import LOOPBACK, Server, free_ports, restate_server, status

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

    Without `durable` it may lose the latest in a power cut, but not when it is killed. Whatever a
    service fails with, it is asked again within half a second, and without end.

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
        self.url = f"http://{LOOPBACK}:{self._ports['ingress_port']}"
        self.admin_url = f"http://{LOOPBACK}:{self._ports['admin_port']}"

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
