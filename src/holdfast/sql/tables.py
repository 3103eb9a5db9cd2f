"""All tables, in the order in which they are explained."""

from __future__ import annotations

from holdfast.sql.columns import Table
from holdfast.sql.of_calls import ATTEMPTS, FAILURES, QUESTIONS, STEPS, TOOL_CALLS
from holdfast.sql.of_models import MODEL_CALLS
from holdfast.sql.of_sessions import MEMORIES, MESSAGES, SESSIONS, SUMMARIES
from holdfast.sql.of_tasks import DECISIONS, EVENTS, FACTS, FILES, NOTES, PLANS, TASKS

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        TASKS,
        STEPS,
        TOOL_CALLS,
        MODEL_CALLS,
        ATTEMPTS,
        FAILURES,
        DECISIONS,
        QUESTIONS,
        PLANS,
        NOTES,
        FACTS,
        FILES,
        SESSIONS,
        MESSAGES,
        SUMMARIES,
        MEMORIES,
        EVENTS,
    )
}
