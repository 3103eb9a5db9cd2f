"""`holdfast export` and `migrate`: traces of past logs, and a database for this version."""

from __future__ import annotations

from typing import Any

import click

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
