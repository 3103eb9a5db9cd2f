"""The support example: run again it goes on, or shows what was; with a key it asks the provider."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.support.script import script
from examples.trip.client import World, start_world
from holdfast import Holdfast
from holdfast.testing.scripted import Fault, ScriptedModel

ROOT = Path(__file__).parents[2]
TALK = "--- The conversation of session support-ada ---"


def run(workspace, *options, **environment):
    """The command as a user gives it; without keys, unless they are given."""
    keyless = {name: value for name, value in os.environ.items() if "_API_KEY" not in name}
    return subprocess.run(
        [sys.executable, "-m", "examples.support", "--workspace", workspace, *options],
        cwd=ROOT,
        env=keyless | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def conversation(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.partition(TALK)[2]


def effects(workspace):
    with start_world(workspace / "shop.db") as (_, url):
        return [(row["kind"], row["reference"]) for row in World(url).rows()]


def test_run_twice_it_shows_the_same_conversation_and_does_nothing_again(tmp_path):
    first = run(tmp_path)
    assert "Its replies are a script, served on this machine: there is no key." in first.stdout
    assert "the agent asks: Shall I pay back 49.00" in first.stdout
    seen = conversation(first)
    assert "assistant: The confirmation is on its way to ada@example.com." in seen
    assert "Older turns in short" in seen
    made = effects(tmp_path)
    assert [kind for kind, _ in made] == ["payments", "mails"]
    again = run(tmp_path)
    assert conversation(again) == seen
    assert "the agent asks" not in again.stdout
    assert effects(tmp_path) == made


@pytest.mark.parametrize(("provider", "prefix"), [("openai", "OPENAI"), ("anthropic", "ANTHROPIC")])
def test_with_a_key_it_asks_that_provider(tmp_path, provider, prefix):
    with ScriptedModel(script) as server:
        given = {f"{prefix}_API_KEY": "a key", f"{prefix}_BASE_URL": server.url}
        done = run(tmp_path, **given)
    assert f", of {provider}." in done.stdout
    assert "is on its way to ada@example.com." in conversation(done)
    assert len(server.requests) == 11
    assert all(seen.data["stream"] for seen in server.requests)
    assert all("a key" in " ".join(seen.headers.values()) for seen in server.requests)


def test_a_provider_without_its_key_is_refused(tmp_path):
    done = run(tmp_path, "--provider", "anthropic")
    assert done.returncode == 2 and "needs its key in ANTHROPIC_API_KEY" in done.stderr


def test_a_wrong_key_is_said_and_the_next_run_tries_anew(tmp_path):
    with ScriptedModel(lambda seen: Fault(401, message="no such key")) as server:
        done = run(tmp_path, OPENAI_API_KEY="wrong", OPENAI_BASE_URL=server.url)
    assert done.returncode == 1
    assert "task 'where-is-it' failed" in done.stderr and "no such key" in done.stderr
    assert "is on its way to ada@example.com." in conversation(run(tmp_path))
    with Holdfast(tmp_path / "agent") as hf:
        tasks = [(view.id, view.status) for view in hf.session("support-ada").tasks()]
    assert tasks == [(id, "completed") for id in ("where-is-it", "refund-it", "confirm-it")]


def test_killed_in_the_middle_it_goes_on(tmp_path):
    """Killed by the model, so to say: when it is asked for the seventh time."""
    calm = conversation(run(tmp_path / "calm"))
    workspace = tmp_path / "killed"
    running: list[subprocess.Popen[str]] = []

    def deadly(seen):
        if seen.count == 7:
            running[0].send_signal(signal.SIGKILL)
        return script(seen)

    with ScriptedModel(deadly) as server:
        given = {"OPENAI_API_KEY": "a key", "OPENAI_BASE_URL": server.url}
        command = [sys.executable, "-m", "examples.support", "--workspace", str(workspace)]
        environment = dict(os.environ) | given
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            running.append(process)
        assert process.returncode == -signal.SIGKILL
        again = run(workspace, **given)
    assert conversation(again).replace(str(workspace), str(tmp_path / "calm")) == calm
    assert [kind for kind, _ in effects(workspace)] == ["payments", "mails"]
