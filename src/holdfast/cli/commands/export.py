"""`holdfast export`, `import` and `migrate`: traces of past logs, the past of other tools, and a
database for this version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import click

from holdfast.api.app import Holdfast
from holdfast.cli.commands.stores import dry_run_option
from holdfast.cli.exits import Exit
from holdfast.cli.opening import must_be_there, must_exist, opened, store_url
from holdfast.cli.options import (
    find_options,
    found_by,
    store_command,
    tasks_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.core.kinds import id_of
from holdfast.errors import BadInput, StoreError
from holdfast.stores import migrate as do_migrate
from holdfast.stores import migrations_of
from holdfast.stores.listing import streams_of_tasks


@click.command(short_help="Export the traces of past tasks.")
@click.argument("what", type=click.Choice(["otel"]), metavar="otel")
@tasks_argument
@find_options
@click.option("--new", is_flag=True, help="Only spans that nobody has exported yet.")
@click.option("--content", is_flag=True, help="With the arguments and results of tools.")
@click.option(
    "--endpoint",
    metavar="URL",
    help="Where the collector takes traces: http://localhost:4318/v1/traces.",
)
@store_command()
def export(
    given: Given,
    what: str,
    tasks: tuple[str, ...],
    new: bool,
    content: bool,
    endpoint: str | None,
    as_json: bool,
    **filters: Any,
) -> Exit:
    """Export the traces of tasks to a collector of OpenTelemetry, by OTLP over HTTP.

    A task and its children are one trace, each call is one span, and its attempts are events of
    the span. The ids are made of the log: a task that is exported twice has the same spans again.
    Without --endpoint the collector is the one that OTEL_EXPORTER_OTLP_ENDPOINT names.

    Tasks are named, or found by the filters of `holdfast ls`; without either, all are exported.

    \b
    Examples:
      holdfast export otel trip-42
      holdfast export otel --status failed --since 7d --endpoint http://localhost:4318/v1/traces
      holdfast export otel --new                 for a cron job
    """
    try:
        from holdfast.integrations.otel import export_spans
    except ModuleNotFoundError as error:
        raise BadInput(str(error)) from None
    unreadable: list[StoreError] = []
    with opened(given) as hf:
        if tasks:
            must_be_there(hf.store, *tasks)
            ids = list(tasks)
        else:
            streams, unreadable = streams_of_tasks(hf.store, found_by(**filters))
            ids = [id_of(stream) for stream in streams]
        spans = export_spans(hf.store, ids, _exporter(endpoint), content=content, new=new)
    for each in unreadable:
        print_error(f"warning: {each}")
    if as_json:
        print_json({"tasks": len(ids), "spans": spans})
    else:
        console().print(f"exported {count(spans, 'span')} of {count(len(ids), 'task')}")
    return Exit.DAMAGED if unreadable else Exit.OK


def _exporter(endpoint: str | None) -> Any:
    if endpoint is None:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, timeout=10)


# `holdfast migrate`: bring a database up to date that an older Holdfast made.


@click.command(short_help="Bring the schema of a database up to date.")
@dry_run_option
@store_command()
def migrate(given: Given, dry_run: bool, as_json: bool) -> Exit:
    """Bring the schema of a database up to date that an older Holdfast made.

    No command migrates a database by itself: each says that it has to be done. It is done in one
    transaction, all or nothing. Logs are not touched. End the workers of the older version first,
    or let them finish what they have in hand: they can't be started again afterwards.

    A folder has no schema, so there is nothing to migrate.

    \b
    Examples:
      holdfast migrate --dry-run
      holdfast migrate --url postgresql://owner@db/holdfast
    """
    url = store_url(given)
    must_exist(url)
    steps = migrations_of(url) if dry_run else do_migrate(url)
    if as_json:
        print_json({"dry_run": dry_run, "migrations": steps})
        return Exit.OK
    out = console()
    for step in steps:
        print_lines(out, f"{step.number:03}  {plain(step.about)}")
    done = "would be made" if dry_run else "made"
    what = f"{count(len(steps), 'migration')} {done}" if steps else "nothing to migrate"
    print_lines(out, what)
    return Exit.OK


# `holdfast import`: what other tools have kept, as tasks and sessions of this store.

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

    Nothing is run, and the source is only read. The import has the label imported=ORIGIN. The
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
    """All that came in: ids by what they are, and how much of it was new, in words."""
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
