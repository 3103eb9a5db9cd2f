"""A memory in every store: what is remembered is found, and nothing else is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast import Holdfast, Keys
from holdfast.agent.memory_index import _decoded
from holdfast.log.reading import memory_stream
from holdfast.stores.memory import MemoryStore
from tests.stores.every import KINDS, LASTING, new_url, postgres_server, postgres_url

__all__ = ["new_url", "postgres_server", "postgres_url"]

STREAM = memory_stream("default")
WAYS = {
    "plain": {},
    "signed": {"sign_key": Keys.new()},
    "encrypted": {"key": Keys.new()},
}


BATCH = 20
"""Of how many entries the words are kept together, on this page."""


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr("holdfast.agent.memory_index._BATCH", BATCH)


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def way(request):
    return request.param


@pytest.fixture(params=KINDS)
def opened(request, way, new_url):
    """Opens one more Holdfast on the same place, as another process would."""
    url, first = new_url(request.param), MemoryStore()
    made = []

    def open_one_more() -> Holdfast:
        place = MemoryStore(beside=first) if url == "memory://" else url
        made.append(Holdfast(place, **way))
        return made[-1]

    yield open_one_more
    for hf in made:
        hf.close()


def texts(found):
    return [each.entry.text for each in found]


def test_an_entry_is_found_by_a_word_of_it_and_the_best_match_comes_first(opened):
    hf = opened()
    for text in (
        "Ada wants a quiet room with a desk",
        "Bob wants a room",
        "Zürich is where Carol lives",
    ):
        hf.memory.remember(text)
    assert texts(hf.memory.search("ZURICH!")) == ["Zürich is where Carol lives"]
    assert texts(hf.memory.search("a quiet room"))[0] == "Ada wants a quiet room with a desk"
    assert set(texts(hf.memory.search("wants"))) == {
        "Ada wants a quiet room with a desk",
        "Bob wants a room",
    }
    assert hf.memory.search("tea") == []
    assert len(hf.memory.search("wants", limit=1)) == 1


def test_entries_of_others_are_not_found(opened):
    memory = opened().memory
    for number in range(200):
        memory.remember(f"tea number {number}", user="bob", labels={"n": str(number % 2)})
    memory.remember("tea with milk, and a lot of words that make it a weak match", user="ada")
    memory.remember("tea for nobody")
    assert texts(memory.search("tea", user="ada", limit=5)) == [
        "tea with milk, and a lot of words that make it a weak match"
    ]
    assert texts(memory.search("tea", user="")) == ["tea for nobody"]
    assert memory.search("tea", user="carol") == []
    assert len(memory.search("tea", user="bob", labels={"n": "1"}, limit=1000)) == 100
    assert memory.search("tea", session="s-1") == []


def test_what_is_forgotten_or_replaced_is_found_no_more(opened):
    hf, other = opened(), opened()
    hf.memory.remember("the code is 4711", id="code")
    hf.memory.remember("likes tea", id="taste")
    assert texts(other.memory.search("code tea"))
    assert hf.memory.forget("code", because="private")
    hf.memory.remember("likes coffee", id="taste")
    for memory in (hf.memory, other.memory, opened().memory):
        assert texts(memory.search("code 4711 tea coffee")) == ["likes coffee"]
        assert memory.entry("code") is None
        assert [entry.text for entry in memory.entries()] == ["likes coffee"]
    assert not other.memory.forget("code")
    other.memory.remember("the code is 4712", id="code")
    assert texts(hf.memory.search("code")) == ["the code is 4712"]


def test_the_next_process_finds_what_this_one_remembered(opened):
    first = opened()
    entry = first.memory.remember("a quiet room", user="ada", session="s-1", labels={"a": "b"})
    second = opened()
    assert second.memory.entry(entry.id) == entry
    (found,) = second.memory.search("quiet", user="ada", session="s-1", labels={"a": "b"})
    assert found.entry == entry and found.score > 0
    second.memory.remember("a loud room")
    assert len(first.memory.search("room")) == 2


def rows(hf):
    return {row.name: row.data for row in hf.store.get_side([STREAM], "derived")}


def test_words_are_kept_beside_the_log_and_catch_up_before_a_search_answers(opened):
    hf, other = opened(), opened()
    for number in range(BATCH + 5):
        hf.memory.remember(f"number {number}", id=str(number))
    assert len(hf.memory.search("number", limit=1000)) == BATCH + 5
    assert list(rows(hf)) == ["0.words"]
    other.memory.remember("number last")
    other.memory.forget("7")
    assert texts(hf.memory.search("last")) == ["number last"]
    assert hf.memory.search("7") == []
    assert len(opened().memory.search("number", limit=1000)) == BATCH + 5
    hf.store.drop_side(STREAM, "derived")
    assert len(hf.memory.search("number", limit=1000)) == BATCH + 5
    assert len(opened().memory.search("number", limit=1000)) == BATCH + 5


def test_a_new_process_takes_the_kept_words_and_cuts_no_text_again(opened, monkeypatch):
    hf = opened()
    for number in range(BATCH):
        hf.memory.remember(f"number {number}")
    assert hf.memory.search("7")
    monkeypatch.setattr("holdfast.agent.memory_index.words_of", None)
    assert texts(opened().memory.search("7")) == ["number 7"]


def test_what_is_forgotten_is_not_kept_among_the_words(opened):
    hf = opened()
    for number in range(BATCH):
        hf.memory.remember(f"secret{number}", id=str(number))
    assert hf.memory.search("secret7")
    hf.memory.forget("7")
    again = opened()
    assert again.memory.search("secret7") == []
    kept = _decoded(rows(again)["0.words"])
    assert kept is not None and len(kept.entries) == BATCH - 1
    assert all(words != "secret7" for _, _, words in kept.entries)


@pytest.mark.parametrize("spoil", ["flip", "cut", "empty", "foreign"])
def test_kept_words_that_are_damaged_or_of_another_log_are_not_believed(tmp_path, spoil):
    def filled(name, word):
        hf = Holdfast(f"sqlite:///{tmp_path}/{name}.db")
        for number in range(BATCH):
            hf.memory.remember(f"{word} {number}", id=f"{word}-{number}")
        assert len(hf.memory.search(word, limit=1000)) == BATCH
        return hf

    with filled("one", "quiet") as hf, filled("two", "loud") as elsewhere:
        data = bytearray(rows(hf)["0.words"])
        data[len(data) // 2] ^= 1
        spoiled = {
            "flip": bytes(data),
            "cut": bytes(data[:-9]),
            "empty": b"",
            "foreign": rows(elsewhere)["0.words"],
        }[spoil]
        hf.store.put_side(STREAM, "derived", "0.words", spoiled)
    with Holdfast(f"sqlite:///{tmp_path}/one.db") as hf:
        assert len(hf.memory.search("quiet", limit=1000)) == BATCH
        assert hf.memory.search("loud") == []


@pytest.mark.parametrize(
    "query",
    [
        "", " ", "\0", "a\0b", '"', "'", '"quiet', "quiet*", "NOT quiet", "quiet AND", "(quiet",
        "quiet)", "words:quiet", "^quiet", "NEAR(quiet room)", "quiet & !room", "quiet:*", "🚀",
        "!!!", "%s %(stream)s :query ? $1", "\\", "quiet'; drop table texts; --", "-quiet +room",
        "x" * 1_000_000, "quiet " * 170_000, " ".join(map(str, range(150_000))), "\u202equiet",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_query_is_only_words(kind, query, new_url):
    with Holdfast(new_url(kind)) as hf:
        hf.memory.remember("a quiet room")
        found = hf.memory.search(query)
        has_word = "quiet" in query or query.startswith("a\0")
        assert texts(found) == (["a quiet room"] if has_word else [])


def test_no_word_of_an_encrypted_memory_is_on_the_disk(tmp_path):
    path = tmp_path / "sealed.db"
    with Holdfast(f"sqlite:///{path}", key=Keys.new()) as hf:
        hf.memory.remember("Xanthippe wants a quiet room")
        for number in range(BATCH):
            hf.memory.remember(f"number {number}")
        assert texts(hf.memory.search("xanthippe")) == ["Xanthippe wants a quiet room"]
        assert rows(hf)
        on_disk = b"".join(file.read_bytes() for file in tmp_path.iterdir()).lower()
        assert b"xanthippe" not in on_disk
    with Holdfast(f"sqlite:///{tmp_path}/open.db") as hf:
        hf.memory.remember("Xanthippe wants a quiet room")
        for number in range(BATCH):
            hf.memory.remember(f"number {number}")
        hf.memory.search("xanthippe")
        on_disk = b"".join(file.read_bytes() for file in tmp_path.iterdir()).lower()
        assert on_disk.count(b"xanthippe") >= 2  # in the log, and among the words


REMEMBERING = """
import sys
from holdfast import Holdfast
with Holdfast(sys.argv[1]) as hf:
    for number in range(int(sys.argv[3])):
        hf.memory.remember(f"{sys.argv[2]} {number}", user=sys.argv[2])
        if number % 10 == 0:
            hf.memory.search(sys.argv[2])
"""


@pytest.mark.parametrize("kind", LASTING)
def test_two_processes_that_remember_at_once_lose_nothing(kind, new_url):
    url = new_url(kind)
    commands = [[sys.executable, "-c", REMEMBERING, url, who, "40"] for who in ("ada", "bob")]
    started = [subprocess.Popen(c, stderr=subprocess.PIPE, text=True) for c in commands]
    assert [process.communicate(timeout=120)[1] for process in started] == ["", ""]
    with Holdfast(url) as hf:
        for who in ("ada", "bob"):
            wanted = [f"{who} {number}" for number in reversed(range(40))]
            assert [entry.text for entry in hf.memory.entries(user=who)] == wanted
            assert sorted(texts(hf.memory.search(who, limit=100))) == sorted(wanted)
