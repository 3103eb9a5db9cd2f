"""`holdfast queue`: queues as people see and change them."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast, Queue, Rate, task
from holdfast.cli.commands.queue import queue
from holdfast.cli.commands.schedule import schedule


@task(name="cli_queue_job")
def job() -> None: ...


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group in (queue, schedule) for name in sorted(group.commands)],
)
def test_every_command_has_help_with_examples(cli, group, name):
    code, out, _ = cli(group.name, name, "--help")
    assert code == 0
    assert f"holdfast {group.name} {name}" in out[out.index("Examples:") :]
    assert "--json" in out and "--url" in out


def test_a_queue_is_listed_shown_paused_and_resumed(cli, folder):
    with Holdfast(folder / "workspace") as hf:
        hf.queue(Queue("reports", concurrency=3, rate=Rate(100, per_s=60)))
        hf.options(queue="reports", key="ada").start(job)
        hf.options(queue="reports", key="bob").start(job)
    listed = cli("queue", "ls")
    assert "reports" in listed.out and "3 at once, 100 every 60 s" in listed.out
    assert "2 waiting" in cli("queue", "show", "reports").out
    assert "is paused" in cli("queue", "pause", "reports", "--because", "rain").out
    shown = json.loads(cli("queue", "show", "reports", "--json").out)
    assert shown["paused"] and shown["because"] == "rain"
    assert shown["waiting_by_key"] == {"ada": 1, "bob": 1}
    assert "is open" in cli("queue", "resume", "reports").out


def test_limits_are_set_one_by_one_and_wrong_ones_refused(cli, folder):
    assert cli("queue", "set", "mail", "--concurrency", "5").code == 0
    assert "5 at once, 10 every 60 s" in cli("queue", "set", "mail", "--rate", "10/60").out
    assert "10 every 60 s" in cli("queue", "set", "mail", "--concurrency", "none").out
    wrong = cli("queue", "set", "mail", "--rate", "fast")
    assert wrong.code == 2 and "must be 100/60, or none" in wrong.err
    assert cli("queue", "show", "nowhere").code == 2
