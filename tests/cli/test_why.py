"""`holdfast why`"""

import json
import re

import pytest

from holdfast import Holdfast, decide, step, task


@step
def ask_around() -> str:
    return "the inn is full"


@task
def chooses_and_chooses_again() -> str:
    decide("day", "Monday")
    decide("room", "inn", options=["inn", "attic"], because="close by")
    ask_around()
    decide("room", "attic", options=["inn", "attic"], because="the inn is full", supersedes="room")
    return decide("bed", "sofa", because="the attic leaks", supersedes="room")


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Holdfast("workspace") as hf:
        hf.run(chooses_and_chooses_again, id="t")
        hf.run(silent, id="silent")


@task
def silent() -> None: ...


def test_a_chain_tells_what_was_chosen_from_what_why_when_and_what_came_instead(chosen, cli):
    code, out, _ = cli("why", "t", "room")
    assert code == 0
    assert out.startswith("t  completed\n\nDecisions  3 decisions\n")
    lines = [re.sub(r"\d{4}-\S+ \S+(?=,)", "NOW", line.strip()) for line in out.splitlines()[3:]]
    assert lines == [
        'room?1  room = "inn"  superseded by room?2',
        "because  close by",
        'options  "inn", "attic"',
        "when     NOW, before the first step",
        'room?2  room = "attic"  superseded by bed?1',
        "because  the inn is full",
        'options  "inn", "attic"',
        "instead of  room?1",
        "when     NOW, after step 1",
        'bed?1  bed = "sofa"',
        "because  the attic leaks",
        "instead of  room?2",
        "when     NOW, after step 1",
    ]


def test_without_a_name_all_chains_are_told(chosen, cli):
    out = cli("why", "t").out
    assert out.index("day?1") < out.index("room?1") < out.index("bed?1")
    assert "none" in cli("why", "silent").out


def test_for_programs_there_is_json(chosen, cli):
    data = json.loads(cli("why", "t", "bed?1", "--json").out)
    told = [(d["path"], d["supersedes"], d["superseded_by"], d["step"]) for d in data["decisions"]]
    assert (data["id"], told) == (
        "t",
        [
            ("room?1", "", "room?2", ""),
            ("room?2", "room?1", "bed?1", "1"),
            ("bed?1", "room?2", "", "1"),
        ],
    )


def test_a_name_that_no_decision_has_is_named_with_those_there_are(chosen, cli):
    code, _, err = cli("why", "t", "hotel")
    assert code == 2
    assert "no decision 'hotel': it has made bed, day, room" in err
    assert "it has made none" in cli("why", "silent", "hotel").err
