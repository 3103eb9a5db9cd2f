"""What `repr` and notebooks show of tasks: short, and nothing in it is taken for HTML."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from holdfast import Holdfast, TaskFailed, Unanswered, ask, step, task
from holdfast.views.task import recent, view_newest

EVIL = '<script>alert("1")</script>&amp;\'<img src=x onerror=alert(2)>'
LONG = "x" * 100_000


@step
def echoed(text: str) -> str:
    return text


@task
def shown(text: str) -> str:
    return echoed(text)


@task
def asks(text: str) -> str:
    return ask(text)


@task
def fails(text: str) -> None:
    raise ValueError(text)


class Tags(HTMLParser):
    """The tags and the text that a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not attrs

    def handle_data(self, data):
        self.text += f"{data} "


@pytest.fixture
def hf():
    with Holdfast("memory://") as hf:
        hf.options(id=EVIL, user=EVIL).run(shown, EVIL)
        hf.run(shown, LONG, id="long")
        with pytest.raises(Unanswered):
            hf.run(asks, EVIL, id="asks")
        with pytest.raises(TaskFailed):
            hf.run(fails, EVIL, id="fails")
        yield hf


def things(hf):
    return {
        "view": hf.task(EVIL),
        "long": hf.task("long"),
        "asks": hf.task("asks"),
        "fails": hf.task("fails"),
        "handle": hf.handle(EVIL),
        "page": hf.page(),
        "list": hf.tasks(),
        "comparison": hf.compare("long", EVIL, "fails"),
        "replay": hf.replay(EVIL),
        "replayed failure": hf.replay("fails"),
    }


def test_notebooks_show_short_tables_and_no_markup_of_others(hf):
    for name, thing in things(hf).items():
        html = thing._repr_html_()
        seen = Tags(html)
        assert seen.tags <= {"table", "tr", "td", "th"}, name
        assert len(html) < 3000, name
        if name not in ("long", "asks"):
            assert EVIL.split("&")[0] in seen.text, name


def test_a_repr_is_a_line(hf):
    for name, thing in things(hf).items():
        assert len(repr(thing)) < 500, name
        assert "\n" not in repr(thing), name
        assert " at 0x" not in repr(thing), name


def test_they_say_what_matters(hf):
    assert repr(hf.task("long")) == "TaskView('long', shown, completed, step 1, seq 4)"
    assert repr(hf.handle("long")) == "Handle('long')"
    assert repr(hf) == f"Holdfast({hf.store.url!r})"
    assert repr(hf.page(limit=1)) == "TaskPage(['fails'], and more)"
    assert repr(hf.replay("long")) == "Replayed('long', 'the same: completed, as recorded')"
    hf.run(shown, LONG, id="again")
    hf.run(shown, "other", id="other")
    found = repr(hf.compare("long", "again", "other"))
    assert found.startswith("Comparison('long': 'again' is the same, 'other' diverges at step 1: ")
    assert EVIL.split("&")[0] in Tags(hf.task("asks")._repr_html_()).text  # the question
    assert "ValueError" in hf.task("fails")._repr_html_()
    assert "…" in hf.task("long")._repr_html_()
    assert "awaiting_user" in hf.tasks()._repr_html_()


@step
def counts(number: int) -> int:
    return number


@task
def counts_long(upto: int) -> None:
    for number in range(upto):
        counts(number)


def test_of_a_long_task_the_newest_calls_are_shown_in_their_order(monkeypatch):
    monkeypatch.setattr("holdfast.views.task.MANY", 100)
    with Holdfast("memory://") as hf:
        hf.run(counts_long, 1100, id="t")
        view = view_newest(hf.store, "t")
        paths = [str(number) for number in range(1, 1101)]
        assert list(recent(view, hf.store, 500).state.calls) == paths[-500:]
