"""`holdfast answer`: what tasks ask people, and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from holdfast.cli.arguments import quoted, value_of
from holdfast.cli.exits import Exit
from holdfast.cli.hints import answers, go_on_hint, our_command
from holdfast.cli.opening import find_task, opened, read_all
from holdfast.cli.options import complete_task, imports, json_option, pass_given, store_options
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import clock, plain, short
from holdfast.errors import BadInput, Unserializable
from holdfast.state import FINISHED
from holdfast.views import TaskView


class QuestionView(Struct, frozen=True):
    """A question that waits for its answer."""

    task: str
    id: str
    question: str
    expects: str
    asked_at: datetime
    until: datetime | None
    approves: str = ""
    """For an approval: the path of the call that may be made or not."""


@click.command(short_help="Answer a question that a task asks, or list the open ones.")
@click.argument("task", metavar="[TASK]", required=False, shell_complete=complete_task)
@click.argument("question", metavar="[QUESTION]", required=False)
@click.argument("answer", metavar="[ANSWER]", required=False)
@click.option("--by", default="", metavar="NAME", help="Who answers, for the log.")
@json_option
@store_options
@imports("redact", "engine", when="answer")
@pass_given
def answer(
    given: Given,
    task: str | None,
    question: str | None,
    answer: str | None,
    by: str,
    as_json: bool,
) -> Exit:
    """Answer a question that a task asks a person, or list the questions that are open.

    ANSWER is read as JSON where it can be, else as text. It is checked against the type that the
    question asks for; a question is answered once. The task is not driven: resume it afterwards,
    unless a worker does.

    A tool that needs approval (approve=True) asks whether this very call may be made, with these
    arguments: its question is called approve- and the path of the call. The answer is true or
    false; if it is false the call fails, and other arguments need another yes.

    Without an answer, the open questions of all unfinished tasks, or of TASK, are listed; the
    exit code is then 3 if there are any.

    \b
    Examples:
      holdfast answer                          what is asked
      holdfast answer trip-42 book true        yes, book it
      holdfast answer trip-42 6 '"3"'          the text 3, to the question asked by call 6
      holdfast answer trip-42 approve-7 true   let it make call 7
    """
    with opened(given) as hf:
        if task is None or question is None:
            views, unreadable = ([find_task(hf, task)], []) if task else read_all(hf.store)
            wanted = [view for view in views if task or view.status not in FINISHED]
            return _list(given, wanted, unreadable, as_json)
        if answer is None:
            command = our_command(given, "answer", task, question, "ANSWER")
            raise click.UsageError(f"give the answer too: {command}")
        view = find_task(hf, task)
        value = value_of(answer)
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


def questions_of(view: TaskView) -> list[QuestionView]:
    """The questions of a task that wait for an answer. One that has ended waits for none."""
    if view.status in FINISHED:
        return []
    return [
        QuestionView(view.id, call.key, call.why, call.expects, call.at, call.until, call.approves)
        for call in view.questions
    ]


def _misfit(view: TaskView, question: str, word: str, value: Any) -> str:
    expects = next((c.expects for c in view.questions if question in (c.key, c.path)), "")
    if expects == "str" and not isinstance(value, str):
        advice = f". For the text {word} write {quoted(word)}, with both pairs of quotes"
    else:
        advice = ""
    return f"question {question} expects {expects}, got {short(value)}{advice}" if expects else ""


def _list(
    given: Given, views: list[TaskView], unreadable: Sequence[Exception], as_json: bool
) -> Exit:
    found = [each for view in views for each in questions_of(view)]
    if as_json:
        print_json(found)
    else:
        _print(given, found)
    for error in unreadable:
        print_error(f"warning: {error}")
    if found:
        return Exit.WAITING
    return Exit.DAMAGED if unreadable else Exit.OK


def _print(given: Given, found: list[QuestionView]) -> None:
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
    for way in answers(given, each.task, each.id, approval=bool(each.approves)):
        print_lines(out, f"  {plain(way)}")
