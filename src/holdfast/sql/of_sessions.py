"""The tables of what was said, and of what is remembered."""

from __future__ import annotations

from typing import Any

from holdfast.agent.tokens import Estimate
from holdfast.sql.columns import Table, integer, json, text, time
from holdfast.sql.logs import Heard

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
