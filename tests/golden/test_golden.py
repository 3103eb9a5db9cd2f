"""Every log we ever shipped stays readable, and folds to the state it always did."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Holdfast, TaskCancelled, Worker
from holdfast.cli.root import root
from holdfast.core.events import FORK_FORMAT, FORMAT, NEWEST_FORMAT, AnyEvent
from holdfast.engines.queues import QueueLog
from holdfast.log.reading import read_events
from holdfast.log.states import load_any
from holdfast.stores.files.folder import safe_name
from tests.golden import record

EVERY = sorted(Path(__file__).parent.glob("format-*"))
OTHERS = [folder for folder in EVERY if "-sessions" in folder.name]
FORKS = [folder for folder in EVERY if "-forks" in folder.name]
VALUES = [folder for folder in EVERY if folder.name.endswith(("-values", "-queue", "-limit"))]
FOLDERS = [folder for folder in EVERY if folder not in (*OTHERS, *FORKS, *VALUES)]
RESULTS = [folder for folder in FOLDERS if folder.name.count("-") == 1]
LISTS = [folder for folder in FOLDERS if "-lists" in folder.name]
PLANS = [folder for folder in FOLDERS if "-plan" in folder.name]
EXTERNAL = [folder for folder in FOLDERS if "-external" in folder.name]
WORKSPACE = [folder for folder in FOLDERS if "-workspace" in folder.name]
ENGINE = [folder for folder in FOLDERS if "-engine" in folder.name]
CONTROL = [folder for folder in FOLDERS if "-control" in folder.name]
STUCK = [folder for folder in FOLDERS if "-stuck" in folder.name]
STEPS = [folder for folder in FOLDERS if "-steps" in folder.name]
CLASSES = [folder for folder in FOLDERS if "-classes" in folder.name]


def test_a_task_of_a_queue_and_the_places_of_the_queue_can_still_be_read(tmp_path):
    folder = Path(__file__).parent / f"format-{FORMAT}-queue"
    for name, log in (("task", "tasks/golden-queued"), ("places", record.QUEUE_LOG)):
        (tmp_path / "w" / log).mkdir(parents=True)
        shutil.copy(folder / f"{name}.jsonl", tmp_path / "w" / log / "events.jsonl")
    with Holdfast(tmp_path / "w") as hf:
        assert hf.task("golden-queued").state.ticket.queue == "golden"
        assert hf.handle("golden-queued").result(60) == 7
        hf.queue(record.Queue("golden"))
        hf.options(queue="golden").start(record.golden_queued, 8)
        Worker(hf).run_until_idle()  # in the log that goes on
        assert hf.queue("golden").info().running == 0
        assert hf.verify().sound


def test_a_task_that_waits_for_a_limit_and_the_log_of_the_limit_can_still_be_read(tmp_path):
    folder = Path(__file__).parent / f"format-{FORMAT}-limit"
    for name, log in (("task", "tasks/golden-limited"), ("limit", record.LIMIT_LOG)):
        (tmp_path / "w" / log).mkdir(parents=True)
        shutil.copy(folder / f"{name}.jsonl", tmp_path / "w" / log / "events.jsonl")
    with Holdfast(tmp_path / "w") as hf:
        calls = hf.task("golden-limited").state.calls
        wait = calls["2!limit"]
        assert (wait.kind, wait.name, wait.approves) == ("limit", "golden", "2")
        assert wait.status == "waiting" and wait.until is not None and "2" not in calls
        shown = CliRunner().invoke(root, ["show", "golden-limited", "--url", str(tmp_path / "w")])
        assert shown.exit_code == 0 and "limit" in shown.output
        limit = QueueLog(hf._holding, "golden", "limits").look()
        assert set(limit.key_ready) >= {"minute", "tokens", "line"} and not limit.held
        Worker(hf).run_until_idle()  # in the logs that go on
        assert hf.handle("golden-limited").result(60) == 7
        assert hf.verify().sound


@pytest.fixture
def opened(request, tmp_path):
    """A golden log as the only one of a store."""
    folder = request.param
    first = msgspec.json.decode((folder / "events.jsonl").read_bytes().splitlines()[0])
    where = tmp_path / "w/tasks" / first["id"]
    where.mkdir(parents=True)
    shutil.copy(folder / "events.jsonl", where)
    if (folder / "blobs").exists():
        shutil.copytree(folder / "blobs", tmp_path / "w/blobs")
    with Holdfast(tmp_path / "w") as hf:
        yield hf, folder, first["id"]


def golden(folders):
    return pytest.mark.parametrize("opened", folders, indirect=True, ids=lambda folder: folder.name)


@golden(FOLDERS)
def test_it_folds_to_the_same_state(opened):
    hf, folder, task_id = opened
    expected = msgspec.json.decode((folder / "state.json").read_bytes())
    state = msgspec.json.encode(hf.task(task_id).state, order="deterministic")
    found = msgspec.json.decode(state)
    assert of_what_was_known(found, expected) == expected


def of_what_was_known(found, expected):
    """A newer version may know more of an old log, but nothing else than it did.

    What was a text then (an item of a plan) may have become something that has that text."""
    if isinstance(expected, str) and isinstance(found, dict):
        return found.get("text")
    if isinstance(expected, dict) and isinstance(found, dict):
        return {
            key: of_what_was_known(found[key], value)
            for key, value in expected.items()
            if key in found
        }
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        return [of_what_was_known(*pair) for pair in zip(found, expected, strict=True)]
    return found


@golden(RESULTS)
def test_the_task_can_still_be_asked_for_its_result(opened):
    hf, _, task_id = opened
    assert hf.run(record.golden, "Oslo", id=task_id) == "Oslo Inn: sent"


@golden(LISTS)
def test_long_lists_are_whole_again(opened):
    hf, _, task_id = opened
    chat = hf.run(record.golden_lists, 44, id=task_id)
    assert [said["text"].split()[2] for said in chat] == [str(n) for n in range(42)]
    assert hf.task(task_id).outputs[-1].input == {"chat": chat[:41], "mood": "glad"}


@golden(EXTERNAL)
def test_it_is_still_known_what_was_seen_outside_and_when(opened):
    hf, _, task_id = opened
    assert hf.run(record.golden_external, "ACME", id=task_id) == 62.5
    view = hf.task(task_id)
    assert [(call.path, call.of) for call in view.calls if call.of] == [("3", "1")]
    (fact,) = view.facts
    assert (fact.value, fact.sources, fact.as_of) == (37.5, ("1", "2"), view.calls[0].at)


@golden(WORKSPACE)
def test_the_files_of_the_task_can_still_be_read_in_every_version(opened):
    hf, _, task_id = opened
    assert hf.run(record.golden_workspace, "Oslo", id=task_id) == "# One room"
    files = hf.files(task_id)
    assert [file.name for file in files.list()] == ["notes/rooms.md", "Ünïcødé ✓.txt"]
    versions = files.versions("notes/rooms.md")
    assert [files.read_text(file.name, file.version) for file in versions] == [
        "# Rooms in Oslo", "# One room", "# No room",
    ]  # fmt: skip
    assert (versions[-1].by, versions[0].path) == ("ada", "")
    assert files.versions("draft.md")[0].size_bytes == 9
    assert bytes(hf.task(task_id).state.mission) == b'"Find a room.\\n"'
    assert hf.verify().sound


@golden(CONTROL)
def test_the_task_can_still_be_asked_how_it_ended_and_what_was_undone(opened):
    hf, _, task_id = opened
    with pytest.raises(TaskCancelled, match="rain"):
        hf.run(record.golden_control, "Oslo", id=task_id)
    view = hf.task(task_id)
    assert [(undone.name, undone.status, undone.why) for undone in view.compensation] == [
        ("take_room", "could not be undone", "PermissionError: the door is locked"),
        ("rent_car", "undone", ""),
    ]
    assert view.checkpoint == [f"slept through night {night}" for night in range(3)]
    paths = [child.child.removeprefix(f"{task_id}.") for child in view.children]
    assert paths == ["3", "@1.3", "@2.1"]


@golden(CONTROL)
def test_what_could_not_be_undone_then_can_be_tried_again_now(opened):
    hf, _, task_id = opened
    before = len(list(hf.task(task_id).events()))
    view = hf.compensate(task_id)
    assert view.status == "cancelled"
    assert [undone.status for undone in view.compensation] == ["could not be undone", "undone"]
    assert len(list(view.events())) > before


@golden(STUCK)
def test_a_task_that_was_set_aside_still_is_and_can_be_let_go_on(opened):
    hf, _, task_id = opened
    view = hf.task(task_id)
    assert view.status == "stuck"
    assert view.state.death is not None
    assert (view.state.death.owner, view.state.death.path, view.state.death.count) == (
        "host process 2", "1", 2,
    )  # fmt: skip
    assert hf.resume(task_id) == "well"


@golden(ENGINE)
def test_a_task_that_was_moved_can_still_be_asked_for_its_result(opened):
    hf, _, task_id = opened
    assert hf.run(record.golden_engine, "Oslo", id=task_id) == "Oslo: True"
    assert hf.task(task_id).state.driver == ""


@golden(PLANS)
def test_the_plan_and_its_decisions_can_still_be_read(opened):
    hf, _, task_id = opened
    assert hf.run(record.golden_plan, 2, id=task_id) == "the last"
    view = hf.task(task_id)
    assert [(item.id, item.status, item.after) for item in view.plan] == [
        ("ask", "done", ()),
        ("choose", "done", ("ask",)),
        ("3", "failed", ()),
        ("tell", "skipped", ("3",)),
    ]
    first, last = view.decisions
    assert (first.superseded_by, last.supersedes) == (last.path, first.path)


@pytest.fixture
def others(request, tmp_path):
    """A golden session and a golden memory in a store."""
    folder = request.param
    shutil.copytree(folder / "blobs", tmp_path / "w/blobs")
    for kind, name in (("sessions", "session"), ("memories", "memory")):
        where = tmp_path / "w" / kind / f"golden-{name}"
        where.mkdir(parents=True)
        shutil.copy(folder / f"{name}.jsonl", where / "events.jsonl")
    with Holdfast(tmp_path / "w") as hf:
        yield hf, folder


def with_others(test):
    given = pytest.mark.parametrize("others", OTHERS, indirect=True, ids=lambda each: each.name)
    return given(test)


@with_others
def test_sessions_and_memories_are_sound(others):
    hf, _ = others
    found = hf.verify()
    assert found.sound and (found.sessions, found.memories, found.blobs) == (1, 1, 2)


@with_others
def test_a_session_folds_to_the_same_state(others):
    hf, folder = others
    expected = msgspec.json.decode((folder / "session.json").read_bytes())
    state = load_any(hf.store, "sessions/golden-session")
    found = msgspec.json.decode(msgspec.json.encode(state))
    assert of_what_was_known(found, expected) == expected


@with_others
def test_what_was_said_can_still_be_read_and_gone_on_with(others):
    hf, _ = others
    chat = hf.session("golden-session", user="ada")
    said = list(chat.messages())
    assert [message.text for message in said[:2]] == ["Be brief.", "Is there fog on day 0?"]
    assert said[7].text == "Ünïcødé ✓"
    assert (said[8].calls[0].name, said[9].results[0].content) == ("forecast", "fog")
    assert (said[9].task, chat.summary) == ("golden-talk", "7 messages about fog")
    assert (chat.state.status, chat.state.because) == ("ended", "she has left")
    assert list(chat.state.pinned) == [1]
    picture = said[7].parts[1].artifact
    with hf.open(picture) as file:
        assert file.read() == b"a picture"
    chat.say("I am back")
    assert chat.state.status == "open" and hf.verify().sound


@with_others
def test_what_was_remembered_can_still_be_read(others):
    hf, _ = others
    events = list(read_events(hf.store, "memories/golden-memory"))
    assert [type(event).__name__ for event in events] == [
        "MemoryBegan", "Remembered", "Remembered", "Forgotten",
    ]  # fmt: skip
    first = events[1]
    assert (first.text, first.user, first.session, first.step, bytes(first.vector)) == (
        "Ada dislikes fog", "ada", "golden-session", "2", b"[0.5,-1.0]",
    )  # fmt: skip


def test_values_can_still_be_read_and_changed(tmp_path):
    folder = Path(__file__).parent / f"format-{FORMAT}-values"
    shutil.copytree(folder / "blobs", tmp_path / "w/blobs")
    where = tmp_path / "w/memories" / safe_name("values/golden")
    where.mkdir(parents=True)
    shutil.copy(folder / "values.jsonl", where / "events.jsonl")
    with Holdfast(tmp_path / "w") as hf:
        values = hf.values("golden")
        assert values.keys() == ["large", "room"] and len(values.get("large")) == 80_000
        assert values.entry("room").version == 2 and values.get("room") == {"nights": (1, 2)}
        assert values.as_of(4).get("soon gone") == 7 and values.as_of(4).get("desk", 1) is None
        values.put("room", 1, expected=2)
        assert [each.value for each in values.history("desk")] == [None, None]
        assert hf.verify().sound


@pytest.fixture
def forks(request, tmp_path):
    """Golden logs that share their past, in a store."""
    folder = request.param
    shutil.copytree(folder / "blobs", tmp_path / "w/blobs")
    for file, (kind, id) in record.FORKS.items():
        where = tmp_path / "w" / kind / safe_name(id)
        where.mkdir(parents=True)
        shutil.copy(folder / file, where / "events.jsonl")
    with Holdfast(tmp_path / "w") as hf:
        yield hf, folder


def with_forks(test):
    return pytest.mark.parametrize("forks", FORKS, indirect=True, ids=lambda each: each.name)(test)


@with_forks
def test_forks_and_what_was_put_back_fold_to_the_same_state(forks):
    hf, folder = forks
    assert hf.verify().sound
    for file, (kind, id) in record.FORKS.items():
        expected = msgspec.json.decode((folder / file).with_suffix(".json").read_bytes())
        state = load_any(hf.store, f"{kind}/{id}")
        state.trail = []
        found = msgspec.json.decode(msgspec.json.encode(state, order="deterministic"))
        assert of_what_was_known(found, expected) == expected


@with_forks
def test_forks_can_still_be_asked_for_their_results_and_forked(forks):
    hf, _ = forks
    assert hf.resume("golden-fork") == "booked nothing"
    assert hf.resume("golden-again") == hf.resume("golden-way") == "booked the Oslo Inn for 2"
    assert [call.adopted for call in hf.task("golden-fork").calls if call.adopted] == [
        "edited", "stub", "stub",
    ]  # fmt: skip
    assert [call.adopted_of for call in hf.task("golden-again").calls if call.adopted] == [
        ("golden-way", "2"), ("golden-way", "3"),
    ]  # fmt: skip
    said = [message.text for message in hf.session("golden-talk").messages()]
    assert said == ["Book me a room.", "It will be the Oslo Inn."]
    assert hf.task("golden-way").state.rewinds == 1
    new = hf.fork("golden-again", at=3, effects="reuse")
    assert hf.resume(new.id) == "booked the Oslo Inn for 2"


def test_todays_format_is_among_them_with_every_type_of_event():
    found = set()
    here = Path(__file__).parent
    formats = (FORMAT, FORK_FORMAT, NEWEST_FORMAT)
    todays = {here.glob(f"format-{format}*/*.jsonl") for format in formats}
    for log in (log for logs in todays for log in logs):
        found |= {msgspec.json.decode(line)["type"] for line in log.read_text().splitlines()}
    assert found == {kind.__struct_config__.tag for kind in get_args(AnyEvent)}


@golden(STEPS)
def test_steps_in_one_event_and_in_two_are_answered_and_gone_back_to(opened):
    hf, _, task_id = opened
    calls = hf.task(task_id).state.calls
    one = [path for path, call in calls.items() if call.seq == call.ended_seq]
    assert (one, [*calls]) == (["1", "2.1", "4", "5"], ["1", "2", "2.1", "3", "4", "5"])
    before, after = (hf.snapshot(task_id, "2.1", when) for when in ("before", "after"))
    assert (before.seq, after.seq) == (calls["2.1"].seq - 1, calls["2.1"].seq)
    assert "2.1" not in before.content["calls"] and "2.1" in after.content["calls"]
    assert hf.replay(task_id).same
    new = hf.fork(task_id, at=1, when="after", effects="live")
    assert new.state.fork.seq == calls["1"].seq
    made = ["Oslo fog", "Oslo fog!", "sent", "a?", "b?"]
    assert hf.resume(new.id) == hf.resume(task_id) == made
    assert hf.verify().sound


@golden(CLASSES)
def test_a_task_goes_on_whose_log_has_classes_with_tags_and_defaults_that_were_given(opened):
    hf, _, task_id = opened
    order = record.GoldenOrder(city="Oslo", at=datetime(2026, 1, 1, tzinfo=UTC))
    before = hf.task(task_id).seq
    assert b'"$type"' in bytes(hf.task(task_id).calls[0].args)
    assert hf.run(record.golden_classes, order, id=task_id) == "line 9 of 2:"
    view = hf.task(task_id)
    assert view.seq > before
    assert [call.status for call in view.calls] == ["completed"] * len(view.calls)
    # What was recorded is not made again, and what is new is written as natural JSON.
    assert [call.seq < before for call in view.calls] == [True] * 10 + [False] * 2
    assert b'"$' not in bytes(view.calls[-1].result)
    assert hf.run(record.golden_classes, order, 9, id=task_id) == "line 9 of 2:"


@golden(CLASSES)
def test_what_people_read_of_an_old_log_has_no_tags(opened, tmp_path):
    hf, _, task_id = opened
    view = hf.task(task_id)
    shown = [view.input, view.result, view.checkpoint, view.outputs, view.decisions, view.notes]
    texts = [msgspec.json.encode(shown, enc_hook=str)]
    for words in (
        ["show", task_id],
        ["show", task_id, "--json"],
        ["log", task_id],
        ["mirror", str(tmp_path / "mirror"), "--once"],
        ["handoff", task_id, "--dir", str(tmp_path / "handoff")],
    ):
        done = CliRunner().invoke(root, [*words, "--url", str(tmp_path / "w")])
        assert done.exit_code == 0, done.output
        texts.append(done.stdout_bytes)
    folders = tmp_path / "mirror", tmp_path / "handoff"
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"status.md", "state.json", "SUMMARY.md"} <= {path.name for path in files}
    texts += [path.read_bytes() for path in files]
    assert any(b"Oslo" in text for text in texts)
    for tag in (b"$type", b"$tuple", b"$datetime", b"$tagged"):
        assert [text for text in texts if tag in text] == []
