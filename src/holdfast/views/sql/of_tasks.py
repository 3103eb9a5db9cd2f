"""The tables of tasks themselves: what each is, decided, planned, noted and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.core.events import AnyEvent, PlanItem, dump_event
from holdfast.core.state import FINISHED, PlanVersion
from holdfast.log.tokens import Estimate
from holdfast.views.sql.columns import (
    Heard,
    Table,
    TaskLog,
    integer,
    json,
    real,
    seconds,
    text,
    time,
    value,
)

INDEXED = frozenset(
    ("id", "type", "status", "user", "session", "labels", "parent", "origin", "created_at")
)
"""The facts that a store has of a task without reading its log."""


class PlanRow(NamedTuple):
    """An item of a plan, as it was in one version of it."""

    number: int
    version: PlanVersion
    place: int
    item: PlanItem


def _ended_at(log: TaskLog) -> datetime | None:
    return log.state.updated_at if log.state.status in FINISHED else None


def _failure(log: TaskLog) -> str | None:
    failure = log.state.failure
    return None if failure is None else failure.summary()


def _last_error(log: TaskLog) -> str | None:
    """What last went wrong with it: itself, its driver, or the newest of its attempts."""
    state = log.state
    if state.failure is not None:
        return state.failure.summary()
    if state.hindrance is not None:
        return f"{state.hindrance.error}: {state.hindrance.why}"
    if state.status == "stuck":
        return state.because
    newest = max(log.failures(), key=lambda broken: str(broken.at), default=None)
    return None if newest is None else newest.failure.summary()


def _planned(log: TaskLog) -> Iterator[PlanRow]:
    for number, version in enumerate(log.state.plans, 1):
        for place, item in enumerate(version.items, 1):
            yield PlanRow(number, version, place, item)


def _whole(event: AnyEvent) -> str:
    return dump_event(event).decode()


def _type(event: AnyEvent) -> str:
    return str(event.__struct_config__.tag)


_TASK = text("task_id", "The task.", lambda log, _: log.id)

TASKS = Table(
    "tasks",
    "Every task.",
    "task",
    lambda log: log.itself(),
    (
        text("id", "Its id.", lambda log, _: log.id),
        text("type", "The name of its function.", lambda log, _: log.state.task),
        text(
            "status",
            "pending, in_progress, awaiting_user, paused, stuck, completed, failed or cancelled.",
            lambda log, _: log.state.status,
        ),
        text("user", "Whose it is, or ''.", lambda log, _: log.state.user),
        text("session", "The session it belongs to, or ''.", lambda log, _: log.state.session),
        json("labels", "Its labels, as an object.", lambda log, _: log.state.labels),
        text("parent", "The task that started it, or ''.", lambda log, _: log.state.parent),
        text("parent_path", "The call by which it did.", lambda log, _: log.state.parent_path),
        text("origin", "The task that it is a fork of, or ''.", lambda log, _: log.origin),
        integer(
            "origin_seq",
            "For a fork: the last event that they share.",
            lambda log, _: log.state.fork and log.state.fork.seq,
        ),
        integer("rewinds", "How often it was rewound.", lambda log, _: log.state.rewinds),
        time("created_at", "When it was made.", lambda log, _: log.state.created_at),
        time("updated_at", "When its newest event came.", lambda log, _: log.state.updated_at),
        time("ended_at", "When it ended; NULL if it has not.", lambda log, _: _ended_at(log)),
        real(
            "duration_s",
            "From when it was made to its end, waiting included.",
            lambda log, _: seconds(log.state.created_at, _ended_at(log)),
        ),
        value("input", "Its arguments.", lambda log, _: log.value(log.state.args)),
        value("result", "What it returned.", lambda log, _: log.value(log.state.result)),
        text("failure", "Why it failed, if it did.", lambda log, _: _failure(log)),
        text(
            "because",
            "Why it was paused, is stuck or was cancelled.",
            lambda log, _: log.state.because,
        ),
        text("position", "Which step it is on.", lambda log, _: str(log.view.position)),
        integer(
            "calls", "How many calls it made: rows of `steps`.", lambda log, _: len(log.state.calls)
        ),
        integer(
            "failed_attempts",
            "How many attempts of calls failed.",
            lambda log, _: log.failed_attempts,
        ),
        integer("events", "How many events its log has.", lambda log, _: log.state.seq),
        integer(
            "claims",
            "How often it was taken up: once, and again after each stop.",
            lambda log, _: log.state.claims,
        ),
        json("plan", "What it intends to do, as a list of items.", lambda log, _: log.state.plan),
        value(
            "mission",
            "What it is for, if that was said.",
            lambda log, _: log.value(log.state.mission),
        ),
        json("checkpoint", "The newest state that it saved.", lambda log, _: log.view.checkpoint),
        integer("version", "The version that its function had.", lambda log, _: log.state.version),
        text("owner", "Who drove it last.", lambda log, _: log.state.owner),
        text("engine", "What drives it: local.", lambda log, _: log.state.engine),
        time(
            "wake_at", "When it goes on by itself, if it waits.", lambda log, _: log.state.wake_at
        ),
        text(
            "at_work",
            "Who holds its lease and is at work on it now; NULL if nobody is.",
            lambda log, _: log.holder and log.holder.name,
        ),
        time(
            "lease_until",
            "When that lease ends unless it is renewed; NULL where the store does not know.",
            lambda log, _: log.holder and log.holder.until,
        ),
        integer("epoch", "The number of its newest lease.", lambda log, _: log.state.epoch),
        integer(
            "crashes",
            "How often drivers died at the place where it is now.",
            lambda log, _: max(log.state.deaths.values(), default=0),
        ),
        text(
            "hindrance",
            "Why it does not move, where somebody tried: the error, and what to do.",
            lambda log, _: log.state.hindrance and log.state.hindrance.why,
        ),
        text("last_error", "What last went wrong with it.", lambda log, _: _last_error(log)),
    ),
)

DECISIONS = Table(
    "decisions",
    "What tasks chose at branch points, and why.",
    "task",
    lambda log: log.choices(),
    (
        _TASK,
        text("path", "The place in the tree of calls.", lambda _, c: c.decision.path),
        text("name", "What was decided.", lambda _, c: c.decision.name),
        value("choice", "What was chosen.", lambda log, c: log.value(c.decision.choice)),
        value("options", "Among what.", lambda log, c: log.value(c.decision.options)),
        text("because", "Why.", lambda _, c: c.decision.because),
        time("at", "When.", lambda _, c: c.decision.at),
        text("step", "The newest step before it; '' if there was none.", lambda _, c: c.step),
        text(
            "supersedes",
            "The earlier decision whose place it took.",
            lambda _, c: c.decision.supersedes,
        ),
        text("superseded_by", "The later one that took its place.", lambda _, c: c.superseded_by),
    ),
)

EVENTS = Table(
    "events",
    "The logs of tasks, event by event; also what a rewind took out of their past.",
    "task",
    lambda log: log.events(),
    (
        _TASK,
        integer("seq", "Its number, counted from 1.", lambda _, e: e.seq),
        text("type", "What happened: started, completed, noted, …", lambda _, e: _type(e)),
        time("at", "When.", lambda _, e: e.at),
        text("path", "The call it is about, or ''.", lambda _, e: getattr(e, "path", "")),
        integer(
            "shared",
            "1 if it is of the past that a fork has from its origin.",
            lambda log, e: log.is_shared(e.seq),
        ),
        text(
            "event",
            "All of it, as JSON: what is large stands in it as a reference.",
            lambda _, e: _whole(e),
        ),
    ),
)

PLANS = Table(
    "plans",
    "The items of every version of every plan.",
    "task",
    _planned,
    (
        _TASK,
        integer("version", "Which version of the plan, counted from 1.", lambda _, p: p.number),
        integer(
            "newest",
            "1 in the version that counts.",
            lambda log, p: p.number == len(log.state.plans),
        ),
        integer("number", "The place of the item, counted from 1.", lambda _, p: p.place),
        text("item", "The item's id.", lambda _, p: p.item.id),
        text("text", "What is to be done.", lambda _, p: p.item.text),
        text("status", "pending, doing, done, failed or skipped.", lambda _, p: p.item.status),
        json("after", "The ids of the items that come before it.", lambda _, p: p.item.after),
        time("at", "Since when the version is there.", lambda _, p: p.version.at),
        integer("seq", "The event that made the version.", lambda _, p: p.version.seq),
        text(
            "marked",
            "The item that changed with it; '' for a new plan.",
            lambda _, p: p.version.marked,
        ),
        text("because", "Why it changed.", lambda _, p: p.version.because),
        text("changed_by", "Who changed it, if it was not the task.", lambda _, p: p.version.by),
    ),
)

NOTES = Table(
    "notes",
    "What tasks noted.",
    "task",
    lambda log: enumerate(log.state.notes, 1),
    (
        _TASK,
        integer("number", "Counted from 1.", lambda _, n: n[0]),
        text("text", "The note.", lambda _, n: n[1].text),
        value("data", "What was noted with it.", lambda log, n: log.value(n[1].data)),
        time("at", "When.", lambda _, n: n[1].at),
        text("scope", "The call or branch it was noted in.", lambda _, n: n[1].scope),
    ),
)

FACTS = Table(
    "facts",
    "What tasks made of what the outside world said.",
    "task",
    lambda log: log.state.facts,
    (
        _TASK,
        text("path", "The place in the tree of calls.", lambda _, f: f.path),
        text("name", "What it is.", lambda _, f: f.name),
        value("value", "The fact.", lambda log, f: log.value(f.value)),
        time("as_of", "How old the oldest part of it is.", lambda _, f: f.as_of),
        json("sources", "The paths of the reads.", lambda _, f: f.sources),
        time("at", "When it was made.", lambda _, f: f.at),
    ),
)

FILES = Table(
    "files",
    "Every version of the files of tasks.",
    "task",
    lambda log: log.files(),
    (
        _TASK,
        text("name", "Its name.", lambda _, f: f.file.name),
        integer("version", "The version: the event that kept it.", lambda _, f: f.file.version),
        integer("newest", "1 if the file is like that now.", lambda _, f: f.is_newest),
        integer("size_bytes", "How large it is.", lambda _, f: f.file.size_bytes),
        text("sha256", "The sum of its content.", lambda _, f: f.file.artifact.sha256),
        time("at", "When it was written.", lambda _, f: f.file.at),
        text("path", "The call that wrote it, or ''.", lambda _, f: f.file.path),
        text("written_by", "Who wrote it, if it was not the task.", lambda _, f: f.file.by),
    ),
)


# The tables of what was said, and of what is remembered.


_estimate = Estimate()


def _usage(heard: Heard, name: str) -> int | None:
    # Anybody may have written it: only what can be a report is taken for one.
    usage: Any = heard.message.meta.get("usage")
    number = usage.get(name) if isinstance(usage, dict) else None
    return number if type(number) is int and 0 <= number < 2**62 else None


def _model(heard: Heard) -> str | None:
    model = heard.message.meta.get("model")
    return model if isinstance(model, str) else None


_SESSION = text("session_id", "The session.", lambda log, _: log.id)

SESSIONS = Table(
    "sessions",
    "Every session.",
    "session",
    lambda log: (log,),
    (
        text("id", "Its id.", lambda log, _: log.id),
        text("user", "Whose it is, or ''.", lambda log, _: log.state.user),
        text("status", "open or ended.", lambda log, _: log.state.status),
        text("because", "Why it ended.", lambda log, _: log.state.because),
        json("labels", "Its labels, as an object.", lambda log, _: log.state.labels),
        time("created_at", "When it began.", lambda log, _: log.state.created_at),
        time("updated_at", "When its newest event came.", lambda log, _: log.state.updated_at),
        integer("messages", "How many there are.", lambda log, _: log.state.messages),
        integer("turns", "How many turns they are.", lambda log, _: len(log.state.turns)),
        json(
            "pinned", "The numbers of the pinned messages.", lambda log, _: list(log.state.pinned)
        ),
        text("summary", "The newest summary, if there is one.", lambda log, _: log.summary()),
    ),
)

MESSAGES = Table(
    "messages",
    "What was said in sessions.",
    "session",
    lambda log: log.messages(),
    (
        _SESSION,
        integer("number", "Its place, counted from 1.", lambda _, m: m.number),
        text("role", "system, user, assistant or tool.", lambda _, m: m.message.role),
        text("name", "The name of who said it, or ''.", lambda _, m: m.message.name),
        text("text", "What it says, without what is no text.", lambda _, m: m.message.text),
        json("content", "All of it, as a list of parts.", lambda _, m: m.message.parts),
        time("at", "When it was said.", lambda _, m: m.said.at),
        text("task_id", "The task that said it, or ''.", lambda _, m: m.said.task),
        text("step", "The step that did.", lambda _, m: m.said.step),
        integer("calls", "How many calls it asks for.", lambda _, m: len(m.message.calls)),
        integer("results", "How many results it brings.", lambda _, m: len(m.message.results)),
        integer(
            "pinned", "1 if it is in every context.", lambda log, m: m.number in log.state.pinned
        ),
        integer(
            "tokens",
            "How many tokens it takes: an estimate.",
            lambda _, m: _estimate.count(m.message),
        ),
        text("model", "The model that said it, if one did.", lambda _, m: _model(m)),
        integer(
            "input_tokens",
            "What the provider reported for the call that made it.",
            lambda _, m: _usage(m, "input_tokens"),
        ),
        integer(
            "output_tokens", "The same for the answer.", lambda _, m: _usage(m, "output_tokens")
        ),
        json("meta", "What was stored with it.", lambda _, m: m.message.meta),
    ),
)

SUMMARIES = Table(
    "summaries",
    "What conversations were summed up as.",
    "session",
    lambda log: log.state.summaries,
    (
        _SESSION,
        integer("seq", "The event that added it.", lambda _, s: s.seq),
        integer("upto", "The last message that it stands for.", lambda _, s: s.upto),
        text("text", "What it says.", lambda log, s: log.text_of(s)),
        time("at", "When it was made.", lambda _, s: s.at),
        text("task_id", "The task that made it, or ''.", lambda _, s: s.task),
        text("step", "The step that did.", lambda _, s: s.step),
    ),
)

MEMORIES = Table(
    "memories",
    "What is remembered beyond sessions, and was not forgotten.",
    "memory",
    lambda log: log.state.entries.values(),
    (
        text("id", "Its id.", lambda _, e: e.id),
        text("text", "What is remembered.", lambda _, e: e.text),
        text("user", "Whom it is about, or ''.", lambda _, e: e.user),
        text("session", "The session that it comes from, or ''.", lambda _, e: e.session),
        text("task_id", "The task that remembered it, or ''.", lambda _, e: e.task),
        text("step", "The step that did.", lambda _, e: e.step),
        json("labels", "Its labels, as an object.", lambda _, e: e.labels),
        time("at", "When it was remembered.", lambda _, e: e.at),
    ),
)
