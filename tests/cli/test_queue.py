"""`holdfast queue`: queues as people see and change them."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast, Limit, Queue, Rate, step, task
from holdfast.cli.commands.queue import queue
from holdfast.cli.commands.schedule import schedule


@task(name="cli_queue_job")
def job() -> None: ...


@step(limit=Limit("shop", per_minute=60, concurrency=2))
def sell() -> None: ...


@task(name="cli_limited_job")
def limited_job() -> None:
    sell()


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


def test_a_worker_declares_the_queues_of_the_settings(cli, folder):
    (folder / "pyproject.toml").write_text(
        '[tool.holdfast]\napp = "queue_jobs"\n'
        '[tool.holdfast.queues.reports]\nconcurrency = 3\nrate = "100/60"\n'
        '[tool.holdfast.queues."to print"]\nkey_concurrency = 1\nsingleton = "first"\n'
    )
    (folder / "queue_jobs.py").write_text("raise SystemExit('only workers may import this')\n")
    with Holdfast(folder / "workspace") as hf:
        hf.queue(Queue("reports", concurrency=1, expires_s=9))
    assert "1 at once, expires after 9 s" in cli("queue", "ls").out  # reads, and imports nothing
    (folder / "queue_jobs.py").write_text("")
    assert cli("worker", "--until-idle").code == 0
    with Holdfast(folder / "workspace") as hf:
        assert [each.info().queue for each in hf.queues()] == [
            Queue("reports", concurrency=3, rate=Rate(100, per_s=60)),
            Queue("to print", key_concurrency=1, singleton="first"),
        ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("concurrency = 0", "queues.reports]: queue 'reports': concurrency=0 must be a whole"),
        ('rate = "often"', "queues.reports]: 'often' is no rate: write 100/60"),
        ('rate = "0/60"', "queues.reports]: Rate(count=0.0) must be above 0"),
        ("at_once = 3", "at_once"),
    ],
)
def test_a_queue_in_the_settings_that_makes_no_sense_is_refused(cli, folder, line, says):
    (folder / "pyproject.toml").write_text(
        f'[tool.holdfast]\napp = "queue_jobs"\n[tool.holdfast.queues.reports]\n{line}\n'
    )
    (folder / "queue_jobs.py").write_text("")
    found = cli("worker", "--until-idle")
    assert found.code == 2 and says in " ".join(found.err.split())


def test_a_limit_is_listed_changed_and_given_back_to_the_code(cli, folder):
    with Holdfast(folder / "workspace") as hf:
        hf.run(limited_job)
    assert "60 a minute, 2 at once" in cli("queue", "limits").out
    assert "30 a minute, 2 at once" in cli("queue", "set-limit", "shop", "--per-minute", "30").out
    one = json.loads(cli("queue", "set-limit", "shop", "--concurrency", "none", "--json").out)
    assert one == {"name": "shop", "per_minute": 30.0}
    assert "30 a minute (set)" in cli("queue", "limits").out
    assert "60 a minute, 2 at once" in cli("queue", "set-limit", "shop", "--as-in-code").out
    assert "(set)" not in cli("queue", "limits").out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["shop"], "say what to change"),
        (["shop", "--per-minute", "3", "--as-in-code"], "say what to change"),
        (["shop", "--per-minute", "fast"], "--per-minute 'fast' must be a number, or none"),
        (["shop", "--per-minute", "0"], "must be above 0"),
        (["shop", "--per-minute", "none", "--concurrency", "none"], "limits nothing"),
        (["ship", "--per-minute", "3"], "no call was made under a limit 'ship' (there: shop)"),
    ],
)
def test_a_change_of_a_limit_that_makes_no_sense_is_refused(cli, folder, given, says):
    with Holdfast(folder / "workspace") as hf:
        hf.run(limited_job)
    found = cli("queue", "set-limit", *given)
    assert found.code == 2 and says in " ".join(found.err.split())
    assert "60 a minute, 2 at once" in cli("queue", "limits").out


def test_a_schedule_shows_who_started_its_task_by_hand(cli, folder):
    with Holdfast(folder / "workspace") as hf:
        hf.schedule(limited_job, every_s=86_400, name="nightly")
        id = hf.schedule("nightly").run_now(by="ada")
    shown = cli("schedule", "show", "nightly").out
    assert "started by ada (run now)" in " ".join(shown.split()) and id[:20] in shown
    (mark,) = json.loads(cli("schedule", "show", "nightly", "--json").out)["history"]
    assert (mark["how"], mark["by"], mark["task"]) == ("run_now", "ada", id)
