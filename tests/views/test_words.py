"""Every event has words, in one table that everything which shows events is made of."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from msgspec import Raw

from holdfast import Holdfast, decide, note, step, task
from holdfast.cli.commands.show import event_line
from holdfast.core import events as e
from holdfast.core.events import AnyEvent, Failure
from holdfast.core.fold import advance
from holdfast.core.state import State
from holdfast.log.reading import read_events, stream_of
from holdfast.views.words import WORDS, raised_at, words_of
from holdfast.workspace.projecting import progress_line

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
TABLES = {
    "views/words.py": "what people are told",
    "views/audit/entries.py": "what an audit keeps besides: data, and no words",
    "core/fold/__init__.py": "what an event does to the state",
    "codec/redact.py": "which of its fields may hold what must not be written",
    "log/trail.py": "which of its fields may be large",
    "views/measures.py": "in what state the time after it goes by",
}
"""The tables by type of event that there are, and what each is for."""


def test_every_type_of_event_has_words():
    assert set(WORDS) == set(get_args(AnyEvent))


def tables_by_event(source: str) -> int:
    """How many types of events the largest table or match of a module is about."""
    names = {kind.__name__ for kind in get_args(AnyEvent)}
    most = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Match):
            keys = [n.cls for case in node.cases for n in ast.walk(case.pattern)
                    if isinstance(n, ast.MatchClass)]  # fmt: skip
        else:
            continue
        most = max(most, sum(ast.unparse(key).rpartition(".")[2] in names for key in keys))
    return most


def test_no_second_table_says_events_in_words():
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if tables_by_event(path.read_text()) > 12
    }
    assert found == set(TABLES)


def test_such_a_table_would_be_found():
    names = [kind.__name__ for kind in get_args(AnyEvent)][:20]
    assert tables_by_event(f"TOLD = {{{', '.join(f'e.{name}: str' for name in names)}}}") == 20
    cases = "\n".join(f"    case e.{name}(): pass" for name in names)
    assert tables_by_event(f"match event:\n{cases}") == 20


@step
def words_look(city: str) -> list[str]:
    return [f"{city} Inn"]


@task
def words_trip(city: str) -> str:
    found = words_look(city)
    note("seen", len(found))
    return decide("room", found[0], because="it is cheap | and near")


def test_a_log_and_its_progress_say_the_same_in_the_words_of_the_table():
    with Holdfast("memory://") as hf:
        hf.run(words_trip, "Oslo", id="words-1")
        events = list(read_events(hf.store, stream_of("words-1")))
    state = State()
    told = []
    for event in events:
        advance(state, event)
        said = words_of(event, state)
        line, progress = event_line(event, state).plain, progress_line(event, state)
        told.append((said.what, said.status))
        assert said.minor == (not progress)
        if not said.minor:
            assert f" | {said.status}" in progress
        for phrase in said.parts:
            if isinstance(phrase.of, str):
                assert phrase.of.strip() in line
    assert told == [
        ("created", "created"),
        ("claimed", "driven"),
        ("called", "completed"),
        ("noted", "noted"),
        ("decided", "decided"),
        ("task completed", "completed"),
    ]


def test_a_failure_is_placed_where_the_users_code_raised_it():
    ours = "/venv/lib/python3.12/site-packages/holdfast"
    trace = (
        f'  File "{ours}/engines/sync_driver.py", line 115, in run_function\n    …\n'
        '  File "/home/ada/rows.py", line 11, in work\n    return process(…)\n'
        f'  File "{ours}/workspace/batches.py", line 349, in process\n    …\n'
        f'  File "{ours}/agent/flow.py", line 44, in driven\n    …\n'
        f'  File "{ours}/api/branches.py", line 322, in end\n    raise EachFailed(…)\n'
    )
    assert raised_at(Failure("EachFailed", "1 of 50", trace)) == "/home/ada/rows.py:11, in work"


def test_a_sentence_is_made_of_parts_that_each_medium_shows_in_its_way():
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    asked = e.QuestionAsked(
        seq=3, path="1", id="q", question="<b>?", expects="bool", until=noon, args_hash="",
        args=Raw(b"[]"),
    )  # fmt: skip
    said = words_of(asked, State())
    shown = said.sentence(str, lambda at: f"[{at:%H:%M}]", lambda text: text.replace("<", "&lt;"))
    assert shown == "q (bool, until [12:00]): &lt;b>?"
    assert (said.tone, said.strong) == ("doubt", True)


def test_where_there_is_little_room_what_needs_it_is_left_out():
    claimed = e.Claimed(seq=2, format=2, epoch=3, owner="w-1")
    said = words_of(claimed, State())
    assert said.sentence(str, str) == "by w-1, epoch 3"
    assert said.sentence(str, str, short=True) == "by w-1"
    kept = e.FileKept(seq=2, name="a.md", file=Raw(b"{}"))
    assert words_of(kept, State()).sentence(lambda raw: bytes(raw).decode(), str) == "a.md {}"
