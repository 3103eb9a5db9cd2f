"""`holdfast answer`"""

import json

import pytest

from holdfast import Holdfast, Unanswered, ask, task


@task
def asks_before_booking() -> str:
    return "booked" if ask("Book [bold]it[/]?", bool, id="book") else "left it"


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
    with Holdfast("workspace") as hf:
        assert hf.run(asks_before_booking, id="q-1") == "booked"
    assert cli("answer") == (0, "no question is open\n", "")
    code, _, err = cli("answer", "q-1", "book", "false")
    assert code == 2
    assert "answered with true by ada" in err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["q-1", "book", "perhaps"], 2, "bool"),
        (["q-1", "nope", "true"], 2, "no question 'nope'"),
        (["q-1", "book"], 2, "give the answer too"),
        (["nobody", "book", "true"], 5, "nobody"),
    ],
)
def test_a_wrong_answer_is_refused_and_changes_nothing(asked, cli, words, code, says):
    found = cli("answer", *words)
    assert found.code == code
    assert says in found.err
    assert cli("answer").code == 3
