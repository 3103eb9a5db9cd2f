"""Tokens are counted where that can be done, and never guessed too low where it can't."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadInput
from holdfast.log import tokens
from holdfast.log.messages import (
    Foreign,
    Media,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    user,
)
from holdfast.log.tokens import (
    Calibrated,
    Counter,
    Estimate,
    Tiktoken,
    best_counter,
    calibrate,
    estimated,
)

BYTES = tiktoken.Encoding(
    "bytes",
    pat_str=r"[\s\S]",
    mergeable_ranks={bytes([number]): number for number in range(256)},
    special_tokens={},
)

# The most that any encoding of OpenAI's takes for a text, as published.
PUBLISHED = [
    ("Hello world", 2),
    ("tiktoken is great!", 6),
    ("antidisestablishmentarianism", 6),
    ("2 + 2 = 4", 7),
    ("お誕生日おめでとう", 14),
    ("🎈", 4),
]


@pytest.mark.parametrize(("text", "most"), PUBLISHED)
def test_the_estimate_is_not_below_what_is_published(text: str, most: int) -> None:
    assert estimated(text) >= most


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        # Bounds by the length in characters: what is commonly reported, and twice that.
        ("The quick brown fox jumps over the lazy dog, and goes home. " * 20, 1 / 4.5, 1 / 2),
        ('{"id": 17, "name": "Ada", "tags": ["a", "b"], "ok": true}\n' * 20, 1 / 3, 1),
        ("def add(a: int, b: int) -> int:\n        return a + b\n\n" * 20, 1 / 4, 1),
        ("我们明天早上在火车站见面吧。" * 20, 1.0, 2.2),
        ("Мы встретимся завтра утром на вокзале. " * 20, 0.4, 1.1),
        ("कल सुबह हम स्टेशन पर मिलेंगे। " * 20, 1.0, 3.0),
        ("🎈🎉🐶" * 20, 2.0, 4.0),
        ("x" * 1000, 1 / 8, 1),
        (" " * 1000, 1 / 80, 1),
    ],
)
def test_the_estimate_is_high_and_not_absurd(text: str, least: float, most: float) -> None:
    assert least * len(text) <= estimated(text) <= most * len(text)


@given(st.text())
def test_the_estimate_is_never_above_a_token_a_byte(text: str) -> None:
    assert estimated(text) <= len(text.encode())


@given(st.text(st.characters()), st.text(st.characters()))
def test_more_text_is_never_fewer_tokens(one: str, other: str) -> None:
    assert estimated(f"{one}\n{other}") >= max(estimated(one), estimated(other))


MESSAGES = [
    user(""),
    user("Hello", name="Ada"),
    user([Media(kind="image", url="https://example.org/cat.png")]),
    user([Media(kind="file", media_type="text/plain", data=b"some words")]),
    assistant("Let me see.", [ToolCall("c1", "look", '{"at": 1}')]),
    Message("tool", (ToolResult("c1", "found"), ToolResult("c2", (Text("one"), Text("two"))))),
    Message("assistant", (Thinking("hm"), Foreign("other", {"type": "new", "text": "thing"}))),
]


@pytest.mark.parametrize("counter", [Estimate(), Tiktoken(BYTES), Calibrated(Estimate(), 2.0)])
@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_takes_some(counter: Counter, message: Message) -> None:
    assert counter.count(message) > tokens.PER_MESSAGE
    assert counter.name


def test_a_real_encoding_counts_what_it_counts() -> None:
    counter = Tiktoken(BYTES)
    assert counter.count(user("Grüße")) - counter.count(user("")) == len("Grüße".encode())
    assert counter.name == "tiktoken bytes"
    image = user([Media(kind="image", data=b"x" * 100_000)])
    assert counter.count(image) == tokens.PER_MESSAGE + tokens.PER_PART + tokens.PER_MEDIA


def test_special_tokens_in_a_text_are_text() -> None:
    special = tiktoken.Encoding(
        "special",
        pat_str=r"[\s\S]",
        mergeable_ranks={bytes([number]): number for number in range(256)},
        special_tokens={"<|end|>": 256},
    )
    counter = Tiktoken(special)
    assert counter.count(user("<|end|>")) - counter.count(user("")) == 7


@pytest.mark.parametrize("counter", [Estimate(), Tiktoken(BYTES)])
def test_five_megabytes_are_counted_in_a_moment(counter: Counter) -> None:
    begun = time.monotonic()
    assert counter.count(user("a" * 2_500_000 + "Grüße 🎈 " * 200_000)) > 1_000_000
    assert time.monotonic() - begun < 20


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    tokens._loaded.cache_clear()


@pytest.mark.usefixtures("no_network")
def test_without_a_network_the_best_counter_is_the_estimate() -> None:
    assert isinstance(best_counter(), Estimate)
    assert isinstance(best_counter("gpt-4o"), Estimate)
    assert Estimate().count(user("Hello")) > 0


@pytest.mark.usefixtures("no_network")
def test_data_that_can_not_be_loaded_is_named() -> None:
    with pytest.raises(BadInput, match="could not be loaded"):
        Tiktoken("o200k_base")


def test_a_model_that_tiktoken_does_not_know_is_named() -> None:
    with pytest.raises(BadInput, match="no such model"):
        Tiktoken("a-model-of-somebody-else")
    with pytest.raises(BadInput, match="takes an encoding"):
        Tiktoken(42)


def test_what_a_provider_reports_makes_the_next_count_better() -> None:
    estimate = Estimate()
    text = user("The quick brown fox jumps over the lazy dog.")
    pairs = [(estimate.count(text), 15)] * 3
    assert Calibrated(estimate, calibrate(pairs)).count(text) == 15


@given(st.lists(st.tuples(st.integers(), st.integers())))
def test_whatever_is_reported_the_ratio_stays_within_bounds(pairs: list[tuple[int, int]]) -> None:
    assert 0.25 <= calibrate(pairs) <= 4.0


def test_only_the_last_ones_count_and_a_large_one_counts_more() -> None:
    assert calibrate([(100, 400)] * 100 + [(100, 100)] * 50) == 1.0
    assert calibrate([(10, 40), (990, 990)]) == 1.03
    assert calibrate([(0, 7), (7, 0), (-1, -1)]) == 1.0


@pytest.mark.parametrize("ratio", [0, -1, float("inf"), float("nan")])
def test_a_ratio_that_makes_no_sense_is_refused(ratio: float) -> None:
    with pytest.raises(BadInput):
        Calibrated(Estimate(), ratio)
