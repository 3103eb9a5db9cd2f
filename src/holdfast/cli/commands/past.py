"""`holdfast import`: what other tools have kept, as tasks and sessions of this store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import click

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import store_command
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.errors import BadInput

Origin = Literal["langgraph", "openai-agents", "otel"]


@click.command("import", short_help="Bring threads, sessions and traces of other tools along.")
@click.argument("origin", type=click.Choice(["langgraph", "openai-agents", "otel"]))
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option("--only", metavar="ID", help="Only the thread or the session of this id.")
@store_command("redact")
def import_past(
    given: Given, origin: Origin, sources: tuple[str, ...], only: str | None, as_json: bool
) -> Exit:
    """Copy what another tool has kept into this store, where every command opens it.

    Nothing is run, and the source is only read. What comes in has the label imported=ORIGIN. The
    same import again adds what is new.

    \b
    ORIGIN         SOURCE                              becomes
    langgraph      an SQLite file, or a postgresql://  sessions, with their
                   URL                                 checkpoints
    openai-agents  an SQLite file                      sessions
    otel           JSON files of spans (OTLP, or the   finished tasks, and
                   console exporter's); all files of   sessions
                   a trace at once

    \b
    Examples:
      holdfast import langgraph checkpoints.db
      holdfast import openai-agents conversations.db --only chat-7
      holdfast import otel traces.jsonl
      holdfast ls --label imported=otel
    """
    if only is not None and origin == "otel":
        raise click.UsageError("--only is for threads and sessions: of traces, give other files")
    with opened(given, create=True) as hf:
        try:
            brought = _brought(hf, origin, sources, only)
        except ImportError as error:
            raise BadInput(str(error)) from None
    if as_json:
        print_json(brought)
        return Exit.OK
    out = console()
    new = brought.pop("new")
    for what, ids in brought.items():
        for id in ids:
            print_lines(out, plain(f"{what.removesuffix('s')}  {id}"))
    kinds = ", ".join(count(len(ids), what.removesuffix("s")) for what, ids in brought.items())
    print_lines(out, f"{kinds}; new: {new}")
    return Exit.OK


def _brought(
    hf: Holdfast, origin: Origin, sources: tuple[str, ...], only: str | None
) -> dict[str, Any]:
    """What came in: ids by what they are, and how much of it was new, in words."""
    if origin == "otel":
        from holdfast.integrations.traces import import_spans

        traces = import_spans(hf, *sources)
        new = count(traces.new, "task")
        return {"tasks": list(traces.tasks), "sessions": list(traces.sessions), "new": new}
    found: dict[str, None] = {}
    number = 0
    for source in sources:
        ids, new_here = (_threads if origin == "langgraph" else _sessions)(hf, source, only)
        found |= dict.fromkeys(ids)
        number += new_here
    what = "checkpoint" if origin == "langgraph" else "message"
    return {"sessions": list(found), "new": count(number, what)}


def _sessions(hf: Holdfast, source: str, only: str | None) -> tuple[tuple[str, ...], int]:
    from holdfast.integrations.past import import_sessions

    brought = import_sessions(hf, source, only)
    return brought.sessions, brought.messages


def _threads(hf: Holdfast, source: str, only: str | None) -> tuple[tuple[str, ...], int]:
    from holdfast.integrations.langgraph import import_threads

    with _saver(source) as saver:
        try:
            brought = import_threads(hf, saver, only)
        except sqlite3.Error as error:
            raise BadInput(f"{source}: no checkpoints of LangGraph ({error})") from None
    return brought.threads, brought.checkpoints


@contextmanager
def _saver(source: str) -> Iterator[Any]:
    """LangGraph's own checkpointer, which reads its own tables."""
    if source.startswith(("postgresql://", "postgres://")):
        try:
            from langgraph.checkpoint.postgres import PostgresSaver
        except ImportError:
            raise BadInput(
                "checkpoints in PostgreSQL need: pip install langgraph-checkpoint-postgres"
            ) from None
        import psycopg

        try:
            with PostgresSaver.from_conn_string(source) as saver:
                yield saver
        except psycopg.Error as error:
            raise BadInput(f"no checkpoints of LangGraph could be read: {error}") from None
        return
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError:
        raise BadInput(
            "checkpoints in SQLite need: pip install langgraph-checkpoint-sqlite"
        ) from None
    file = Path(source)
    if not file.is_file():
        raise BadInput(f"{source}: there is no such file")
    uri = f"{file.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as base:
        made = SqliteSaver(base)
        made.is_setup = True  # it would write its tables
        yield made
