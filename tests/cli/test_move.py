"""`holdfast move`, and which engine a command is given"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, Unanswered, ask, task
from holdfast.api.settings import engine_settings
from holdfast.cli.opening import engine_of
from holdfast.cli.settings import Given
from holdfast.core.events import PauseRequested
from holdfast.errors import BadInput
from holdfast.log.reading import read_events, stream_of
from tests.engines.toy import SHARED, drive

TOY = "tests.engines.toy:SHARED"


@task
def cli_moved(name: str) -> str:
    return f"{name}: {ask('Go on?', bool)}"


@pytest.fixture
def hf(folder: Path) -> Iterator[Holdfast]:
    SHARED.__init__()  # type: ignore[misc]
    with Holdfast("workspace") as hf:
        hf.start(cli_moved, "Ada", id="m-1")
        yield hf


def test_move_gives_a_task_to_an_engine_and_takes_it_back(hf, cli):
    with pytest.raises(Unanswered):
        hf.resume("m-1")
    assert cli("move", "m-1", "--engine", TOY) == (0, "moved to toy: m-1\n", "")
    assert list(SHARED.jobs) == ["m-1"]
    assert cli("move", "m-1", "--engine", TOY) == (0, "m-1 is on toy already\n", "")
    with SHARED.serve(hf):
        code, out, _ = cli("move", "m-1", "--engine", "local", "--json")
    assert (code, json.loads(out)) == (0, {"id": "m-1", "engine": "local", "moved": ["m-1"]})
    assert hf.task("m-1").state.driver == ""


def test_move_says_how_to_go_on_after_a_task_came_back(hf, cli):
    cli("move", "m-1", "--engine", TOY)
    with SHARED.serve(hf):
        out = cli("move", "m-1", "--engine", "local").out
    resume = "holdfast resume m-1 --app MODULE"
    assert out == f"moved to local: m-1\nA worker goes on with it, or:  {resume}\n"


def test_an_answer_says_who_goes_on_with_a_task_of_an_engine(hf, cli):
    with pytest.raises(Unanswered):
        hf.resume("m-1")
    cli("move", "m-1", "--engine", TOY)
    out = cli("answer", "m-1", "1", "true").out
    assert out == "answered: question 1\nA worker of toy goes on with it.\n"


def test_move_gives_up_where_no_worker_takes_the_message(hf, cli):
    cli("move", "m-1", "--engine", TOY)
    code, _, err = cli("move", "m-1", "--engine", "local", "--timeout", "0.01")
    assert code == 4
    assert "no worker of toy has heard of it (holdfast worker --engine toy …)" in err
    assert "stays in its inbox" in err


def test_move_takes_a_task_from_an_engine_that_is_gone(hf, cli):
    cli("move", "m-1", "--engine", TOY)
    SHARED.is_down = True
    err = cli("move", "m-1", "--engine", "local", "--timeout", "0.01").err
    assert "gone for good, or can't go on with it, take it: " in err
    assert err.endswith("holdfast move m-1 --engine local --force\n")
    out = cli("move", "m-1", "--engine", "local", "--force", "--by", "ada").out
    assert out.startswith("moved to local: m-1\n")
    assert "to local, by force, by ada" in cli("log", "m-1").out
    with pytest.raises(Unanswered):
        hf.resume("m-1")


def test_move_refuses_what_makes_no_sense(hf, cli):
    assert cli("move", "m-1").err == (
        "error: say where it is to go: --engine temporal, restate or local\n"
    )
    assert "there are local, temporal and restate" in cli("move", "m-1", "--engine", "cron").err
    assert cli("move", "m-2", "--engine", TOY).code == 5
    hf.cancel("m-1")
    code, _, err = cli("move", "m-1", "--engine", TOY)
    assert (code, "'m-1' is cancelled" in err) == (2, True)
    assert SHARED.jobs == {}


def test_the_old_engine_is_told_at_once_if_the_settings_name_it(hf, cli, monkeypatch):
    cli("move", "m-1", "--engine", TOY)
    monkeypatch.setenv("HOLDFAST_ENGINE", TOY)
    cli("move", "m-1", "--engine", "local", "--timeout", "0.01")
    assert [id for id, _ in SHARED.told] == ["m-1"]


def test_messages_are_told_to_the_engine_that_the_settings_name(hf, cli, monkeypatch):
    cli("move", "m-1", "--engine", TOY)
    drive("toy", hf, "m-1")
    assert cli("pause", "m-1").out == (
        "asked to pause: toy has yet to hear of it\nTo let it go on: holdfast resume m-1 --worker\n"
    )
    assert SHARED.told == []
    monkeypatch.setenv("HOLDFAST_ENGINE", TOY)
    assert "asked to end" in cli("cancel", "m-1").out
    assert SHARED.told == [("m-1", "to end")]
    events = list(read_events(hf.store, stream_of("m-1")))
    assert not any(isinstance(event, PauseRequested) for event in events)


def test_show_and_ls_say_which_engine_drives_a_task(hf, cli):
    assert json.loads(cli("ls", "--json").out)[0]["driver"] == "local"
    assert "engine" not in cli("show", "m-1").out
    cli("move", "m-1", "--engine", TOY)
    assert "pending, on toy" in cli("ls").out
    assert json.loads(cli("show", "m-1", "--json").out)["driver"] == "toy"
    shown = cli("show", "m-1").out
    assert "engine         toy" in shown
    assert "driven by toy" in shown
    assert "nobody is at work" not in shown
    assert "to toy, by" in cli("log", "m-1").out


def test_a_task_of_an_engine_is_not_resumed_here(hf, cli):
    cli("move", "m-1", "--engine", TOY)
    code, _, err = cli("resume", "m-1")
    assert code == 6
    assert "driven by toy" in err
    assert "holdfast move m-1 --engine local" in err


def test_start_leaves_a_task_to_an_engine_and_names_its_worker(hf, cli, folder):
    code, out, err = cli("start", "agents:plan_trip", "Oslo", "--id", "s-1", "--engine", TOY)
    assert (code, out) == (0, "s-1\n")
    assert err == f"left to a worker: holdfast worker --app agents --engine {TOY}\n"
    assert "s-1" in SHARED.jobs


def test_a_worker_of_an_engine_takes_no_limits(hf, cli):
    code, _, err = cli("worker", "--app", "agents", "--engine", TOY, "--until-idle")
    assert (code, err) == (2, "error: --limit and --until-idle are not for a worker of toy\n")


def test_an_option_counts_more_than_the_environment_and_that_more_than_the_project(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.holdfast.engine]\nname = "temporal"\naddress = "a:1"\nqueue = "trips"\n'
    )
    assert engine_settings(Given(), {}, tmp_path) == {
        "name": "temporal",
        "address": "a:1",
        "queue": "trips",
    }
    variables = {"HOLDFAST_ENGINE_ADDRESS": "b:2", "HOLDFAST_ENGINE_API_KEY": "secret"}
    found = engine_settings(Given(namespace="n", tls=True), variables, tmp_path)
    assert found == {
        "name": "temporal",
        "address": "b:2",
        "queue": "trips",
        "namespace": "n",
        "tls": "1",
        "api_key": "secret",
    }
    assert engine_settings(Given(engine="local"), {}, tmp_path) == {"name": "local"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Given(engine="restate", queue="q"), "--queue goes with --engine temporal, not with"),
        (Given(address="a:1"), "--address goes with --engine temporal or --engine restate, not"),
        (Given(engine="math:tau", imports=("engine",)), "that is no engine, but 6.28"),
    ],
)
def test_what_does_not_fit_the_engine_is_refused(folder, given, problem):
    with pytest.raises(BadInput, match=problem):
        engine_of(given)


def test_no_engine_and_the_local_one_are_the_same(folder):
    assert engine_of(Given()) is None
    assert engine_of(Given(engine="local")) is None
