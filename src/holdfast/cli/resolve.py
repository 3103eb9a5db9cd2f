"""`holdfast resolve`: settle a call in doubt by hand."""

from __future__ import annotations

import click

from holdfast.cli.arguments import json_of
from holdfast.cli.code import load_app
from holdfast.cli.exits import Exit
from holdfast.cli.hints import go_on_hint
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import code_options, imports, json_option, pass_given, task_argument
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.errors import CodeMissing
from holdfast.spec import registry
from holdfast.views import TaskView


@click.command()
@task_argument
@click.argument("path")
@click.option("--happened", is_flag=True, help="It happened: it is not made again.")
@click.option(
    "--did-not-happen", is_flag=True, help="It did not: it is made when the task goes on."
)
@click.option(
    "--result", metavar="JSON", help="What the call returned: null if it returns nothing."
)
@click.option(
    "--unchecked",
    is_flag=True,
    help="Take the result as it is, without the code. One that does not fit what the tool returns "
    "stops the task until the call is settled again.",
)
@click.option("--because", default="", metavar="TEXT", help="How you know, for the log.")
@click.option("--by", default="", metavar="NAME", help="Who says so, for the log.")
@json_option
@code_options
@imports("app", "redact", "engine")
@pass_given
def resolve(
    given: Given,
    task: str,
    path: str,
    happened: bool,
    did_not_happen: bool,
    result: str | None,
    unchecked: bool,
    because: str,
    by: str,
    as_json: bool,
) -> Exit:
    """Settle a call in doubt by hand: say whether it happened.

    PATH is the call's, as `holdfast doubt` shows it. That it happened needs its --result, which
    the task goes on with, and --app, so that the result is checked against the type that the tool
    returns. The task is not driven: resume it afterwards. A call settled by mistake can be settled
    again while the task has made nothing of it.

    \b
    Examples:
      holdfast resolve trip-42 6 --happened --result '{"booking": "B-17"}' --app agents
      holdfast resolve trip-42 6 --happened --result null --app agents --by ada
      holdfast resolve trip-42 6 --did-not-happen --because "no mail with that key"
    """
    if happened == did_not_happen:
        raise click.UsageError("say either --happened or --did-not-happen")
    if did_not_happen and result is not None:
        raise click.UsageError("a call that did not happen has no --result")
    if happened and result is None:
        raise click.UsageError(
            "--happened needs the --result that the call returned: --result null if it returns "
            "nothing"
        )
    value = json_of(result) if result is not None else None
    with opened(given) as hf:
        view = find_task(hf, task)
        if happened and not unchecked:
            load_app(given)
            _must_be_checkable(view, path)
        hf.resolve(task, path, happened=happened, result=value, because=because, by=by)
    verdict = "happened" if happened else "did_not_happen"
    if as_json:
        print_json({"task": task, "path": path, "verdict": verdict, "result": value})
        return Exit.OK
    out = console()
    out.print(f"settled: call {plain(path)} {verdict.replace('_', ' ')}")
    print_lines(out, plain(go_on_hint(given, view.state)))
    return Exit.OK


def _must_be_checkable(view: TaskView, path: str) -> None:
    call = view.state.calls.get(path)
    if call is None or call.kind != "tool":
        return  # there is more wrong than this, as settling it will say
    try:
        registry.call(call.name)
    except CodeMissing as error:
        raise CodeMissing(
            f"the result can't be checked: {error}. Or say --unchecked: a result that does not "
            f"fit then stops the task until the call is settled again"
        ) from None
