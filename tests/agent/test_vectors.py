"""Entries are found by meaning, where a function of the user tells what that is."""

from __future__ import annotations

import pytest

from holdfast import BadInput, Holdfast, task
from holdfast.log.reading import memory_stream

pytestmark = pytest.mark.holdfast("{tmp_path}/w")

THEMES = {"tea": 0, "coffee": 0, "train": 1, "plane": 1, "sun": 2}


class Embedding:
    """Counts themes, and how often it was asked."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(texts)
        vectors = []
        for text in texts:
            vector = [0.0, 0.0, 0.0]
            for word in text.split():
                if word in THEMES:
                    vector[THEMES[word]] += 1
            vectors.append(vector)
        return vectors


def texts(found):
    return [each.entry.text for each in found]


def test_the_nearest_entries_come_first_whatever_their_words(hf):
    memory = hf.memory.using(Embedding(), name="themes")
    for text in ("a train to Oslo", "coffee at nine", "sun and train"):
        memory.remember(text, user="ada")
    memory.remember("tea tea", user="bob")
    assert texts(memory.search("plane", limit=2)) == ["a train to Oslo", "sun and train"]
    assert texts(memory.search("tea", user="ada"))[0] == "coffee at nine"
    assert [round(each.score, 3) for each in memory.search("plane", user="ada")] == [1, 0.707, 0]
    assert texts(memory.search("of no theme")) == texts(memory.search("of no theme"))


def test_a_vector_is_kept_with_its_entry_and_made_once(hf, tmp_path):
    first = Embedding()
    hf.memory.using(first, name="themes").remember("coffee at nine")
    assert first.batches == [["coffee at nine"]]
    with Holdfast(tmp_path / "w") as again:
        second = Embedding()
        assert texts(again.memory.using(second, name="themes").search("tea")) == ["coffee at nine"]
        assert second.batches == [["tea"]]


def test_entries_without_a_vector_get_theirs_when_they_are_searched_and_nothing_is_written(hf):
    for number in range(150):
        hf.memory.remember(f"coffee {number}")
    before = list(hf.store.read(memory_stream("default")))
    embed = Embedding()
    memory = hf.memory.using(embed, name="themes")
    assert len(memory.search("tea", limit=200)) == 150
    assert [len(batch) for batch in embed.batches] == [1, 64, 64, 22]
    memory.search("sun")
    assert embed.batches[4:] == [["sun"]]
    assert list(hf.store.read(memory_stream("default"))) == before


def test_vectors_of_another_name_are_not_compared(hf):
    hf.memory.using(lambda texts: [[1.0, 2.0] for _ in texts], name="other").remember("train")
    assert texts(hf.memory.using(Embedding(), name="themes").search("plane")) == ["train"]


def test_vectors_of_another_length_under_the_same_name_are_an_error_that_names_both(hf):
    hf.memory.using(lambda texts: [[1.0, 2.0] for _ in texts], name="themes").remember("x", id="e")
    with pytest.raises(BadInput, match="themes makes 3 numbers of a text, and entry 'e' has 2"):
        hf.memory.using(Embedding(), name="themes").search("plane")


async def _late(texts):
    return [[1.0] for _ in texts]


@pytest.mark.parametrize(
    ("embed", "complaint"),
    [
        (lambda texts: [], "made 0 vectors of 1 texts"),
        (lambda texts: [[]], "vectors of 0 numbers"),
        (lambda texts: [["a"]], "must make a list of numbers"),
        (lambda texts: None, "must make a list of numbers"),
        (lambda texts: [[float("nan")]], "not finite"),
        (lambda texts: [[1e300]], "not finite"),
        (_late, "is async"),
    ],
)
def test_a_function_that_makes_no_vectors_is_told_and_nothing_is_written(hf, embed, complaint):
    with pytest.raises(BadInput, match=complaint):
        hf.memory.using(embed, name="wrong").remember("x")
    assert list(hf.memory.entries()) == []


def test_a_function_needs_a_name(hf):
    for embed, name in ((Embedding(), ""), ("no function", "x"), (Embedding(), 7)):
        with pytest.raises(BadInput):
            hf.memory.using(embed, name=name)


def test_a_replay_asks_the_function_nothing(hf):
    embed = Embedding()

    @task(name="vectors_once")
    def learning() -> list[str]:
        memory = hf.memory.using(embed, name="themes")
        memory.remember("coffee")
        return texts(memory.search("tea"))

    assert hf.run(learning, id="t") == ["coffee"]
    asked = list(embed.batches)
    assert hf.check("t").fits
    assert hf.run(learning, id="t") == ["coffee"]
    assert embed.batches == asked
