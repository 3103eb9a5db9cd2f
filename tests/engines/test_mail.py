"""Which message still means something, to a task of any status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.fold import fold
from holdfast.core.state import State
from holdfast.engines.mail import Message, applies, deliver, fitted
from holdfast.log.log import open_log
from holdfast.log.store_calls import inbox_of, post_to
from holdfast.stores.memory import MemoryStore

NOTHING = Raw(b"null")
FAILURE = e.Failure("E", "m")


def state_of(*events: e.AnyEvent) -> State:
    first = e.TaskCreated(format=1, id="t", task="job", args=Raw(b"{}"), args_hash="h")
    placed = [replace(event, seq=seq) for seq, event in enumerate((first, *events), 1)]
    return fold(placed)


CLAIMED = e.Claimed(epoch=1, owner="me", engine="local", format=1)
CALLS = (
    e.QuestionAsked(path="1", id="q", question="?", args_hash="h", expects="x"),
    e.ChildStarted(path="2", id="c", name="help", args=NOTHING, args_hash="h"),
    e.ChildStarted(path="3", id="d", name="help", args=NOTHING, args_hash="h"),
    e.ChildMade(path="3"),
    e.Started(path="4", name="send", kind="tool"),
    e.Started(path="5", name="look"),
    e.Doubted(path="4", why="it was cut off"),
)
STATES = {
    "running": state_of(CLAIMED, *CALLS),
    "paused": state_of(CLAIMED, *CALLS, e.PauseRequested(by="ada", post="taken")),
    "stuck": state_of(CLAIMED, *CALLS, e.SetAside(owner="me", deaths=5)),
    "cancelling": state_of(CLAIMED, *CALLS, e.CancelRequested(by="ada", post="taken")),
    "undoing": state_of(CLAIMED, *CALLS, e.Compensating(ending="failed", failure=FAILURE)),
    "over": state_of(CLAIMED, *CALLS, e.TaskCompleted(result=NOTHING)),
}
OPEN = {"running", "paused", "stuck", "cancelling", "undoing"}
MESSAGES: list[tuple[Message, set[str]]] = [
    (e.QuestionAnswered(path="1", answer=NOTHING, by="ada"), OPEN),
    (e.QuestionAnswered(path="2", answer=NOTHING, by="ada"), set()),
    (e.QuestionAnswered(path="3", answer=NOTHING, by="ada"), set()),
    (e.QuestionAnswered(path="5", answer=NOTHING, by="ada"), set()),
    (e.QuestionAnswered(path="9", answer=NOTHING, by="ada"), set()),
    (e.ChildEnded(path="1", result=NOTHING), set()),
    (e.ChildEnded(path="2", result=NOTHING), OPEN),
    (e.ChildEnded(path="3", result=NOTHING), OPEN),
    (e.ChildEnded(path="5", result=NOTHING), set()),
    (e.ChildEnded(path="9", result=NOTHING), set()),
    (e.Settled(path="4", verdict="happened", by="ada"), OPEN),
    (e.Settled(path="5", verdict="happened", by="ada"), set()),
    (e.Settled(path="9", verdict="happened", by="ada"), set()),
    (e.PauseRequested(by="ada"), {"running", "stuck", "undoing"}),
    (e.TaskContinued(by="ada"), {"paused", "stuck"}),
    (e.CancelRequested(by="ada"), {"running", "paused", "stuck"}),
    (e.Planned(items=("look",)), OPEN),
    (e.MissionSet(text=NOTHING), OPEN),
    (e.MessageSent(name="x", value=NOTHING, by="ada"), OPEN),
    (e.Moved(engine="temporal"), OPEN),
    (e.Moved(engine=""), set()),
    (e.FileKept(name="a", file=NOTHING), {*OPEN, "over"}),
]


@pytest.mark.parametrize("status", STATES)
@pytest.mark.parametrize(("message", "where"), MESSAGES, ids=lambda given: type(given).__name__)
def test_a_message_is_taken_while_it_means_something(message, where, status):
    state = STATES[status]
    assert applies(state, message, "a message") == (status in where)
    assert not applies(State(), message), "there is no such task"


@pytest.mark.parametrize(("message", "where"), MESSAGES, ids=lambda given: type(given).__name__)
def test_a_message_that_was_taken_is_not_taken_again(message, where):
    assert "taken" in STATES["paused"].posts
    assert not applies(STATES["paused"], message, "taken")


def test_every_kind_of_message_is_tried():
    kinds = {type(message) for message, _ in MESSAGES}
    assert kinds | {e.FileRemoved} == set(get_args(Message))


def test_only_a_plan_is_fitted_to_what_the_plan_is_by_now():
    planned = state_of(e.Planned(items=("look", "book")))
    for message, _ in MESSAGES:
        if not isinstance(message, e.Planned):
            assert fitted(planned, message) is message
    at_first = e.Planned(items=("look",), base_seq=0)
    assert fitted(state_of(), at_first) is at_first
    assert fitted(planned, at_first) is None
    of_this_one = e.Planned(items=("fly",), base_seq=2)
    assert fitted(planned, of_this_one) is of_this_one


def test_what_is_no_message_keeps_none_of_those_behind_it_from_the_task():
    store = MemoryStore()
    log = open_log(store, "t", "me", 60, lambda: datetime(2030, 1, 1, tzinfo=UTC))
    log.append(e.TaskCreated(format=1, id="t", task="job", args=Raw(b"{}"), args_hash="h"))
    log.sync()
    sent = e.MessageSent(name="x", value=NOTHING, by="ada")
    stray = e.Noted(scope="", mark="m", text="no message")
    for name, data in (
        ("1", b"nonsense"),
        ("2", msgspec.json.encode(stray)),
        ("3", msgspec.json.encode(sent)),
    ):
        assert post_to(store, "tasks/t", name, data)
    for _ in range(2):
        deliver(log, inbox_of(store, ["tasks/t"]))
        assert log.state.posts == ("3",) and log.messages == 1
        assert [mail.name for mail in log.state.mail] == ["x"]
        # What is nothing of ours is left where it is.
        assert [post.name for post in inbox_of(store, ["tasks/t"])] == ["1", "2"]
    log.close()
