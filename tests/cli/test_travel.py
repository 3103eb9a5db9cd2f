"""`holdfast snapshot`, `diff`, `fork`, `rewind`, `compare` and `experiment`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, IdempotencyKey, TaskFailed, decide, step, task, tool
from holdfast.errors import BadInput
from holdfast.workspace import files


@step
def travel_rooms(city: str) -> list[str]:
    return [f"{city} attic", f"{city} suite"]


def travel_unbook(result: str, *, key: IdempotencyKey) -> None: ...


@tool(undo=travel_unbook)
def travel_book(room: str) -> str:
    return f"booked {room}"


@step
def travel_model(question: str, model: str = "small") -> str:
    return f"{model}: {question}"


@task
def travel_trip(city: str) -> str:
    room = decide("room", travel_rooms(city)[0], because="the first")
    files.write("room.md", f"# Room\n\n{room}\n\nThe rest of the page stays.\n")
    travel_model("nice?")
    return travel_book(room)


@pytest.fixture
def trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Holdfast("workspace") as hf:
        hf.run(travel_trip, "Oslo", id="t")


def test_a_snapshot_tells_what_was_known_there(trip, cli):
    code, out, _ = cli("snapshot", "t")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [["before", "1"], ["after", "1"]]
    code, out, _ = cli("snapshot", "t", "--step", "3", "--before")
    assert code == 0 and out.startswith("t  before step 3, event ")
    assert "travel_model" in out and "travel_book" not in out
    known = json.loads(cli("snapshot", "t", "--step", "3", "--after", "--json").out)
    assert (known["path"], known["when"], known["calls"]["3"]["output"]) == (
        "3",
        "after",
        "booked Oslo attic",
    )
    assert json.loads(cli("snapshot", "t", "--event", "1", "--json").out)["calls"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--step", "9"), "has made no step '9'"),
        (("--event", "99"), "has the events 1 to"),
        (("--event", "0"), "there is none 0"),
        (("--step", "1", "--before", "--after"), "either --before or --after"),
        (("--step", "1", "--event", "2"), "either a step or --event"),
        (("--before",), "go with a step: say which"),
    ],
)
def test_a_place_that_is_none_is_refused(trip, cli, words, said):
    code, out, err = cli("snapshot", "t", *words)
    assert (code, out) == (2, "") and said in err


def test_a_diff_tells_what_changed_inside_of_texts_too(trip, cli):
    code, out, _ = cli("diff", "t", "--from", "before:3", "--to", "after:3")
    assert code == 1 and out.startswith("+ calls.3")
    assert cli("diff", "t", "--from", "end", "--to", "end") == (0, "nothing is different\n", "")
    assert cli("diff", "t").code == 2
    assert "is no place" in cli("diff", "t", "--from", "over:there").err
    cli("fork", "t", "--at", "1", "--result", '1=["Oslo cellar"]', "--effects", "live", "--id", "f")
    with Holdfast("workspace") as hf:
        hf.resume("f")
    code, out, _ = cli("diff", "t", "f")
    assert code == 1
    assert "- Oslo attic" in out and "+ Oslo cellar" in out, "the file is compared line by line"
    made = json.loads(cli("diff", "t", "f", "--json").out)
    assert any(change["where"][:2] == ["files", "room.md"] for change in made["changes"])


@step
def travel_facts(city: str) -> dict[str, Any]:
    return {"at": datetime(2026, 11, 18, tzinfo=UTC), "size": (2, 3), "grains": 2**70}


@task
def travel_learns(city: str) -> dict[str, Any]:
    return travel_facts(city)


def test_a_value_that_was_copied_from_a_log_is_read_as_the_log_wrote_it(trip, cli):
    with Holdfast("workspace") as hf:
        said = hf.run(travel_learns, "Oslo", id="u")
        call = hf.task("u").state.calls["1"]
        copied = bytes(call.result).decode()
    variant = json.dumps({"results": {"1": json.loads(copied)}})
    words = ("u", "--at", "1", "--after", "--effects", "reuse")
    assert cli("fork", *words, "--result", f"1={copied}", "--id", "f").code == 0
    made = cli("experiment", *words, "--variant", f"same={variant}", "--json")
    assert made.code == 0, made.err
    with Holdfast("workspace") as hf:
        assert hf.resume("f") == said
        (other,) = json.loads(made.out)["variants"]
        assert hf.task(other["id"]).result == hf.task("u").result
    unknown = cli("fork", *words, "--result", '1={"at": {"$date": "some day"}}')
    assert unknown.code == 2 and "the result of travel_facts can't be that" in unknown.err


def test_a_command_that_needs_a_place_says_so(trip, cli):
    for command, option in (("fork", "--at"), ("rewind", "--to"), ("experiment", "--at")):
        more = ("--variant", "same={}") if command == "experiment" else ()
        missing = cli(command, "t", "--effects", "reuse", *more)
        assert missing.code == 2 and f"say where: {option} STEP, or --event N" in missing.err
        both = cli(command, "t", option, "1", "--event", "1", "--effects", "reuse", *more)
        assert both.code == 2 and "not both" in both.err
    with Holdfast("workspace") as hf, pytest.raises(BadInput, match="say where: a step or"):
        hf.fork("t", effects="reuse")


def test_a_fork_says_what_it_shares_and_what_becomes_of_effects(trip, cli):
    code, out, _ = cli("fork", "t", "--at", "2", "--effects", "reuse", "--id", "f")
    assert code == 0
    assert "task f leaves before step 2, and shares" in out
    assert "effects reuse: a tool that the original called with the same arguments" in out
    assert "holdfast resume f" in out
    code, _, err = cli("fork", "t", "--at", "2", "--id", "g")
    assert code == 2 and "--effects" in err, "it has to be said"
    made = json.loads(cli("fork", "t", "--at", "2", "--effects", "stub", "--json").out)
    assert made["of"] == "t" and made["id"].startswith("t-fork-")
    changed = ("--set", 'travel_model.model="large"')
    cli("fork", "t", "--at", "2", *changed, "--effects", "live", "--id", "large")
    with Holdfast("workspace") as hf:
        hf.resume("large")
        assert hf.task("large").outputs[1].output == "large: nice?"
    assert "STEP.ARG=JSON" in cli("fork", "t", "--at", "2", "--set", "x=1", "--effects", "live").err
    assert cli("fork", "nobody", "--at", "2", "--effects", "live").code == 5


def test_a_rewind_lists_what_was_done_outside_and_can_be_taken_back(trip, cli):
    code, out, _ = cli("rewind", "t", "--to", "2", "--because", "the wrong room")
    assert code == 0
    assert "task t was rewound, and is paused" in out
    assert "travel_book" in out and "left" in out and "t:3:travel_book:" in out
    (command,) = (line for line in out.splitlines() if line.startswith("To take it back: "))
    words = command.removeprefix("To take it back: holdfast ").split()
    assert cli(*words).code == 0
    with Holdfast("workspace") as hf:
        assert hf.task("t").result == "booked Oslo attic"


def test_a_comparison_goes_to_the_first_divergence(trip, cli):
    cli("fork", "t", "--at", "1", "--result", '1=["Oslo cellar"]', "--effects", "live", "--id", "f")
    with Holdfast("workspace") as hf:
        hf.resume("f")
    code, out, _ = cli("compare", "t", "f")
    assert code == 1
    assert "call 1, travel_rooms, has another result" in out
    assert "booked Oslo cellar" in out and "duration" in out
    found = json.loads(cli("compare", "t", "f", "--json").out)
    assert found["alignments"][0]["first"]["a"]["path"] == "1"
    assert cli("compare", "t").code == 2
    assert cli("compare", "t", "t").code == 2
    assert cli("compare", "t", "nobody").code == 5


def test_an_experiment_runs_variants_side_by_side(trip, cli, tmp_path):
    large = '{"arguments": {"travel_model": {"model": "large"}}}'
    (tmp_path / "v.json").write_text(f'{{"large": {large}, "same": {{}}}}')
    code, out, err = cli(
        "experiment", "t", "--at", "2", "--effects", "stub", "--variants", "v.json"
    )
    assert code == 0, err
    rows = {
        line.split()[0]: line for line in out.splitlines() if line.startswith(("large", "same"))
    }
    assert "2: other arguments" in rows["large"]
    assert "no divergence" in rows["same"] and "booked Oslo attic" in rows["same"]
    bad = cli("experiment", "t", "--at", "2", "--effects", "stub", "--variant", 'x={"colour": 1}')
    assert bad.code == 2 and "colour" in bad.err
    with Holdfast("workspace") as hf:
        assert len(hf.tasks()) == 3, "what is refused makes no fork"


def test_a_variant_that_fails_does_not_keep_the_others_from_their_end(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)

    @step
    def travel_share(parts: int) -> float:
        return 1 / parts

    @task
    def travel_shares(parts: int) -> float:
        return travel_share(parts)

    with Holdfast("workspace") as hf:
        hf.run(travel_shares, 2, id="s")
        with pytest.raises(TaskFailed):
            hf.run(travel_shares, 0, id="zero")
    words = (
        "--variant",
        'none={"input": {"parts": 0}}',
        "--variant",
        'four={"input": {"parts": 4}}',
    )
    code, out, err = cli("experiment", "s", "--at", "1", "--effects", "live", *words)
    assert code == 0
    assert "ZeroDivisionError" in err and "0.25" in out
