"""The engines of the example: a server on this machine, and how it is reached.

What says where an engine is goes to the worker as words: `temporal 127.0.0.1:21234`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.testing.servers import RestateServer, Server, TemporalServer, free_ports

LOST_AFTER_S = 3.0
"""A dead worker is noticed sooner than by default: somebody may be watching."""


def engine_of(name: str, *where: str) -> Any:
    """The engine that these words name."""
    if name == "temporal":
        from holdfast import Temporal

        return Temporal(where[0], queue="reports", lost_after_s=LOST_AFTER_S)
    from holdfast import Restate

    url, admin, listen = where
    return Restate(url, admin=admin, listen=listen)


def temporal(folder: Path) -> tuple[Server, list[str], str]:
    """A server, not started yet; the words that name it; and its web page."""
    server = TemporalServer(folder, web=True)
    page = f"{server.web_url}/namespaces/{server.namespace}/workflows"
    return server, ["temporal", server.address], page


def restate(folder: Path) -> tuple[Server, list[str], str]:
    """The same for Restate; its words also say where a worker listens."""
    server = RestateServer(folder)
    listen = f"127.0.0.1:{next(free_ports())}"
    return server, ["restate", server.url, server.admin_url, listen], f"{server.admin_url}/ui/"


SERVERS: dict[str, Callable[[Path], tuple[Server, list[str], str]]] = {
    "temporal": temporal,
    "restate": restate,
}
