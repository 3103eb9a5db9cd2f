"""`holdfast alerts`: what somebody should look at, for people and for cron."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.text import Text

from holdfast.api.alerts import ALERT, Alert, reasons_in
from holdfast.cli.arguments import AgeParam
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import store_command
from holdfast.cli.output import console, print_json, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, plain

_STYLES = {"failed": "red", "stuck": "bold red", "in_doubt": "bold yellow", "asks": "yellow"}


@click.command(short_help="List what somebody should look at.")
@click.option(
    "--since",
    "age",
    type=AgeParam(),
    default="1d",
    show_default=True,
    help="Only what happened in that time: 2h, 7d.",
)
@click.option("--overdue", type=AgeParam(), help="Also tasks that have not ended after that time.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if there is anything.")
@store_command()
def alerts(
    given: Given, age: timedelta, overdue: timedelta | None, exit_code: bool, as_json: bool
) -> Exit:
    """List the tasks that somebody should look at: failed, stuck, in doubt, or asking a person.

    An alert that could not be delivered, after all its attempts, is a failed task as well. hf.on(…)
    and [[tool.holdfast.alerts]] name the receivers that workers send alerts to.

    \b
    Examples:
      holdfast alerts
      holdfast alerts --since 2h --overdue 12h
      holdfast alerts --exit-code > /dev/null || notify "somebody has to look"
    """
    now = datetime.now(UTC)
    with opened(given) as hf:
        found = [alert for alert, _ in reasons_in(hf, now - age, now, overdue)]
        undelivered = hf.page(type=ALERT, status="failed", updated_after=now - age).tasks
    if as_json:
        print_json({"alerts": found, "undelivered": [task.id for task in undelivered]})
    else:
        _print(found, [task.id for task in undelivered], now)
    return Exit.WAITING if exit_code and (found or undelivered) else Exit.OK


def _print(found: list[Alert], undelivered: list[str], now: datetime) -> None:
    out = console()
    if not found and not undelivered:
        out.print("nothing to look at")
    if found:
        rows = [_row(alert, now) for alert in found]
        print_table(out, ("TASK", "TYPE", "WHY", "SINCE", "WHAT"), rows, cut_last=True)
    for task in undelivered:
        out.print(Text(f"an alert could not be delivered: task {plain(task)}", "red"))


def _row(alert: Alert, now: datetime) -> tuple[Any, ...]:
    reason = Text(alert.reason.replace("_", " "), _STYLES.get(alert.reason, ""))
    since = ago(datetime.fromisoformat(alert.at), now)
    return plain(alert.task), plain(alert.type), reason, since, plain(alert.text)
