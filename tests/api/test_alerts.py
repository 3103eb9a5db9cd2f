"""Alerts: who is told of what, at least once, and recorded; and upkeep in the background."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Retention, Worker, ask, task
from holdfast.api.alerts import ALERT, Alert
from holdfast.api.schedules import Background
from holdfast.errors import BadInput


@task
def founders() -> None:
    raise RuntimeError("a leak")


@task
def asks_for_alert() -> bool:
    return ask("Sail?", bool, id="sail")


@task
def fine() -> str:
    return "fine"


def work(hf: Holdfast) -> None:
    Worker(hf).run_until_idle()


def test_each_reason_is_told_once_however_often_somebody_looks(hf):
    told: list[Alert] = []
    hf.on("failed", "asks", do=told.append)
    hf.watch()
    hf.start(founders, id="boat-1", user="ada", labels={"team": "a"})
    hf.start(asks_for_alert, id="boat-2")
    hf.start(fine, id="boat-3")
    work(hf)
    for _ in range(3):
        hf.watch()
        work(hf)
    found = {(alert.reason, alert.task, alert.text) for alert in told}
    assert len(told) == 2
    assert found == {
        ("failed", "boat-1", "RuntimeError: a leak"),
        ("asks", "boat-2", "Sail?"),
    }
    first = next(alert for alert in told if alert.reason == "failed")
    assert (first.user, first.labels) == ("ada", {"team": "a"})
    assert [task.status for task in hf.tasks(type=ALERT)] == ["completed", "completed"]
    with Holdfast(hf.store.url) as other:  # another worker, which has seen nothing
        other.on("failed", "asks", do=told.append)
        other.watch()
        work(other)
    assert len(told) == 2
    # It fails again: that is another failure.
    hf.retry("boat-1", worker=True)
    work(hf)
    hf.watch()
    work(hf)
    assert len(told) == 3


def test_what_was_wrong_before_anybody_wanted_to_know_is_not_told(hf):
    told: list[Alert] = []
    hf.start(founders, id="old")
    work(hf)
    hf.on("failed", do=told.append)
    hf.watch()
    work(hf)
    assert told == []


def test_a_task_that_takes_too_long_is_told_of_once(hf):
    told: list[Alert] = []
    hf.on("overdue", older_than=timedelta(0), type="asks_for_alert", do=told.append)
    hf.start(asks_for_alert, id="slow")
    hf.start(fine, id="other")
    for _ in range(3):
        hf.watch()
        work(hf)
    assert [(alert.reason, alert.task) for alert in told] == [("overdue", "slow")]


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """A web server that fails at first."""
    got: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((dict(self.headers), body))
            self.send_response(500 if len(got) == 1 else 204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_is_signed_and_tried_again_with_the_same_key(hf, receiver):
    url, got = receiver
    hf.on("failed", webhook=url, secret="whsec")
    hf.watch()
    hf.start(founders, id="boat-1")
    work(hf)
    hf.watch()
    give_up_at = time.monotonic() + 60
    while len(got) < 2:
        assert time.monotonic() < give_up_at
        work(hf)
    (first, _), (second, body) = got
    assert first["Idempotency-Key"] == second["Idempotency-Key"]
    when, made = (part.split("=")[1] for part in second["Holdfast-Signature"].split(","))
    expected = hmac.new(b"whsec", f"{when}.".encode() + body, sha256).hexdigest()
    assert hmac.compare_digest(made, expected)
    told = json.loads(body)
    assert (told["reason"], told["task"]) == ("failed", "boat-1")
    (alert,) = hf.tasks(type=ALERT)
    assert alert.calls[0].failures == 1
    assert b"whsec" not in b"".join(hf.store.read(f"tasks/{alert.id}"))


def test_a_receiver_that_is_away_for_hours_is_told_when_it_is_back(hf, holdfast_clock):
    told: list[Alert] = []
    back = holdfast_clock.now + timedelta(hours=2)

    def tell(alert: Alert) -> None:
        if holdfast_clock.now < back:
            raise OSError("nobody is there")
        told.append(alert)

    hf.on("failed", do=tell)
    hf.watch()
    hf.start(founders, id="boat-1")
    work(hf)
    hf.watch()
    work(hf)
    assert [alert.task for alert in told] == ["boat-1"]


def test_a_command_gets_the_alert_on_its_standard_input(hf, tmp_path):
    out = tmp_path / "told"
    hf.on("failed", command=["sh", "-c", f'cat > {out}; echo "$HOLDFAST_ALERT_TASK" >> {out}'])
    hf.watch()
    hf.start(founders, id="boat-1")
    work(hf)
    hf.watch()
    work(hf)
    told, line = Path(out).read_text().rsplit("}", 1)
    assert json.loads(told + "}")["text"] == "RuntimeError: a leak"
    assert line.strip() == "boat-1"


@pytest.mark.parametrize(
    ("reasons", "given", "complaint"),
    [
        ((), {"do": print}, "give some of"),
        (("exploded",), {"do": print}, "give some of"),
        (("failed",), {"command": "notify"}, "a list of words"),
        (("failed",), {"command": []}, "a list of words"),
        (("failed",), {"webhook": "file:///etc/passwd"}, "URL of a web server"),
        (("failed",), {"do": print, "webhook": "https://x"}, "needs one of"),
        (("failed",), {"do": print, "secret": "x"}, "only a webhook"),
        (("overdue",), {"do": print}, "go together"),
        (("failed",), {"do": print, "older_than": timedelta(1)}, "go together"),
    ],
)
def test_what_makes_no_sense_is_refused(hf, reasons, given, complaint):
    with pytest.raises(BadInput, match=complaint):
        hf.on(*reasons, **given)


def test_workers_clean_up_by_themselves_one_at_a_time(tmp_path):
    policy = Retention(keep_last=1, grace=timedelta(0))
    with Holdfast(tmp_path / "w", retention=policy) as hf:
        for n in range(4):
            hf.run(fine, id=f"fine-{n}")
        said: list[str] = []
        both = [Background(hf, said.append, clean_every_s=0.05) for _ in range(2)]
        with both[0], both[1]:
            give_up_at = time.monotonic() + 60
            while len(hf.page().tasks) > 1 or not any(each.cleaned for each in both):
                assert time.monotonic() < give_up_at
                time.sleep(0.01)
        assert [task.id for task in hf.tasks()] == ["fine-3"]
        assert [line for line in said if "deleted" in line] == [
            "upkeep: deleted 3 tasks, as the retention says"
        ]


def test_a_worker_looks_for_alerts_while_it_runs(hf, monkeypatch):
    monkeypatch.setattr("holdfast.api.schedules.LOOK_EVERY_S", 0.02)
    told: list[Alert] = []
    hf.on("failed", do=told.append)
    hf.watch()
    hf.start(founders, id="boat-1")
    worker = Worker(hf, poll_s=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    give_up_at = time.monotonic() + 60
    while not told:
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    worker.stop()
    thread.join()
    assert [alert.task for alert in told] == ["boat-1"]


def test_a_worker_without_the_hook_leaves_an_alert_to_one_that_has_it(hf, monkeypatch):
    told: list[Alert] = []
    hf.on("failed", do=told.append, name="pager")
    hf.watch()
    hf.start(founders, id="boat-1")
    work(hf)
    hf.watch()
    work(hf)
    assert [alert.task for alert in told] == ["boat-1"]
    hf.retry("boat-1", worker=True)
    said: list[str] = []
    with monkeypatch.context() as elsewhere:
        work(hf)
        hf.watch()
        elsewhere.setattr("holdfast.api.alerts._hooks", {})
        Worker(hf, say=said.append).run_until_idle()
        [waits] = [task for task in hf.tasks(type=ALERT) if task.status != "completed"]
        assert (waits.status, waits.state.claims, waits.state.calls) == ("pending", 0, {})
        assert [line for line in said if "no hook 'pager'" in line]
    work(hf)
    assert len(told) == 2


def test_settings_name_who_is_told_and_what_is_kept(tmp_path, monkeypatch):
    from holdfast.api.settings import add_hooks, retention_of

    (tmp_path / "pyproject.toml").write_text(
        '[tool.holdfast.retention]\nolder_than = "30d"\nkeep_last = 5\n'
        '[[tool.holdfast.alerts]]\non = ["failed", "stuck"]\nwebhook = "https://x.example/y"\n'
        'secret_env = "HOOK"\n'
        '[[tool.holdfast.alerts]]\non = ["overdue"]\nolder_than = "2h"\ncommand = ["notify"]\n'
    )
    policy = retention_of(tmp_path)
    assert policy is not None
    assert (policy.older_than, policy.keep_last) == (timedelta(days=30), 5)
    with Holdfast("memory://") as hf:
        with pytest.raises(BadInput, match="no such variable"):
            add_hooks(hf, {}, tmp_path, print)
        add_hooks(hf, {"HOOK": "s"}, tmp_path, print)
        assert [hook.reasons for hook in hf.hooks] == [("failed", "stuck"), ("overdue",)]
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast.retention]\nolder_than = "soon"\n')
    with pytest.raises(BadInput, match="no length of time"):
        retention_of(tmp_path)
