"""The web app over real HTTP: its server and its worker are killed, and no order is done twice."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.stores.every import new_url, postgres_server  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
TEA = {"item": "tea", "count": 5}


class Site:
    """The web app in processes of its own, and how to talk to it."""

    def __init__(self, url: str, place: Path) -> None:
        self.url = url
        self.ledger = place / "ledger.txt"
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, what: str) -> None:
        words = [sys.executable, "-m", "examples.webapp", what, "--url", self.url]
        if what == "serve":
            words += ["--port", str(self.port)]
        env = {**os.environ, "WEBAPP_LEDGER": str(self.ledger), "WEBAPP_WORK_S": "0.02"}
        self._processes[what] = subprocess.Popen(words, cwd=ROOT, env=env)
        while what == "serve":
            with suppress(OSError):
                self.ask("GET", "/orders")
                return
            assert self._processes[what].poll() is None, "the server ended"
            time.sleep(0.05)

    def kill(self, what: str) -> None:
        process = self._processes.pop(what)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for what in list(self._processes):
            self.kill(what)

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        headers = {"Idempotency-Key": key} if key else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def follow(self, id: str, last: int = 0) -> Iterator[tuple[int, str]]:
        """The events of an order until it ends, over as many connections as it takes."""
        for seq, _, data in self.sent(f"/orders/{id}/events", str(last or "")):
            yield int(seq), data

    def note(self, id: str) -> str:
        """The note to the customer, as a browser has it in the end."""
        shown = ""
        for _, kind, data in self.sent(f"/orders/{id}/note"):
            shown = "" if kind == "anew" else shown + json.loads(data)
        return shown

    def sent(self, path: str, last: str = "") -> Iterator[tuple[str, str, str]]:
        """Server-sent events until the end, over as many connections as it takes."""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            with suppress(OSError, http.client.HTTPException):
                for id, kind, data in self._stream(path, last):
                    if kind == "end":
                        return
                    last = id
                    yield id, kind, data
            time.sleep(0.05)
        raise AssertionError(f"{path} did not end in time")

    def _stream(self, path: str, last: str) -> Iterator[tuple[str, str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers={"Last-Event-ID": last} if last else {})
            response, kind = connection.getresponse(), ""
            for line in response:
                name, _, text = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    last = text
                elif name == "event":
                    kind = text
                elif name == "data":
                    yield last, kind, text
        finally:
            connection.close()

    def until(self, id: str, status: str) -> Any:
        give_up_at = time.monotonic() + PATIENCE_S
        while (found := self.ask("GET", f"/orders/{id}")[1])["status"] != status:
            assert time.monotonic() < give_up_at, f"{id} is not {status}: {found}"
            time.sleep(0.05)
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def site(request, new_url, tmp_path):  # noqa: F811
    made = Site(new_url(request.param), tmp_path)
    Holdfast(made.url).close()
    made.start("serve")
    made.start("worker")
    yield made
    made.stop()


def test_an_order_goes_its_way_though_everything_is_killed(site):
    assert site.ask("POST", "/orders", {"item": "tea", "count": 5}, key="o-1") == (
        202,
        {"id": "o-1"},
    )
    seen: list[tuple[int, str]] = []
    notes: list[str] = []
    readers = [
        threading.Thread(target=lambda: seen.extend(site.follow("o-1"))),
        threading.Thread(target=lambda: notes.append(site.note("o-1"))),
    ]
    for reader in readers:
        reader.start()
    site.kill("worker")
    site.kill("serve")
    site.start("worker")
    site.start("serve")
    assert site.ask("POST", "/orders", {"item": "tea", "count": 5}, key="o-1") == (
        202,
        {"id": "o-1"},
    )
    (asked,) = site.until("o-1", "awaiting_user")["asks"]
    site.kill("worker")
    assert site.ask("POST", f"/orders/o-1/answers/{asked['id']}", True)[0] == 200
    assert site.ask("POST", f"/orders/o-1/answers/{asked['id']}", True)[0] == 409
    site.start("worker")
    sent = [site.ask("POST", "/orders/o-1/messages/address", "Pier 4", key="m-1") for _ in range(2)]
    assert sent == [(200, {"sent": True}), (200, {"sent": False})]
    done = site.until("o-1", "completed")
    assert done["receipt"] == {"item": "tea", "count": 5, "paid": 150, "sent_to": "Pier 4"}
    for reader in readers:
        reader.join()
    note = "Thank you for your order of 5 × tea. It is on its way. "
    assert notes == [note] == [site.note("o-1")]
    with Holdfast(site.url) as hf:
        recorded = [event.seq for event in hf.task("o-1").events()]
    assert [seq for seq, _ in seen] == recorded, "each event once, and in order"
    assert len(site.ledger.read_text().splitlines()) == 1, "paid once"
    assert site.ask("GET", "/orders?status=completed")[1]["orders"] == [
        {"id": "o-1", "status": "completed"}
    ]


def test_the_worker_ends_with_the_app_that_started_it(tmp_path):
    site = Site(f"sqlite:///{tmp_path}/orders.db", tmp_path)
    words = [sys.executable, "-m", "examples.webapp", "--url", site.url, "--port", str(site.port)]
    both = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    try:
        while True:
            with suppress(OSError):
                site.ask("GET", "/orders")
                break
            assert both.poll() is None, "the server ended"
            time.sleep(0.05)
        both.send_signal(signal.SIGTERM)
        both.communicate(timeout=PATIENCE_S)  # the pipe closes when the worker has ended too
    finally:
        with suppress(ProcessLookupError):
            os.killpg(both.pid, signal.SIGKILL)
        both.wait()


def test_a_small_order_asks_nobody_and_a_refused_one_is_not_paid(site):
    site.ask("POST", "/orders", {"item": "tea", "count": 1}, key="small")
    site.ask("POST", "/orders/small/messages/address", "Pier 4")
    assert site.until("small", "completed")["receipt"]["paid"] == 30
    site.ask("POST", "/orders", {"item": "tea", "count": 4}, key="large")
    site.until("large", "awaiting_user")
    site.ask("POST", "/orders/large/answers/pay", False)
    assert site.until("large", "completed")["receipt"] is None
    assert len(site.ledger.read_text().splitlines()) == 1


def test_what_is_wrong_is_said_to_the_client(site):
    for order, named in (
        ({"item": "tea", "count": 0}, "count"),
        ({"count": 1}, "item"),
        (7, "Order"),
    ):
        status, answer = site.ask("POST", "/orders", order, key="bad")
        assert (status, named in answer["error"]) == (422, True), answer
    assert site.ask("GET", "/orders/bad")[0] == 404, "nothing was written"
    assert site.ask("GET", "/orders/nobody/events")[0] == 404
    site.ask("POST", "/orders", {"item": "tea", "count": 5}, key="o-2")
    status, answer = site.ask("POST", "/orders", {"item": "tea", "count": 6}, key="o-2")
    assert status == 409, answer
    site.until("o-2", "awaiting_user")
    status, answer = site.ask("POST", "/orders/o-2/answers/pay", "perhaps")
    assert (status, "bool" in answer["error"]) == (422, True)
    assert site.ask("POST", "/orders/o-2/cancel")[1] == {"status": "cancelled"}
