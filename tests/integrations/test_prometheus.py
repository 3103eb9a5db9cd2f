"""Health and metrics over HTTP: what `holdfast worker --serve` has."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast, Restate, Temporal, step, task
from holdfast.errors import BadInput
from holdfast.integrations.prometheus import CONTENT_TYPE, Monitor, address_of, to_text
from holdfast.testing.servers import free_ports
from holdfast.views.metrics import Metric
from tests.engines.working import driving, until
from tests.stores.postgres_server import own_server

ROOT = Path(__file__).parents[2]
NOBODY = "127.0.0.1:1"


@step
def seen_by_prometheus(name: str) -> str:
    return name


@task
def scraped(name: str) -> str:
    return seen_by_prometheus(name)


def get(url: str) -> tuple[int, str, str]:
    try:
        with urlopen(url, timeout=10) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The text as the parser of Prometheus reads it: each sample once."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.type in ("counter", "gauge", "histogram"), family
        assert family.documentation
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), sample
            found[sample.name][labels] = sample.value
    return found


def test_the_parser_of_prometheus_reads_the_metrics():
    with Holdfast("memory://") as hf, Monitor(hf, ":0", active=lambda: 3) as monitor:
        hf.run(scraped, "x", id="x-1")
        status, kind, text = get(f"{monitor.url}/metrics")
    assert (status, kind) == (200, CONTENT_TYPE)
    found = parsed(text)
    assert found["holdfast_active_tasks"] == {(): 3}
    assert found["holdfast_store_up"] == {(): 1}
    by_type = (("status", "completed"), ("type", "scraped"))
    assert found["holdfast_tasks"] == {by_type: 1}
    assert found["holdfast_tasks_ended_total"] == {by_type: 1}
    call = (("kind", "step"), ("name", "seen_by_prometheus"))
    buckets = found["holdfast_call_duration_seconds_bucket"]
    values = [n for labels, n in buckets.items() if set(call) <= set(labels)]
    assert values == sorted(values) and values[-1] == 1  # cumulative, up to +Inf
    assert found["holdfast_call_duration_seconds_count"] == {call: 1}


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "ü🚀", "", "a b{c=", "\ud800"])
def test_every_text_survives_as_a_label(value):
    text = to_text([Metric("held", "gauge", 'A "help"\nwith \\ in it', {(("name", value),): 1.5})])
    (labels,) = parsed(text)["held"]
    assert labels == (("name", value.encode("utf-8", "replace").decode()),)


def test_no_page_but_these_three_and_nothing_but_reading():
    with Holdfast("memory://") as hf, Monitor(hf, ":0") as monitor:
        assert get(f"{monitor.url}/healthz")[0] == 200
        assert get(f"{monitor.url}/readyz?verbose=1")[0] == 200
        assert get(f"{monitor.url}/")[0] == 404
        host, port = monitor.url.removeprefix("http://").split(":")
        client = http.client.HTTPConnection(host, int(port), timeout=10)
        client.request("POST", "/metrics", b"x")
        assert client.getresponse().status == 501
        client.close()
        client.request("HEAD", "/metrics")
        reply = client.getresponse()
        assert (reply.status, reply.read()) == (200, b"")
        client.close()
        with socket.create_connection((host, int(port))) as rude:
            rude.sendall(b"\x00\xff\r\n\r\n")
            rude.recv(100)
        assert get(f"{monitor.url}/healthz")[0] == 200


@pytest.mark.parametrize("given", ["9464", "", ":x", ":-1", ":70000", "localhost:"])
def test_what_is_no_address_is_refused(given):
    with pytest.raises(BadInput, match="no address to serve at"):
        address_of(given)


def test_a_port_that_is_taken_is_told():
    with Holdfast("memory://") as hf, Monitor(hf, ":0") as monitor:
        port = monitor.url.rpartition(":")[2]
        with pytest.raises(BadInput, match="can't serve at"):
            Monitor(hf, f":{port}")


def test_one_that_ends_is_not_ready_and_still_healthy():
    with Holdfast("memory://") as hf, Monitor(hf, ":0", stopping=lambda: True) as monitor:
        status, _, text = get(f"{monitor.url}/readyz")
        assert status == 503
        assert "takes up no more tasks" in json.loads(text)["why"]
        assert get(f"{monitor.url}/healthz")[0] == 200


def test_readiness_follows_the_database_within_two_seconds():
    with own_server() as server:
        url = server.new_database()
        with Holdfast(url) as hf, Monitor(hf, ":0") as monitor:
            ready = f"{monitor.url}/readyz"
            assert get(ready)[0] == 200
            server.stop()
            assert _seconds_until(ready, 503) < 2
            status, _, text = get(f"{monitor.url}/metrics")
            assert status == 200
            assert parsed(text)["holdfast_store_up"] == {(): 0}
            server.start()
            assert _seconds_until(ready, 200) < 2
            hf.run(scraped, "x", id="x-1")
            assert "holdfast_store_up 1" in get(f"{monitor.url}/metrics")[2]


@contextmanager
def serving_worker(url: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A worker process on a store that may not be there, and where it serves its health."""
    port = next(free_ports())
    words = ["worker", "--app", __name__, "--url", url, "--serve", f":{port}"]
    process = subprocess.Popen([sys.executable, "-m", "holdfast", *words], cwd=ROOT)
    try:
        at = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{at}/healthz"))
        yield process, at
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return get(url)[0] == 200
    except OSError:  # nobody listens, or not any more
        return False


def test_a_worker_is_alive_and_not_ready_until_its_store_is_there(tmp_path):
    place = tmp_path / "trips.db"
    place.mkdir()  # so no database can be opened there
    with serving_worker(f"sqlite:///{place}") as (_, at):
        status, _, text = get(f"{at}/readyz")
        assert status == 503
        assert "can't open" in json.loads(text)["why"]
        assert parsed(get(f"{at}/metrics")[2])["holdfast_store_up"] == {(): 0}
        place.rmdir()
        until(lambda: answers(f"{at}/readyz"))


def test_a_worker_that_waits_for_its_database_ends_when_it_is_told(tmp_path):
    with serving_worker(f"postgresql://ada:secret@/trips?host={tmp_path}") as (process, at):
        assert "secret" not in get(f"{at}/readyz")[2]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    "engine",
    [Temporal(NOBODY), Restate(f"http://{NOBODY}", admin=f"http://{NOBODY}", listen="127.0.0.1:0")],
    ids=lambda engine: engine.name,
)
def test_a_worker_that_has_not_reached_its_engine_says_why_it_drives_nothing(tmp_path, engine):
    with Holdfast(f"sqlite:///{tmp_path}/w.db", engine=engine) as hf:
        worker = engine.worker(hf)
        assert worker.hindered, "before it begins"
        with driving(worker):
            until(lambda: f"{NOBODY} can't be reached" in worker.hindered)


def _seconds_until(url: str, wanted: int) -> float:
    began = time.monotonic()
    while get(url)[0] != wanted:
        assert time.monotonic() - began < 60
        time.sleep(0.02)
    return time.monotonic() - began


def test_a_server_for_metrics_loads_no_client_library():
    script = "import holdfast.integrations.prometheus, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not {"prometheus_client", "opentelemetry", "psycopg"} & set(done.stdout.split())


def test_the_dashboard_asks_only_for_metrics_that_there_are():
    import re

    board = json.loads((ROOT / "deploy/grafana.json").read_text())
    with Holdfast("memory://") as hf, Monitor(hf, ":0", active=lambda: 0) as monitor:
        text = get(f"{monitor.url}/metrics")[2]
    known = {family.name for family in text_string_to_metric_families(text)}
    asked = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"holdfast_\w+", target["expr"])
    }
    assert asked
    bare = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in asked}
    assert bare <= known, bare - known
