"""`holdfast answer`, `send`, `doubt` and `resolve`: what tasks need from people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.arguments import json_of, quoted, value_of
from holdfast.cli.commands.control import Meant, chosen, in_bulk, is_filtered, more_tasks
from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, load_app, opened, read_all
from holdfast.cli.options import (
    by_option,
    by_option_saying,
    maybe_task_argument,
    store_command,
    task_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import (
    Given,
    answers,
    go_on_hint,
    our_command,
    resolve_commands,
    resume_command,
)
from holdfast.cli.text import ago, clock, count, plain, short
from holdfast.codec import from_outside
from holdfast.core.spec import registry
from holdfast.core.state import FINISHED, State
from holdfast.errors import BadInput, CodeMissing, Unserializable
from holdfast.views.task import DoubtView, QuestionView, TaskView, doubts_of, questions_of

_YES_OR_NO = {"yes": True, "y": True, "no": False, "n": False}


@click.command(short_help="Answer a question that a task asks, or list the open ones.")
@maybe_task_argument
@click.argument("question", metavar="[QUESTION]", required=False)
@click.argument("answer", metavar="[ANSWER]", required=False)
@by_option_saying("Who answers, for the log.")
@more_tasks
@store_command("redact", "engine", when="question")
def answer(
    given: Given,
    task: str | None,
    question: str | None,
    answer: str | None,
    by: str,
    as_json: bool,
    **filters: Any,
) -> Exit:
    """Answer a question that a task asks a person, or list the questions that are open.

    ANSWER is read as JSON where it can be, else as text; yes and no answer a question for true or
    false. It is checked against the type that the question asks for; a question is answered once.
    The task is not driven: resume it afterwards, unless a worker does.

    A tool that needs approval (approve=True) asks whether this very call may be made, with these
    arguments: its question is called approve- and the path of the call. The answer is true or
    false; if it is false the call fails, and other arguments need another yes.

    Without an answer, the open questions of all unfinished tasks, or of TASK, are listed; the
    exit code is then 3 if there are any.

    \b
    Examples:
      holdfast answer                         what is asked
      holdfast answer trip-42 true            yes, to its only question
      holdfast answer trip-42 book true       yes, to its question "book"
      holdfast answer trip-42 6 '"3"'         the text 3, to what call 6 asks
      holdfast answer trip-42 approve-7 true  let it make call 7
      holdfast answer book true --type trip   QUESTION ANSWER: the same to many
    """
    with opened(given) as hf:
        if is_filtered(filters):
            return _answer_many(hf, task, question, answer, by, as_json, filters)
        if task is None or question is None:
            views, unreadable = ([find_task(hf, task)], []) if task else read_all(hf.store)
            wanted = [view for view in views if task or view.status not in FINISHED]
            return _list_questions(given, wanted, unreadable, as_json)
        view = find_task(hf, task)
        if answer is None:
            question, answer = _the_one_asked(given, view, question)
        value = _meant(view, question, answer)
        try:
            hf.answer(task, value, question=question, by=by)
        except Unserializable as error:
            raise BadInput(_misfit(view, question, answer, value) or str(error)) from None
    if as_json:
        print_json({"task": task, "question": question, "answer": value})
        return Exit.OK
    out = console()
    out.print(f"answered: question {plain(question)}")
    print_lines(out, plain(go_on_hint(given, view.state)))
    return Exit.OK


def _the_one_asked(given: Given, view: TaskView, word: str) -> tuple[str, str]:
    """The question and the answer, where one word was given for both: a task that asks one thing
    needs no name for it."""
    asked = view.questions
    names = {name for call in asked for name in (call.key, call.path)}
    if len(asked) == 1 and word not in names:
        return asked[0].key, word
    if word in names or not asked:
        command = our_command(given, "answer", view.id, word, "ANSWER")
        raise click.UsageError(f"give the answer too: {command}")
    known = ", ".join(plain(call.key) for call in asked)
    raise click.UsageError(f"task {view.id!r} asks {len(asked)} questions, say which: {known}")


def _answer_many(
    hf: Holdfast,
    question: str | None,
    answer: str | None,
    extra: str | None,
    by: str,
    as_json: bool,
    filters: dict[str, Any],
) -> Exit:
    """With filters no task is named: the words are the question and the answer."""
    if question is None or answer is None or extra is not None:
        raise click.UsageError("with filters, give QUESTION ANSWER and no task")
    meant = asking(hf, chosen(hf, ("awaiting_user",), (), **filters), question)

    def act(id: str) -> None:
        hf.answer(id, _meant(hf.task(id), question, answer), question=question, by=by)

    return in_bulk(hf, meant, "answered", act, as_json)


def asking(hf: Holdfast, meant: Meant, question: str) -> Meant:
    """Those of the tasks that ask this question."""
    ids = tuple(
        id for id in meant.ids if any(question in (c.key, c.path) for c in hf.task(id).questions)
    )
    return replace(meant, ids=ids)


@click.command(short_help="Send a message to a task that receives it.")
@task_argument
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="[VALUE]", default="null")
@click.option("--id", "once", default="", metavar="ID", help="Send this message only once.")
@by_option_saying("Who sends it, for the log.")
@store_command("redact", "engine")
def send(given: Given, task: str, name: str, value: str, once: str, by: str, as_json: bool) -> Exit:
    """Send a message to a task, which gets it where its code calls receive(NAME).

    VALUE is read as JSON where it can be, else as text. Messages of one name reach the task in the
    order in which they were sent; the task need not wait for one yet. With --id, a message that is
    sent twice counts once. The task is not driven: resume it afterwards, unless a worker does.

    \b
    Examples:
      holdfast send trip-42 weather '{"rain": true}'
      holdfast send trip-42 approved true --id approval-7 --by Ada
    """
    with opened(given) as hf:
        view = find_task(hf, task)
        found = value_of(value)
        is_new = hf.send(task, name, found, id=once, by=by)
    if as_json:
        print_json({"task": task, "name": name, "value": found, "sent": is_new})
        return Exit.OK
    out = console()
    said = "sent: message {}" if is_new else "message {} was sent before"
    out.print(said.format(plain(name)))
    print_lines(out, plain(go_on_hint(given, view.state)))
    return Exit.OK


def _meant(view: TaskView, question: str, word: str) -> Any:
    """The answer that a word stands for: people say yes and no."""
    if _expected(view, question) == "bool":
        return _YES_OR_NO.get(word.lower(), value_of(word))
    return value_of(word)


def _expected(view: TaskView, question: str) -> str:
    return next((c.expects for c in view.questions if question in (c.key, c.path)), "")


def _misfit(view: TaskView, question: str, word: str, value: Any) -> str:
    expects = _expected(view, question)
    if expects == "str" and not isinstance(value, str):
        advice = f". For the text {word} write {quoted(word)}, with both pairs of quotes"
    elif expects == "bool":
        advice = ": write yes or no, or true or false"
    else:
        advice = ""
    return f"question {question} expects {expects}, got {short(value)}{advice}" if expects else ""


def _list_questions(
    given: Given, views: list[TaskView], unreadable: Sequence[Exception], as_json: bool
) -> Exit:
    found = [each for view in views for each in questions_of(view)]
    if as_json:
        print_json(found)
    else:
        _print_questions(given, found)
    for error in unreadable:
        print_error(f"warning: {error}")
    if found:
        return Exit.WAITING
    return Exit.DAMAGED if unreadable else Exit.OK


def _print_questions(given: Given, found: list[QuestionView]) -> None:
    out = console()
    if not found:
        out.print("no question is open")
    for each in found:
        print_question(out, given, each)


def print_question(out: Console, given: Given, each: QuestionView) -> None:
    """One question, and how to answer it."""
    until = f", by {clock(each.until)}" if each.until else ""
    who = f"task {plain(each.task)}, question {plain(each.id)}"
    print_lines(out, Text.assemble((who, "bold"), f"  ({plain(each.expects)}{until})"))
    print_lines(out, f"  {plain(each.question)}")
    if each.refused:
        print_lines(out, f"  the last answer did not fit: {plain(each.refused)}")
    for way in answers(given, each.task, each.id, approval=bool(each.approves)):
        print_lines(out, f"  {plain(way)}")


# `holdfast doubt`: calls that may or may not have happened.


_STANDINGS = {
    "in_doubt": "in doubt: waits for a person",
    "failed": "failed, but may have happened",
}
_INTERRUPTED = "interrupted: is settled by its policy when the task is resumed"
_SETTLED_LATER = "may have happened: is settled when the task goes on"
_NEVER_ENDED = "may have happened: the task ended without it"


@click.command(short_help="List calls that may or may not have happened.")
@maybe_task_argument
@store_command()
def doubt(given: Given, task: str | None, as_json: bool) -> Exit:
    """List the tool calls that may or may not have happened, of all unfinished tasks or of one.

    A call is in doubt when the process died after the call was begun and before its result was
    recorded: the mail may have been sent. Look for the call's key in the outside system, then
    settle it with `holdfast resolve`.

    A call of a task that nobody is at work on was interrupted, and is in doubt once the task is
    resumed: it is then made again, checked, or left to a person, as its tool says. One that
    somebody is at work on is running now.

    The exit code is 3 if any call waits for a person or was interrupted, else 4 if a log can't be
    read, else 0. Calls that are running now do not count.

    \b
    Examples:
      holdfast doubt
      holdfast doubt trip-42 --json
      holdfast doubt > /dev/null || notify "somebody has to look"
    """
    with opened(given) as hf:
        views, unreadable = ([find_task(hf, task)], []) if task else read_all(hf.store)
        wanted = [view for view in views if task or view.status not in FINISHED]
        found = [each for view in wanted for each in doubts_of(hf.store, view)]
    if as_json:
        print_json(found)
    else:
        _print_doubts(given, found)
    for error in unreadable:
        print_error(f"warning: {error}")
    if any(each.waits_for_a_person or each.interrupted for each in found):
        return Exit.WAITING
    return Exit.DAMAGED if unreadable else Exit.OK


def _print_doubts(given: Given, found: list[DoubtView]) -> None:
    out = console()
    waiting = sum(each.waits_for_a_person for each in found)
    if not waiting:
        out.print("no call waits for a person")
    else:
        verb = "waits" if waiting == 1 else "wait"
        out.print(Text(f"{count(waiting, 'call')} {verb} for a person", "bold yellow"))
    if interrupted := sum(each.interrupted for each in found):
        verb = "was" if interrupted == 1 else "were"
        out.print(Text(f"{count(interrupted, 'call')} {verb} interrupted", "bold yellow"))
    for each in sorted(found, key=lambda each: (not each.waits_for_a_person, not each.interrupted)):
        out.print()
        print_doubt(out, given, each)


def print_doubt(out: Console, given: Given, each: DoubtView) -> None:
    """One such call, and how to settle it."""
    style = "bold yellow" if each.waits_for_a_person or each.interrupted else "cyan"
    who = f"task {plain(each.task)}, call {plain(each.path)}, {plain(each.tool)}"
    out.print(Text.assemble((who, "bold"), "  ", (_standing(each), style)))
    since = f"{clock(each.since)} ({ago(each.since, datetime.now(UTC))})"
    facts = {"begun": since, "why": each.why, "input": short(each.input, 300), "key": each.key}
    for name, fact in facts.items():
        if fact:
            print_lines(out, Text.assemble((f"  {name:6} ", "dim"), plain(fact)))
    if each.waits_for_a_person:
        out.print("  Look for the key in the outside system, then say what you found")
        out.print("  (the result is null if the call returns nothing):")
        for command in resolve_commands(given, each.task, each.path, each.type):
            print_lines(out, f"    {plain(command)}")
    elif each.interrupted:
        if each.engine:
            print_lines(out, f"  A worker of {plain(each.engine)} goes on with it.")
            return
        state = State(id=each.task, task=each.type, parent=each.parent)
        resume = plain(resume_command(given, state))
        print_lines(out, f"  To go on: {resume}")


def _standing(each: DoubtView) -> str:
    if each.status == "in_doubt" and not each.waits_for_a_person:
        return _NEVER_ENDED
    if each.status != "running":
        return _STANDINGS.get(each.status, _SETTLED_LATER)
    if each.at_work:
        return f"running now, by {plain(each.at_work)}"
    return _INTERRUPTED if each.interrupted else _NEVER_ENDED


# `holdfast resolve`: settle a call in doubt by hand.


@click.command()
@task_argument
@click.argument("path", required=False)
@more_tasks
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
    help="Take the result as it is, without the code. A result that does not fit the tool's type "
    "stops the task until the call is settled again.",
)
@click.option("--because", default="", metavar="TEXT", help="How you know, for the log.")
@by_option
@store_command("app", "redact", "engine")
def resolve(
    given: Given,
    task: str,
    path: str | None,
    happened: bool,
    did_not_happen: bool,
    result: str | None,
    unchecked: bool,
    because: str,
    by: str,
    as_json: bool,
    **filters: Any,
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
      holdfast resolve send_mail --did-not-happen --since 1d  every call of a tool
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
    meaning = from_outside(value)
    with opened(given) as hf:
        if is_filtered(filters):
            if path is not None:
                raise click.UsageError("with filters, give the call or its tool, and no task")
            if happened and not unchecked:
                load_app(given)
            settle = partial(
                _resolve_all, hf, task,
                happened=happened, result=meaning, because=because, by=by, unchecked=unchecked,
            )  # fmt: skip
            meant = doubting(hf, chosen(hf, ("awaiting_user",), (), **filters), task)
            return in_bulk(hf, meant, "settled", settle, as_json)
        if path is None:
            raise click.UsageError("say which call: its path, as `holdfast doubt` shows it")
        view = find_task(hf, task)
        if happened and not unchecked:
            load_app(given)
            _must_be_checkable(view, path)
        hf.resolve(
            task, path,
            happened=happened, result=meaning, because=because, by=by, unchecked=unchecked,
        )  # fmt: skip
    verdict = "happened" if happened else "did_not_happen"
    if as_json:
        print_json({"task": task, "path": path, "verdict": verdict, "result": value})
        return Exit.OK
    out = console()
    out.print(f"settled: call {plain(path)} {verdict.replace('_', ' ')}")
    print_lines(out, plain(go_on_hint(given, view.state)))
    return Exit.OK


def doubting(hf: Holdfast, meant: Meant, call: str) -> Meant:
    """Those of the tasks in which this call, or one of this tool, is in doubt."""
    return replace(meant, ids=tuple(id for id in meant.ids if _in_doubt(hf, id, call)))


def _in_doubt(hf: Holdfast, task: str, call: str) -> list[str]:
    doubts = (each for each in hf.task(task).doubts if each.status == "in_doubt")
    return [each.path for each in doubts if call in (each.path, each.name)]


def _resolve_all(hf: Holdfast, call: str, task: str, **verdict: Any) -> None:
    for path in _in_doubt(hf, task, call):
        hf.resolve(task, path, **verdict)


def _must_be_checkable(view: TaskView, path: str) -> None:
    call = view.state.calls.get(path)
    if call is None or call.kind != "tool" or registry.is_foreign(call.name):
        return  # there is more wrong than this, as settling it will say
    try:
        registry.call(call.name)
    except CodeMissing as error:
        raise CodeMissing(
            f"the result can't be checked: {error}. Or say --unchecked, as for a plain function "
            f"that a framework's agent calls: a result that does not fit then stops the task until "
            f"the call is settled again"
        ) from None
