"""`hf.audit`: every event is told of, by whom it was, and a log that can't be believed says so."""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

from holdfast import (
    BadInput,
    Child,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Keys,
    Retry,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    Unanswered,
    ask,
    current,
    decide,
    note,
    start,
    step,
    task,
    tool,
)
from holdfast.core.events import AnyEvent, MemoryEvent, SessionEvent
from holdfast.views.audit import Audit, AuditEntry
from holdfast.views.audit.entries import ENTRIES, OMITTED
from holdfast.workspace import files

QUICK = Retry(attempts=3, delay_s=0, jitter=0)
crashes: list[str] = []


class Dead(BaseException):
    """The process is gone, as far as the task can tell."""


@step(retry=QUICK)
def audit_search(city: str) -> list[str]:
    if current().attempt < 3:
        raise ConnectionError(f"no reply, try {current().attempt}")
    return [f"{city} Inn", f"{city} Lodge"]


def audit_give_back(result: str, *, key: IdempotencyKey) -> None: ...


@tool(approve=True, undo=audit_give_back)
def audit_book(room: str) -> str:
    return f"booked {room}"


@tool(in_doubt="ask")
def audit_letter(to: str) -> str:
    if crashes:
        crashes.clear()
        raise Dead
    return f"letter to {to}"


@task
def audit_child(n: int) -> int:
    return n + 1


@task(compensate="always")
def audit_trip(city: str) -> str:
    current().plan(["search", "book"])
    rooms = audit_search(city)
    room = decide("room", rooms[0], options=rooms, because="the cheapest")
    decide("room", rooms[1], options=rooms, because="it has a desk", supersedes="room")
    audit_book(room)
    note("booked it", {"room": room})
    files.write("letter.txt", "Dear Ada")
    name = ask("To whom?", str, id="whom")
    audit_letter(name)
    started: Child[int] = start(audit_child, 1)
    assert started.result() == 2
    raise ValueError("no way back")


def told(audit: Audit, what: str) -> AuditEntry:
    found = [entry for entry in audit.entries if entry.what == what]
    assert len(found) == 1, [entry.what for entry in audit.entries]
    return found[0]


@pytest.fixture(scope="module")
def trip() -> Audit:
    with Holdfast("memory://") as hf:
        with pytest.raises(Unanswered):
            hf.run(audit_trip, "Oslo", id="audit-trip", user="ada")
        hf.answer("audit-trip", True, by="bob")
        with pytest.raises(Unanswered):
            hf.resume("audit-trip")
        hf.pause("audit-trip", because="lunch", by="cleo")
        hf.unpause("audit-trip", by="cleo")
        hf.answer("audit-trip", "Dora", by="ada")
        crashes.append("now")
        with pytest.raises(Dead):
            hf.resume("audit-trip")
        with pytest.raises(InDoubt):
            hf.resume("audit-trip")
        assert hf.audit("audit-trip").open == (
            "call 4, audit_letter, may or may not have happened: "
            "the process died between its intent and its result",
        )
        path = hf.task("audit-trip").doubts[0].path
        hf.resolve("audit-trip", path, happened=False, because="the box is empty", by="eve")
        with pytest.raises(TaskFailed):
            hf.resume("audit-trip")
        return hf.audit("audit-trip")


def test_every_type_of_event_makes_an_entry_or_says_why_not() -> None:
    of_tasks = set(get_args(AnyEvent)) - set(get_args(SessionEvent)) - set(get_args(MemoryEvent))
    assert of_tasks == ENTRIES.keys() | OMITTED.keys()
    assert not ENTRIES.keys() & OMITTED.keys()
    assert all(OMITTED.values())


def test_every_event_is_told_of_in_its_order(trip: Audit) -> None:
    seqs = [entry.seq for entry in trip.entries]
    assert seqs == sorted(set(seqs))
    assert {entry.event for entry in trip.entries} >= {"task_created", "compensating", "file_kept"}
    assert trip.verification.sound and trip.verification.head_seq == seqs[-1]
    assert trip.verification.events == seqs[-1]


def test_each_attempt_has_its_error_and_its_end(trip: Audit) -> None:
    calls = [e for e in trip.entries if e.name == "audit_search"]
    assert [(e.what, e.attempt) for e in calls] == [
        ("called", 1),
        ("attempt failed", 1),
        ("tried again", 2),
        ("attempt failed", 2),
        ("tried again", 3),
        ("returned", 3),
    ]
    assert calls[0].input == {"city": "Oslo"}
    assert calls[1].failure is not None
    assert calls[1].failure.summary() == "ConnectionError: no reply, try 1"
    assert calls[-1].output == ["Oslo Inn", "Oslo Lodge"]
    assert calls[-1].duration_s is not None and calls[-1].duration_s >= 0


def test_a_decision_has_its_options_its_reason_and_what_took_its_place(trip: Audit) -> None:
    first, second = [e for e in trip.entries if e.what == "decided"]
    assert (first.output, first.because) == ("Oslo Inn", "the cheapest")
    assert first.options == ["Oslo Inn", "Oslo Lodge"]
    assert first.superseded_by == second.path and second.of == (first.path,)


def test_an_approval_says_who_gave_it_when_and_for_which_call(trip: Audit) -> None:
    asked, approved = told(trip, "approval asked"), told(trip, "approved")
    call = next(e for e in trip.entries if e.name == "audit_book" and e.what == "called")
    assert approved.who == "bob" and asked.of == approved.of == (call.path,)
    assert asked.input == call.input == {"room": "Oslo Inn"}
    assert (call.approved_by, call.approved_at) == ("bob", approved.at)


def test_what_people_did_has_their_names(trip: Audit) -> None:
    assert (told(trip, "answered").who, told(trip, "answered").output) == ("ada", "Dora")
    assert (told(trip, "paused").who, told(trip, "paused").because) == ("cleo", "lunch")
    assert told(trip, "continued").who == "cleo"
    settled = told(trip, "doubt settled")
    assert (settled.who, settled.verdict) == ("eve", "did_not_happen")
    assert settled.because == "the box is empty"
    assert set(trip.people) == {"ada", "bob", "cleo", "eve"}


def test_nobody_is_named_who_the_log_does_not_name(trip: Audit) -> None:
    created = trip.entries[0]
    assert (created.what, created.who, created.text) == ("created", "", "for ada")


def test_each_claim_says_how_it_came_to_be(trip: Audit) -> None:
    epochs = [claim.epoch for claim in trip.claims]
    assert epochs == sorted(set(epochs)) and len(epochs) == 5
    assert [claim.how.partition(" (")[0][:5] for claim in trip.claims] == ["the f"] + ["after"] * 4
    assert "had released it" in trip.claims[1].how
    assert "never released it" in trip.claims[3].how
    assert sum(claim.events for claim in trip.claims) == trip.verification.head_seq - 1


def test_what_was_undone_names_the_call_that_it_undoes(trip: Audit) -> None:
    book = next(e for e in trip.entries if e.name == "audit_book" and e.what == "called")
    undone = [e for e in trip.entries if e.path.startswith("undo.")]
    assert [e.what for e in undone] == ["called", "returned"]
    assert all(e.of == (book.path,) for e in undone)
    assert told(trip, "compensating").text.endswith("then it is failed")
    assert [e.what for e in trip.only(call=book.path).entries] == [
        "approval asked",
        "approved",
        "called",
        "returned",
        "called",
        "returned",
    ]


def test_children_and_files_are_named(trip: Audit) -> None:
    child = told(trip, "child started")
    assert child.task == told(trip, "child ended").task != ""
    assert told(trip, "child ended").output == 2
    assert told(trip, "file kept").name == "letter.txt"
    assert told(trip, "noted").output == {"room": "Oslo Inn"}


def test_entries_can_be_chosen_by_time_and_by_event(trip: Audit) -> None:
    middle = trip.entries[5].at
    before, after = trip.only(until=middle), trip.only(since=middle)
    assert len(before.entries) + len(after.entries) == len(trip.entries)
    assert before.left_out == len(after.entries)
    assert [e.seq for e in trip.only(event=3).entries] == [3]
    with pytest.raises(BadInput, match="time zone"):
        trip.only(since=datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_cancelled_task_says_who_asked_for_it() -> None:
    with Holdfast("memory://") as hf:
        with pytest.raises(Unanswered):
            hf.run(audit_trip, "Oslo", id="audit-stop")
        hf.cancel("audit-stop", because="too dear", by="bob")
        with pytest.raises(TaskCancelled):
            hf.resume("audit-stop")
        found = hf.audit("audit-stop")
    asked = told(found, "cancel asked")
    assert (asked.who, asked.because) == ("bob", "too dear")
    assert told(found, "task cancelled").because == "too dear"


def test_a_task_that_is_not_there_is_not_found() -> None:
    with Holdfast("memory://") as hf, pytest.raises(TaskNotFound, match="'nobody'"):
        hf.audit("nobody")


def test_a_task_that_was_only_started_has_one_entry() -> None:
    with Holdfast("memory://") as hf:
        hf.start(audit_child, 1, id="audit-new")
        found = hf.audit("audit-new")
    assert [e.what for e in found.entries] == ["created"]
    assert (found.claims, found.open, found.status) == ((), (), "pending")


# Damage.


@step
def audit_price(room: str) -> int:
    return 90


@step
def audit_page(size: int) -> str:
    return "x" * size


@task
def audit_prices(size: int) -> int:
    price = audit_price("attic")
    audit_page(size)
    return price


def content(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_damaged_log_is_told_of_up_to_the_damage_and_stays_as_it_is(tmp_path: Path) -> None:
    with Holdfast(tmp_path) as hf:
        hf.run(audit_prices, 10, id="p-1")
        whole = hf.audit("p-1")
    log = tmp_path / "tasks/p-1/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"result":90', b'"result":20', 1))
    before = content(tmp_path)
    with Holdfast(tmp_path) as hf:
        found = hf.audit("p-1")
    assert found.entries == whole.entries[:2]
    assert not found.verification.sound and found.verification.head_seq == 2
    assert found.verification.damage == (
        "event 3: its sum does not fit its bytes and the event before it",
    )
    assert (found.id, found.type, found.status) == ("p-1", "audit_prices", "in_progress")
    assert content(tmp_path) == before


def test_a_log_that_is_damaged_from_the_start_is_told_of_too(tmp_path: Path) -> None:
    with Holdfast(tmp_path) as hf:
        hf.run(audit_prices, 10, id="p-1")
    log = tmp_path / "tasks/p-1/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"args_hash":"', b'"args_hash":"0', 1))
    with Holdfast(tmp_path) as hf:
        found = hf.audit("p-1")
    assert (found.id, found.entries, found.verification.sound) == ("p-1", (), False)


def test_a_value_whose_blob_is_gone_is_named_and_the_rest_is_told(tmp_path: Path) -> None:
    with Holdfast(tmp_path) as hf:
        hf.run(audit_prices, 100_000, id="p-1")
    for blob in (tmp_path / "blobs").rglob("*"):
        if blob.is_file():
            os.unlink(blob)
    with Holdfast(tmp_path) as hf:
        found = hf.audit("p-1")
    assert not found.verification.sound
    assert found.entries[-1].what == "task completed"
    (broken,) = [e for e in found.entries if e.problems]
    assert broken.name == "audit_page" and broken.problems[0].startswith("output: it can't be read")


def test_a_log_that_was_cut_shows_against_its_head(tmp_path: Path) -> None:
    with Holdfast(tmp_path) as hf:
        hf.run(audit_prices, 10, id="p-1")
        heads = hf.heads()
    log = tmp_path / "tasks/p-1/events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with Holdfast(tmp_path) as hf:
        assert hf.audit("p-1").verification.sound
        found = hf.audit("p-1", against=heads)
    assert "the log was cut" in found.verification.damage[0]


def test_it_says_whether_signatures_were_checked(tmp_path: Path) -> None:
    key = Keys.new()
    with Holdfast(tmp_path, sign_key=key) as hf:
        hf.run(audit_prices, 10, id="p-1")
        assert hf.audit("p-1").verification.signatures == "checked"
    with Holdfast(tmp_path) as hf:
        assert hf.audit("p-1").verification.signatures == "not_checked"
    with Holdfast("memory://") as hf:
        hf.run(audit_prices, 10, id="p-1")
        assert hf.audit("p-1").verification.signatures == "none"


def test_it_says_that_the_store_is_encrypted(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    with Holdfast(tmp_path, key=Keys.new()) as hf:
        hf.run(audit_prices, 10, id="p-1")
        assert hf.audit("p-1").verification.signatures == "encrypted"


def test_times_never_run_backwards_in_it(trip: Audit) -> None:
    assert all(a.at <= b.at for a, b in itertools.pairwise(trip.entries))
    assert trip.made_at.tzinfo is UTC and trip.made_at - trip.entries[-1].at < timedelta(hours=1)


# Forks and rewinds.


def test_a_fork_is_told_with_the_past_it_shares_and_whose_that_is() -> None:
    with Holdfast("memory://") as hf:
        hf.run(audit_prices, 10, id="first")
        fork = hf.fork(
            "first", at=1, when="after", effects="stub", stubs={"audit_page": "no"},
            new_id="second", by="bob", because="what if",
        )  # fmt: skip
        hf.resume(fork.id)
        found, original = hf.audit("second"), hf.audit("first")
    assert found.verification.sound and found.origin == "first"
    assert original.forks == ("second",) and original.origin == ""
    past = [e for e in found.entries if e.log]
    assert {e.log for e in past} == {"first"}
    assert [e.seq for e in past] == [e.seq for e in original.entries[: len(past)]]
    forked = told(found, "forked")
    assert (forked.who, forked.because, forked.how) == ("bob", "what if", "stub")
    assert (forked.task, forked.to, forked.text) == ("first", past[-1].seq, "after call 1")
    assert forked.options == {"stubs": {"audit_page": "no"}}
    adopted = told(found, "adopted")
    assert (adopted.name, adopted.how, adopted.output) == ("audit_page", "stub", "no")
    assert [claim.log for claim in found.claims] == ["first", ""]
    assert found.claims[1].how == "the first claim"
    assert sum(claim.events for claim in found.claims) == found.verification.head_seq - 2


def test_the_head_of_a_fork_is_that_of_all_it_goes_back_to() -> None:
    with Holdfast("memory://") as hf:
        hf.run(audit_prices, 10, id="first")
        hf.fork("first", at=1, when="after", effects="live", new_id="second")
        hf.resume("second")
        noted = hf.heads()
        assert hf.verify(against=noted).sound
        checked = hf.audit("second", against=noted).verification
    (head,) = [head for head in noted if head.task == "second"]
    assert checked.sound and (checked.head_seq, checked.head_sum) == (head.seq, head.sum)


def test_a_rewind_says_who_made_it_and_what_came_before_stays() -> None:
    with Holdfast("memory://") as hf:
        hf.run(audit_prices, 10, id="back")
        before = hf.audit("back").entries
        hf.rewind("back", to=2, by="eve", because="too long")
        hf.resume("back")
        found = hf.audit("back")
    assert found.verification.sound and found.entries[: len(before)] == before
    rewound = told(found, "rewound")
    assert (rewound.who, rewound.because, rewound.how) == ("eve", "too long", "reuse")
    assert rewound.text == "before call 2" and rewound.to < rewound.seq
    assert sum(e.name == "audit_page" and e.what == "called" for e in found.entries) == 2
