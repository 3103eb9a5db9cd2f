"""An audit as text: nothing that a log holds can act on who reads the report, or pass for it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast import Holdfast, Redact, Retry, Secret, StepFailed, ask, decide, note, step, task
from holdfast.errors import Unanswered
from holdfast.views.audit import Audit, AuditEntry, Claim, Verification
from holdfast.views.audit.pages import sheet, to_html, to_jsonl, to_markdown

EVIL = (
    "</pre></dd><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\n# Status: completed\n```\n---\n| a | b |\n<!-- \n[click](javascript:alert(3)) ![x](http://e.example/p)"
    "\x1b[31mred\x1b]8;;http://e.example\x07link\r over \u202e backwards \x9b2J &lt;script&gt; http://e.example"
)


@step(retry=Retry(attempts=1))
def evil_step(text: str) -> str:
    if text.startswith("raise"):
        raise ValueError(text)
    return text


@step
def evil_long(size: int) -> list[int]:
    return list(range(size))


@step
def evil_login(password: str, name: str) -> str:
    return f"hello {name}"


@task
def evil_task(text: str) -> str:
    evil_step(text)
    decide(text.replace("\n", " "), text, options=[text], because=text)
    note(text, {text: text})
    with suppress(StepFailed):
        evil_step(f"raise {text}")
    return ask(text, str)


@pytest.fixture(scope="module")
def evil() -> Audit:
    with Holdfast("memory://") as hf:
        with pytest.raises(Unanswered):
            hf.run(evil_task, EVIL, id="evil", user=EVIL, labels={"a": EVIL})
        hf.pause("evil", by=EVIL, because=EVIL)
        return hf.audit("evil")


class Page(HTMLParser):
    """The tags, attributes and texts of a page, as a browser has them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def test_html_holds_no_tag_but_ours_and_nothing_from_elsewhere(evil: Audit) -> None:
    page, html = Page(), to_html(sheet(evil, full=True))
    page.feed(html)
    assert page.tags == {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "div", "ul", "li"),
        *("dl", "dt", "dd", "table", "tr", "th", "td", "section", "header", "span", "b"),
        *("code", "pre"),
    }
    assert page.attributes == {
        *(("html", "lang"), ("meta", "charset"), ("meta", "http-equiv"), ("meta", "content")),
        *(("meta", "name"), ("div", "class"), ("span", "class")),
    }
    assert "default-src 'none'" in html
    assert "alert(1)</script>" in page.text  # it is seen, as it is
    assert not re.search(r"url\(|@import|src=x(?! onerror=alert)", html)


@pytest.mark.parametrize("make", [to_html, to_markdown])
def test_no_report_holds_a_character_that_acts(evil: Audit, make) -> None:
    text = make(sheet(evil, full=True))
    assert all(c == "\n" or c.isprintable() for c in text)
    assert "\\x1b[31m" in text and "\\u202e" in text


def test_markdown_has_no_heading_link_tag_or_row_but_ours(evil: Audit) -> None:
    text = to_markdown(sheet(evil, full=True))
    outside, fence = [], ""
    for line in text.split("\n"):
        found = re.match(r"\s*(`{3,})", line)
        if fence:
            fence = "" if found and found[1] == fence and line.strip() == fence else fence
        elif found:
            fence = found[1]
        else:
            outside.append(re.sub(r"(`+) .*? \1(?!`)|`[^`]+`", "CODE", line))
    assert not fence
    titles = [line for line in outside if line.startswith("#")]
    assert all(
        re.match(r"#+ (Audit of task evil|Open|Claims|Entries|\d+ [a-z ]+)", t) for t in titles
    )
    for line in outside:
        assert not re.search(r"(?<!\\)[<\[]|(?<!\\)://", line), line
    rows = [line for line in outside if re.search(r"(?<!\\)\|", line)]
    assert len(rows) == 2 + len(evil.claims)


def test_json_lines_hold_every_value_whole(evil: Audit) -> None:
    head, *entries = map(json.loads, to_jsonl(evil))
    assert (head["record"], head["format"], head["count"]) == ("audit", 1, len(evil.entries))
    assert head["verification"]["sound"] is True and head["id"] == "evil"
    assert [each["seq"] for each in entries] == [each.seq for each in evil.entries]
    assert all(each["record"] == "entry" for each in entries)
    assert entries[0]["input"] == {"text": EVIL} and entries[0]["text"] == f"for {EVIL}"
    known = {"record", *AuditEntry.__struct_fields__}
    assert all(each.keys() <= known for each in entries)


def test_a_long_value_is_cut_with_its_size_and_where_the_whole_is() -> None:
    with Holdfast("memory://") as hf:

        @task
        def evil_lengthy() -> int:
            return len(evil_long(9_000))

        hf.run(evil_lengthy, id="a b; rm")
        found = hf.audit("a b; rm")
    (returned,) = [e for e in found.entries if e.name == "evil_long" and e.what == "returned"]
    item = next(i for i in sheet(found).items if i.seq == returned.seq)
    (part,) = [p for p in item.parts if p.label == "output"]
    assert len(part.text) < 1_300
    assert part.cut.startswith(f"{len(part.text):,} of ") and "characters" in part.cut
    assert part.cut.endswith(f"holdfast audit 'a b; rm' --event {returned.seq} --format jsonl")
    whole = [json.loads(line) for line in to_jsonl(found.only(event=returned.seq))]
    assert whole[1]["output"] == list(range(9_000))
    assert all(not p.cut for i in sheet(found, full=True).items for p in i.parts)


def test_what_was_kept_out_of_the_log_stays_out_of_the_report() -> None:
    @step
    def evil_key(key: Secret) -> str:
        raise ValueError(f"no entry with {key.reveal()}")

    @task
    def evil_secrets() -> str:
        evil_login("swordfish-1", "ada")
        return evil_key(Secret("swordfish-2"))

    with Holdfast("memory://", redact=Redact()) as hf:
        with pytest.raises(Exception, match="evil_key"):
            hf.run(evil_secrets, id="secrets-1")
        found = hf.audit("secrets-1")
    pages = (make(sheet(found, full=True)) for make in (to_html, to_markdown))
    for text in (*pages, "".join(to_jsonl(found))):
        assert "swordfish" not in text
        assert "ada" in text


def test_every_field_and_word_of_a_report_is_in_the_reference(evil: Audit) -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs/reference/audit.md").read_text()
    told = set(re.findall(r"`([^`]+)`", page))
    for kind in (Audit, Claim, AuditEntry, Verification):
        assert set(kind.__struct_fields__) - {"entries"} <= told
    source = (root / "src/holdfast/views/words.py").read_text()
    found = re.findall(r'(?:_words\(\s*|_stopped\(|what = )"([a-z ]+)"', source)
    found += re.findall(r'what = .* else "([a-z ]+)"', source)
    words = set(found) - OF_NO_AUDIT
    assert len(words) > 40 and set(found) >= OF_NO_AUDIT
    assert words <= told
    assert {entry.what for entry in evil.entries} <= words


OF_NO_AUDIT = {
    *("session began", "said", "pinned", "summarized", "session ended", "session rewound"),
    *("queue began", "places changed", "queue turned"),
    *("memory began", "remembered", "forgotten"),
    *("list grew", "child made"),
}
"""Words of events that are in no log of a task, or make no entry."""
