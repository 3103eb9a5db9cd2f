"""`holdfast stats`: where time, tokens, money and retries go."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import Holdfast, step, task
from holdfast.agent import Reply, Usage, assistant


@step
def cli_stats_model(model: str) -> Reply:
    return Reply(assistant("hi"), Usage(1_000_000, 500_000), model=model)


@task
def cli_stats_agent() -> None:
    cli_stats_model("large")
    cli_stats_model("small")


def test_it_shows_types_calls_and_what_was_saved(recorded, cli):
    done = cli("stats")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("3 tasks, ")
    rows = [line.split() for line in done.out.splitlines()]
    assert next(row for row in rows if row[:2] == ["search", "step"])[2:6] == ["1", "0", "2", "2"]
    assert next(row for row in rows if row[:2] == ["mendable", "1"])[3] == "failed"
    assert "No call of a model is recorded." in done.out
    assert "Tasks were taken up again 1 time" in done.out


def test_json_has_the_numbers_and_the_filters_of_ls_choose(recorded, cli):
    found = json.loads(cli("stats", "--json", "--label", "team=travel").out)
    (trip,) = found["types"]
    assert (trip["type"], trip["tasks"], trip["statuses"]) == ("plan_trip", 1, {"awaiting_user": 1})
    assert trip["failures"] == 4 and trip["saved"]["resumes"] == 1
    names = {call["name"]: call for call in found["calls"]}
    assert names["book"]["attempts"] == 2 and names["pay"]["kind"] == "tool"
    assert json.loads(cli("stats", "--json", "--status", "failed").out)["tasks"] == 1
    assert cli("stats", "--since", "1s", "--until", "2020-01-01").out == "no tasks match\n"


def test_money_is_unknown_until_it_is_recorded_or_a_price_is_given(folder, cli):
    with Holdfast("workspace") as hf:
        hf.run(cli_stats_agent, id="agent-1")
    assert "The cost of 2 of 2 calls is unknown" in cli("stats").out
    some = cli("stats", "--price", "large=2,4")
    assert "The cost of 1 of 2 calls is unknown" in some.out and "4.0000" in some.out
    every = cli("stats", "--price", "large=2,4", "--price", "*=1,1", "--price", "none=1,1")
    assert "unknown" not in every.out and "5.5000" in every.out
    assert "No call of a model none is recorded." in every.out
    for wrong in ("large", "large=1", "large=1,x", "large=-1,2", "large=nan,1"):
        done = cli("stats", "--price", wrong)
        assert done.code == 2 and "large" in done.err


def test_a_log_that_cannot_be_read_is_named_with_exit_code_4(recorded, cli):
    log = Path("workspace/tasks/both/events.jsonl")
    log.write_bytes(log.read_bytes().replace(b"Bergen", b"Berlin", 1))
    done = cli("stats")
    assert done.code == 4 and done.out.startswith("2 tasks, ") and "both" in done.err
