"""A message is taken in once: also if the process ends after that, and before it is out of the box.

It is left there then, and whoever drives the task next is handed it again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from msgspec import Raw

from holdfast import Holdfast, InDoubt, Unanswered, ask, start, step, task, tool
from holdfast.core.events import (
    AnyEvent,
    CancelRequested,
    ChildEnded,
    Event,
    FileKept,
    FileRemoved,
    MessageSent,
    MissionSet,
    Moved,
    PauseRequested,
    Planned,
    QuestionAnswered,
    Settled,
    TaskContinued,
    dump_event,
)
from holdfast.engines.mail import Message, take_in
from holdfast.log.log import open_log
from holdfast.log.reading import own_events, stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import inbox_of, post_to
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import SideKind, Store


class Killed(BaseException):
    """Stands for the end of the process."""


@step
def mailed_step() -> int:
    return 1


@task
def mailed_question() -> bool:
    mailed_step()
    return ask("Sure?", bool)


@tool(in_doubt="ask")
def mailed_tool() -> int:
    raise Killed


@task
def mailed_doubt() -> int:
    return mailed_tool()


@task
def mailed_child() -> bool:
    return ask("In the child?", bool)


@task
def mailed_parent() -> Any:
    return start(mailed_child).result()


def waiting(hf: Holdfast) -> None:
    with pytest.raises(Unanswered):
        hf.run(mailed_question, id="t")


def paused(hf: Holdfast) -> None:
    waiting(hf)
    hf.pause("t")


def in_doubt(hf: Holdfast) -> None:
    with pytest.raises(Killed):
        hf.run(mailed_doubt, id="t")
    with pytest.raises(InDoubt):
        hf.resume("t")


def with_a_child(hf: Holdfast) -> None:
    with pytest.raises(Exception):  # noqa: B017  # it waits for its child, or for a person
        hf.run(mailed_parent, id="t")


Prepare = Callable[[Holdfast], None]

KINDS: list[tuple[Event, Prepare]] = [
    (QuestionAnswered(path="2", answer=Raw(b"true"), by="ada"), waiting),
    (Settled(path="1", verdict="happened", by="ada", result=Raw(b"7")), in_doubt),
    (PauseRequested(by="ada"), waiting),
    (TaskContinued(by="ada"), paused),
    (CancelRequested(by="ada"), waiting),
    (ChildEnded(path="1", result=Raw(b"true")), with_a_child),
    (MessageSent(name="news", value=Raw(b"1"), by="ada"), waiting),
    (Planned(items=("one", "two"), by="ada"), waiting),
    (MissionSet(text=Raw(b'"go"'), by="ada"), waiting),
    (FileKept(name="a.txt", file=Raw(b'{"sha256":"0","size_bytes":0}'), by="ada"), waiting),
    (FileRemoved(name="a.txt", by="ada"), waiting),
    (Moved(engine="elsewhere", by="ada"), waiting),
]

NAME = "message-1"


class Dying(MemoryStore):
    """A store whose process ends just before a message is taken out of its inbox."""

    dies = True

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        if self.dies:
            raise Killed
        super().drop_side(stream, kind, name)


def drive(store: Store, owner: str) -> None:
    log = open_log(store, "t", owner, 60.0, lambda: datetime.now(UTC))
    try:
        take_in(log)
    finally:
        log.close()


def taken(store: Store) -> list[AnyEvent]:
    found = own_events(store, stream_of("t"))
    return [event for event in found if getattr(event, "post", "") == NAME]


def test_every_kind_of_message_is_tried():
    assert {type(event) for event, _ in KINDS} == set(get_args(Message))


@pytest.mark.parametrize(
    ("event", "prepare"), KINDS, ids=[type(event).__name__ for event, _ in KINDS]
)
def test_a_message_that_is_handed_over_again_is_taken_in_once(event, prepare):
    store = Dying()
    with Holdfast(store) as hf:
        store.dies = False
        prepare(hf)
        store.dies = True
        assert post_to(store, stream_of("t"), NAME, dump_event(event))
        with pytest.raises(Killed):
            drive(store, "first")
        assert len(taken(store)) == 1
        assert NAME in load(store, "t", missing_ok=True).posts, "so its log says for good"
        assert [post.name for post in inbox_of(store, [stream_of("t")])] == [NAME]
        store.dies = False
        drive(store, "second")
        assert len(taken(store)) == 1
        if not isinstance(event, Moved):  # for the engine that has it now
            assert not inbox_of(store, [stream_of("t")])
