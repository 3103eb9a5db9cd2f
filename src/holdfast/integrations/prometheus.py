"""Metrics in the text format of Prometheus, and the small server that has them beside `/healthz`
and `/readyz`: what `holdfast worker --serve :9464` starts.

    /healthz   200 while the process answers
    /readyz    200 while the store answers and the worker takes up tasks, else 503 and why
    /metrics   what this process did, and how the tasks of the store stand

The format needs no library. The server is that of the standard library, and listens on loopback
unless it is told a host: the pages name your tasks, and ask nobody for a password.

The store is asked by a thread of its own, twice a second. A store that hangs does not hang a page:
what it said last is shown, and how old that is.

Public, by the names in `__all__`. Read `Monitor` first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from types import TracebackType
from typing import Any, Self

import msgspec

from holdfast.api.app import Holdfast
from holdfast.core.events import VERSION
from holdfast.core.usage import Prices
from holdfast.errors import BadInput, HoldfastError
from holdfast.stores.port import Query, Store
from holdfast.views.metrics import Histogram, Labels, Metric, WriteMeter, meter_of, standing

__all__ = ["Monitor", "address_of", "to_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"

_ASK_EVERY_S, _STALE_S = 0.5, 1.5
"""How often the store is asked, and after how long without an answer it counts as away."""
_STAND_EVERY_S, _SHARE = 5.0, 20
"""How often tasks are counted at most: every 5 s, and for no more than a twentieth of the time."""
_CLIENT_S = 5.0


def to_text(metrics: Iterable[Metric]) -> str:
    r"""Metrics in the text format of Prometheus.

    >>> to_text([Metric("up", "gauge", "Is it?", {(("store", 'a"b'),): 1.0})])
    '# HELP up Is it?\n# TYPE up gauge\nup{store="a\\"b"} 1\n'
    """
    return "".join(line for metric in metrics for line in _lines(metric))


def _lines(family: Metric) -> Iterator[str]:
    help = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {help}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for labels, value in sorted(family.values.items(), key=lambda item: item[0]):
        if not isinstance(value, Histogram):
            yield f"{family.name}{_labels(labels)} {_number(value)}\n"
            continue
        for bound, count in value.cumulative():
            yield f"{family.name}_bucket{_labels((*labels, ('le', _number(bound))))} {count}\n"
        yield f"{family.name}_bucket{_labels((*labels, ('le', '+Inf')))} {value.count}\n"
        yield f"{family.name}_sum{_labels(labels)} {_number(value.sum)}\n"
        yield f"{family.name}_count{_labels(labels)} {value.count}\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    plain = value.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(value)


def address_of(text: str) -> tuple[str, int]:
    """The host and the port that `--serve` names; loopback if it names no host.

    >>> address_of(":9464"), address_of("0.0.0.0:80"), address_of("[::1]:9464")
    (('127.0.0.1', 9464), ('0.0.0.0', 80), ('::1', 9464))
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BadInput(f"{text!r:.80} is no address to serve at: write :9464, or HOST:PORT")
    return host.strip("[]") or LOOPBACK, int(port)


class Monitor:
    """Serves the health and the metrics of a process that drives tasks, while it is entered.

    `active` tells how many tasks it drives, `stopping` whether it was asked to end, and `hindered`
    why it can't drive any now ('' if it can). `prices` say what tokens cost where the log does not.
    `also` gives metrics of your own.

    >>> from urllib.request import urlopen
    >>> with Holdfast("memory://") as hf, Monitor(hf, ":0") as monitor:
    ...     urlopen(f"{monitor.url}/healthz").read()
    b'ok\\n'
    """

    def __init__(
        self,
        hf: Holdfast,
        address: str = ":9464",
        *,
        active: Callable[[], int] | None = None,
        stopping: Callable[[], bool] = lambda: False,
        hindered: Callable[[], str] = str,
        prices: dict[str, Prices] | None = None,
        also: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        self.meter: WriteMeter = meter_of(hf._holding, prices)
        self._active, self._also = active, also
        self._stopping, self._hindered = stopping, hindered
        self._hf = hf
        self._asking = _Asking(hf.store)
        self._standing: tuple[Metric, ...] = ()
        self._next_stand = 0.0
        self._lock = threading.Lock()
        self._server = _Server(address, self.page)
        self.url: str = self._server.url

    def __enter__(self) -> Self:
        self._asking.start()
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop()
        self._asking.stop()

    def page(self, path: str) -> tuple[int, str, bytes]:
        """The status, the content type and the body of a page."""
        return _page(path, self._hf.store.url, self._unready, self._metrics)

    def _unready(self) -> str:
        ending = "it is ending, and takes up no more tasks" if self._stopping() else ""
        return self._problem() or ending

    def _problem(self) -> str:
        return self._asking.problem() or self._hindered()

    def _metrics(self) -> Iterator[Metric]:
        problem = self._problem()
        about = (("version", VERSION), ("engine", self._hf.engine.name))
        yield Metric("holdfast_info", "gauge", "What this process is.", {about: 1.0})
        yield _store_up(not problem)
        if self._active is not None:
            number = float(self._active())
            yield Metric(
                "holdfast_active_tasks", "gauge", "Tasks that this process drives now.",
                {(): number},
            )  # fmt: skip
        yield from self.meter.metrics()
        yield from self._stood(is_away=bool(problem))
        yield from self._also()

    def _stood(self, *, is_away: bool) -> tuple[Metric, ...]:
        """How the tasks stand, counted not too often; nothing while nobody can tell."""
        if is_away:
            return ()
        with self._lock:
            if time.monotonic() >= self._next_stand:
                began = time.monotonic()
                try:
                    self._standing = tuple(standing(self._hf.store, datetime.now(UTC)))
                except HoldfastError:
                    self._standing = ()
                took_s = time.monotonic() - began
                self._next_stand = time.monotonic() + max(_STAND_EVERY_S, took_s * _SHARE)
            return self._standing


@contextmanager
def waiting_for_store(address: str, store_url: str, why: Callable[[], str]) -> Iterator[None]:
    """Serve the same pages for a process whose store can't be opened yet: it lives, and is not
    ready."""

    def page(path: str) -> tuple[int, str, bytes]:
        about = Metric("holdfast_info", "gauge", "What this process is.", {_VERSION: 1.0})
        return _page(path, store_url, why, lambda: (about, _store_up(False)))

    server = _Server(address, page)
    server.start()
    try:
        yield
    finally:
        server.stop()


_VERSION: Labels = (("version", VERSION),)


def _store_up(is_up: bool) -> Metric:
    return Metric("holdfast_store_up", "gauge", "Whether the store answers.", {(): float(is_up)})


def _page(
    path: str, store_url: str, unready: Callable[[], str], metrics: Callable[[], Iterable[Metric]]
) -> tuple[int, str, bytes]:
    if path == "/healthz":
        return 200, "text/plain; charset=utf-8", b"ok\n"
    if path == "/readyz":
        why = unready()
        body = msgspec.json.encode({"ready": not why, "store": store_url, "why": why})
        return 503 if why else 200, "application/json", body + b"\n"
    if path == "/metrics":
        return 200, CONTENT_TYPE, to_text(metrics()).encode()
    return 404, "text/plain; charset=utf-8", b"there are /healthz, /readyz and /metrics\n"


class _Asking:
    """Asks the store, again and again, whether it is there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended = threading.Event()
        self._answered = 0.0
        self._why = "the store was not asked yet"
        self._first = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._ask, name="holdfast health", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def problem(self) -> str:
        """Why the store can't be used now; '' if it can."""
        self._first.wait(_STALE_S)
        if self._why:
            return self._why
        silent_s = time.monotonic() - self._answered
        return f"the store has not answered for {silent_s:.1f} s" if silent_s > _STALE_S else ""

    def _ask(self) -> None:
        ping = getattr(self._store, "ping", None) or self._look
        while not self._ended.is_set():
            try:
                ping()
                self._answered, self._why = time.monotonic(), ""
            except HoldfastError as error:
                self._why = str(error)
            except Exception as error:
                self._why = f"{type(error).__name__}: {error}"
            self._first.set()
            self._ended.wait(_ASK_EVERY_S)

    def _look(self) -> None:
        self._store.find(Query(limit=1))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: str, page: Callable[[str], tuple[int, str, bytes]]) -> None:
        host, port = address_of(address)
        if ":" in host:
            self.address_family = AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise BadInput(f"can't serve at {host}:{port}: {error}") from None
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self.server_address[1]}"
        self.page = page

    def start(self) -> None:
        """Answer from now on, in a thread."""
        threading.Thread(
            target=self.serve_forever, args=(0.2,), name="holdfast serve", daemon=True
        ).start()

    def stop(self) -> None:
        """Answer no more, and leave the port."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's business."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_S
    server: _Server

    def do_GET(self) -> None:
        status, kind, body = self.server.page(self.path.partition("?")[0])
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said of each request."""
