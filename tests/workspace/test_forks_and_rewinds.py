"""The files of a fork and of a task that was rewound are those of what they know now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Holdfast, current, decide, step, task, tool
from holdfast.workspace import files
from holdfast.workspace.edits import take_in, taken
from holdfast.workspace.projecting import project


@step
def folder_look(n: int) -> int:
    return n


@tool
def folder_send(n: int) -> str:
    return f"sent {n}"


@task
def folder_trip(city: str) -> str:
    """Step 1 comes before everything; what is written, planned and chosen, after it."""
    folder_look(1)
    current().plan(["pack", "go"])
    files.write("notes.md", "one")
    folder_send(2)
    current().mark("1", "done")
    decide("way", "north", options=["north", "south"])
    files.write("notes.md", "two")
    files.write("more.md", "more")
    folder_send(3)
    return city


@pytest.fixture(params=["files", "memory"])
def hf(request, tmp_path):
    url = tmp_path / "w" if request.param == "files" else "memory://"
    with Holdfast(url, projections=False) as hf:
        hf.run(folder_trip, "Oslo", id="trip")
        yield hf


def texts(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_after_a_rewind_the_files_are_those_of_then(hf, tmp_path):
    folder = tmp_path / "f"
    project(hf.store, "trip", folder)
    assert "decisions.md" in texts(folder)
    hf.rewind("trip", to=2, by="ada", because="the wrong way")
    made = project(hf.store, "trip", folder)
    found = texts(folder)
    assert (made.files["decisions.md"], "decisions.md" in found) == ("removed", False)
    assert "- [ ] 1. pack" in found["plan.md"]
    assert found["artifacts/notes.md"] == "one" and "artifacts/more.md" not in found
    assert "- status: paused" in found["status.md"] and "- rewound: once" in found["status.md"]
    assert not [name for name in found if ".edited-" in name]


def test_what_happened_before_the_rewind_stays_in_the_files_that_grow(hf, tmp_path):
    folder = tmp_path / "f"
    project(hf.store, "trip", folder)
    before = texts(folder)
    hf.rewind("trip", to=2, by="ada", because="the wrong way")
    project(hf.store, "trip", folder)
    found = texts(folder)
    for name in ("progress.log", "tool_log.jsonl"):
        assert found[name].startswith(before[name])
    assert found["progress.log"].endswith(
        "| task | rewound | to before step 2 (event 5), by ada, because the wrong way\n"
    )
    line = json.loads(found["tool_log.jsonl"].splitlines()[-1])
    assert (line["status"], line["to"], line["by"]) == ("rewound", 5, "ada")


def test_a_tool_that_was_not_called_again_is_in_the_logs_as_that(hf, tmp_path):
    folder = tmp_path / "f"
    hf.rewind("trip", to=2)
    hf.resume("trip")
    project(hf.store, "trip", folder)
    found = texts(folder)
    assert '| 2 folder_send | reused | not called, of trip 2: → "sent 2"' in found["progress.log"]
    line = json.loads(found["tool_log.jsonl"].splitlines()[-1])
    assert (line["status"], line["of"]) == ("reused", {"task": "trip", "path": "3"})
    assert found["artifacts/more.md"] == "more"


def test_a_rewind_to_before_everything_leaves_no_page_nor_file(hf, tmp_path):
    folder = tmp_path / "f"
    project(hf.store, "trip", folder)
    hf.rewind("trip", to=1)
    project(hf.store, "trip", folder)  # by somebody who never saw the files
    found = texts(folder)
    assert set(found) == {"mission.md", "progress.log", "state.json", "status.md", "tool_log.jsonl"}
    hf.rewind("trip", seq=hf.task("trip").seq - 1)
    project(hf.store, "trip", folder)
    assert texts(folder)["artifacts/notes.md"] == "two" and "decisions.md" in texts(folder)


def test_what_people_wrote_is_not_lost_with_a_rewind(hf, tmp_path):
    folder = tmp_path / "f"
    project(hf.store, "trip", folder)
    for name in ("plan.md", "decisions.md", "artifacts/more.md"):
        (folder / name).write_text("mine")
    hf.rewind("trip", to=1)
    made = project(hf.store, "trip", folder)
    assert made.files["plan.md"] == "edited" and made.files["decisions.md"] == "kept aside"
    found = texts(folder)
    assert (
        found["plan.md"] == found["decisions.md.edited-1"] == found["artifacts/more.md"] == "mine"
    )


def test_kept_up_bit_by_bit_or_made_at_once_the_files_are_the_same(hf, tmp_path):
    bit_by_bit, at_once = tmp_path / "a", tmp_path / "b"
    hf.fork("trip", at=2, effects="reuse", new_id="fork", because="to see")
    for _ in range(2):
        project(hf.store, "fork", bit_by_bit)
        hf.resume("fork")
        project(hf.store, "fork", bit_by_bit)
        hf.rewind("fork", to=2)
    project(hf.store, "fork", bit_by_bit)
    project(hf.store, "fork", at_once)
    assert texts(bit_by_bit) == texts(at_once)
    log = texts(at_once)["progress.log"]
    assert "| task | forked | of trip, before step 2, effects reuse, because to see:" in log
    assert "- a fork of `trip`, before step 2" in texts(at_once)["status.md"]


def test_the_folder_of_a_store_follows_a_rewind(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        hf.run(folder_trip, "Oslo", id="trip")
    folder = tmp_path / "w/tasks/trip"
    assert (folder / "artifacts/more.md").exists()
    with Holdfast(tmp_path / "w") as hf:
        hf.rewind("trip", to=1)
    assert not (folder / "artifacts/more.md").exists()
    assert not (folder / "plan.md").exists()
    assert "rewound" in (folder / "progress.log").read_text()


def test_files_of_a_task_that_was_put_back_in_every_version(hf):
    hf.rewind("trip", to=2)
    now = hf.files("trip")
    assert [file.name for file in now.list()] == ["notes.md"]
    assert now.read_text("notes.md") == "one"
    versions = now.versions("notes.md")
    assert [now.read_text("notes.md", file.version) for file in versions] == ["one", "two"]
    then = hf.files("trip", at=hf.task("trip").seq - 1)
    assert then.read_text("notes.md") == "two" and then.read_text("more.md") == "more"
    fork = hf.fork("trip", seq=hf.task("trip").seq, effects="reuse")
    assert hf.files(fork.id).read_text("notes.md") == "one"


def test_an_edit_of_a_plan_that_was_rewound_meanwhile_brings_nothing_of_that_back(hf, tmp_path):
    folder = tmp_path / "f"
    hf.rewind("trip", to=3)
    project(hf.store, "trip", folder)
    text = (folder / "plan.md").read_text()
    assert "- [x] 1. pack" in text
    (folder / "plan.md").write_text(text.replace("2. go", "2. go north"))
    hf.rewind("trip", to=2)
    (change,) = take_in(hf, "trip", folder, by="ada")
    assert change.changes == ("2 is now 'go north'; it was 'go'",)
    plan = hf.task("trip").plan
    assert [(item.text, item.status) for item in plan] == [
        ("pack", "pending"),
        ("go north", "pending"),
    ]


def test_a_mission_can_be_edited_after_one_was_rewound(hf, tmp_path):
    folder = tmp_path / "f"
    hf.rewind("trip", to=2)
    folder.mkdir()
    (folder / "mission.md").write_text("See Oslo.\n")
    changes = take_in(hf, "trip", folder)
    hf.rewind("trip", seq=hf.task("trip").seq - 1)
    project(hf.store, "trip", folder, taken=taken(changes))
    assert "See Oslo." not in (folder / "mission.md").read_text()
    with (folder / "mission.md").open("a") as file:
        file.write("See Bergen.\n")
    (change,) = take_in(hf, "trip", folder)
    assert not change.problem and change.changes == ("the mission was changed",)
