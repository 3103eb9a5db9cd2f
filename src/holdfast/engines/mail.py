"""The messages to a task from outside: into its log, or into its inbox while another holds it.

A message is an event that is to be appended. The holder of the task appends it, if it still makes
sense then, and takes it out of the inbox afterwards; an event remembers the name of its message,
so that a crash in between does not append it twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from operator import attrgetter

from msgspec.structs import replace

from holdfast.core.decoding import Illegible
from holdfast.core.events import (
    AnyEvent,
    CancelRequested,
    ChildEnded,
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
    load_event,
)
from holdfast.core.filing import refused
from holdfast.core.plan import merged, numbered, recorded
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.engines.routing import driven_by
from holdfast.errors import Conflict
from holdfast.log.log import Log
from holdfast.log.store_calls import inbox_of, unpost
from holdfast.stores.port import Post

Message = (
    QuestionAnswered
    | Settled
    | PauseRequested
    | TaskContinued
    | CancelRequested
    | ChildEnded
    | MessageSent
    | Planned
    | MissionSet
    | FileKept
    | FileRemoved
    | Moved
)


def take_in(log: Log, posts: Collection[Post] | None = None) -> None:
    """Append the messages that were left for a task.

    Not those for a task that a remote engine drives: it brings them in itself (see `deliver`).
    """
    for post in inbox_of(log.store, [log.lease.stream]) if posts is None else posts:
        if driven_by(log.state):  # since the message before this one, perhaps
            return
        deliver(log, [post])


def deliver(log: Log, posts: Collection[Post]) -> None:
    """Append messages, and tell who drives the task."""
    for post in posts:
        event = _message(post)
        if event is None:
            continue  # nothing of ours; its sender may take it away
        if _take(log, event, post.name):
            log.sync()
            attended = log.attended  # who may leave at any moment
            if attended is not None:
                attended.hear(event)
        unpost(log.store, post.stream, post.name)


def _take(log: Log, event: Message, name: str) -> bool:
    def if_it_applies(state: State) -> Message | None:
        if not applies(state, event, name):
            return None
        fitting = fitted(state, event)
        if fitting is None:
            return None
        log.messages += 1
        return replace(fitting, post=name)

    return log.append(if_it_applies)


def _message(post: Post) -> Message | None:
    try:
        event: AnyEvent = load_event(post.data)
    except Illegible:
        return None
    return event if isinstance(event, Message) else None


def fitted(state: State, event: Message) -> Message | None:
    """A message as it is meant by now: a plan may have moved on while it was under way."""
    if not isinstance(event, Planned) or not state.plans:
        return event
    place = bisect_right(state.plans, event.base_seq, key=attrgetter("seq"))
    if place == len(state.plans):
        return event
    if not place:
        return None  # who sent it sees that it was not taken, and looks again
    try:
        items = merged(state.plans[place - 1].items, state.plan, numbered(event.items))
    except Conflict:
        return None
    return replace(event, items=recorded(items), base_seq=state.seq)


def applies(state: State, event: Message, name: str = "") -> bool:
    """Whether a message still means something to the task."""
    if state.seq == 0 or name in state.posts:
        return False
    if isinstance(event, FileKept | FileRemoved):  # also of a task that has ended meanwhile
        return refused(state, event) is None
    if state.status in FINISHED:
        return False
    if isinstance(event, QuestionAnswered | ChildEnded | Settled):
        call = state.calls.get(event.path)
        if call is None:
            return False
        if isinstance(event, Settled):
            # Only the process that makes a running call may say how it ended.
            return call.status == "in_doubt"
        if isinstance(event, ChildEnded):
            return call.kind == "child" and call.status in ("running", "waiting")
        return call.kind != "child" and call.status == "waiting"
    if isinstance(event, Planned | MissionSet | MessageSent):
        return True
    if isinstance(event, Moved):
        return event.engine != state.driver
    if isinstance(event, TaskContinued):
        return state.status in HALTED
    if isinstance(event, PauseRequested):
        return state.status != "paused" and not state.cancelling
    return not state.cancelling and not state.ending
