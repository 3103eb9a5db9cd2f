"""`holdfast answer`"""

import json

import pytest

from holdfast import Holdfast, Unanswered, ask, task


@task
def asks_before_booking() -> str:
    return "booked" if ask("Book [bold]it[/]?", bool, id="book") else "left it"


@task
def asks_for_a_name() -> str:
    return ask("Whose?", id="-name", timeout_s=3600)


@pytest.fixture
def asked(folder):
    with Holdfast("workspace") as hf, pytest.raises(Unanswered):
        hf.run(asks_before_booking, id="q-1")


def test_open_questions_are_listed_with_how_to_answer_them(asked, cli):
    code, out, err = cli("answer")
    assert (code, err) == (3, "")
    assert "task q-1, question book  (bool)" in out
    assert "Book [bold]it[/]?" in out
    assert "holdfast answer q-1 book ANSWER" in out
    [question] = json.loads(cli("answer", "q-1", "--json").out)
    assert (question["id"], question["expects"]) == ("book", "bool")


def test_an_answer_lets_the_task_go_on(asked, cli):
    code, out, _ = cli("answer", "q-1", "book", "true", "--by", "ada")
    assert code == 0
    assert "answered: question book" in out
    assert "To go on: holdfast resume q-1 --app MODULE\n" in out
    with Holdfast("workspace") as hf:
        assert hf.run(asks_before_booking, id="q-1") == "booked"
    assert cli("answer") == (0, "no question is open\n", "")
    code, _, err = cli("answer", "q-1", "book", "false")
    assert code == 2
    assert "answered with true by ada" in err


def test_a_task_that_asks_one_thing_needs_no_name_for_it(asked, cli):
    code, out, _ = cli("answer", "q-1", "true")
    assert code == 0
    assert "answered: question book" in out
    with Holdfast("workspace") as hf:
        assert hf.run(asks_before_booking, id="q-1") == "booked"


@pytest.mark.parametrize(("word", "end"), [("yes", "booked"), ("No", "left it"), ("y", "booked")])
def test_people_say_yes_and_no(asked, cli, word, end):
    assert cli("answer", "q-1", word).code == 0
    with Holdfast("workspace") as hf:
        assert hf.run(asks_before_booking, id="q-1") == end


def test_yes_answers_many_and_is_a_text_where_a_text_is_asked_for(asked, cli):
    assert cli("answer", "book", "yes", "--type", "asks_before_booking").code == 0
    with Holdfast("workspace") as hf:
        assert hf.run(asks_before_booking, id="q-1") == "booked"
        with pytest.raises(Unanswered):
            hf.run(asks_for_a_name, id="q-2")
    assert cli("answer", "q-2", "no").code == 0
    with Holdfast("workspace") as hf:
        assert hf.run(asks_for_a_name, id="q-2") == "no"


def test_a_question_that_stays_open_says_why_the_last_answer_did_not_fit(folder, cli, monkeypatch):
    (folder / "sizes.py").write_text(SIZES)
    monkeypatch.syspath_prepend(folder)
    assert cli("run", "sizes:asks_for_a_size", "--id", "q-1").code == 3
    assert cli("answer", "q-1", "size", '{"value": 0}').code == 0  # no code is loaded that knows
    code, _, err = cli("resume", "q-1", "--app", "sizes")
    assert code == 3
    assert "the last answer did not fit: 1 validation error for Size" in err
    says = "the last answer did not fit: 1 validation error for Size"
    assert says in cli("answer").out
    assert says in cli("show", "q-1").out
    assert "greater than 0" in json.loads(cli("answer", "--json").out)[0]["refused"]
    status = (folder / "workspace/tasks/q-1/status.md").read_text()
    assert "the last answer did not fit" in status
    assert cli("answer", "q-1", "size", '{"value": 2}').code == 0
    assert cli("resume", "q-1", "--app", "sizes").code == 0
    assert says not in cli("show", "q-1").out


SIZES = """
from pydantic import BaseModel, PositiveInt
from holdfast import ask, task

class Size(BaseModel):
    value: PositiveInt

@task
def asks_for_a_size() -> int:
    return ask("Which?", Size, id="size").value
"""


def test_show_lists_open_questions(asked, cli):
    out = cli("show", "q-1").out
    assert "it waits for a person: see below, under Questions\n" in out
    assert "nobody is at work on it\n" in out
    assert "holdfast answer q-1 book ANSWER\n" in out[out.index("\nQuestions") :]
    [question] = json.loads(cli("show", "q-1", "--json").out)["questions"]
    assert question["id"] == "book"
    assert "question_asked    1       ask" in cli("log", "q-1").out


def test_hints_carry_the_store_and_survive_any_id(folder, cli):
    with Holdfast("my state") as hf, pytest.raises(Unanswered):
        hf.run(asks_for_a_name, id="q-2")
    out = cli("answer", "--url", "my state").out
    assert "holdfast answer --url 'my state' -- q-2 -name ANSWER\n" in out
    assert ", by 20" in out
    code, _, err = cli("answer", "--url", "my state", "--", "q-2", "-name", "3")
    assert code == 2
    assert "question -name expects str, got 3. For the text 3 write '\"3\"'" in err
    code, out, _ = cli("answer", "--url", "my state", "--", "q-2", "-name", '"3"')
    assert code == 0
    assert "To go on: holdfast resume q-2 --app MODULE --url 'my state'\n" in out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["q-1", "book", "perhaps"], 2, 'question book expects bool, got "perhaps"'),
        (["q-1", "nope", "true"], 2, "no question 'nope'"),
        (["q-1", "book"], 2, "give the answer too: holdfast answer q-1 book ANSWER"),
        (["nobody", "book", "true"], 5, "nobody"),
    ],
)
def test_a_wrong_answer_is_refused_and_changes_nothing(asked, cli, words, code, says):
    found = cli("answer", *words)
    assert found.code == code
    assert says in found.err
    assert cli("answer").code == 3
