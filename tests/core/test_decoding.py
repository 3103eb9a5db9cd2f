"""One decoder of what is read from outside, and nothing that can't be read is written."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from holdfast import Holdfast, TaskFailed, checkpoint, decide, note, restore, step, task
from holdfast.agent import Message
from holdfast.core.decoding import MOST_LEVELS, Illegible, damage_in, decode, decoder
from holdfast.core.events import load_event
from holdfast.errors import BadInput, HoldfastError, LogDamaged, Unserializable
from holdfast.stores.files.catalog import IndexEntry
from holdfast.stores.files.locks import Lock

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"

DEEP = b"[" * 20_000 + b"]" * 20_000
ODD = {
    "too deep": DEEP,
    "too deep, and cut short": b'{"a":' * 3000,
    "no UTF-8": b'"\xff"',
    "half of a pair": b'"\\ud800"',
    "a number without end": b"9" * 5000,
    "a number beyond all": b"1e999",
    "no JSON": b"nul",
    "nothing": b"",
    "an object for a text": b"{}",
}
KINDS: dict[str, Any] = {
    "an event": load_event,
    "a line of the index": decoder(IndexEntry),
    "a lock": decoder(Lock),
    "plain data": decode,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", ODD)
def test_whatever_a_decoder_raises_is_one_error_which_is_damage(kind, odd):
    for data in (ODD[odd], b'{"type":%b}' % ODD[odd], b'{"type":"noted","seq":%b}' % ODD[odd]):
        try:
            KINDS[kind](data)
        except Illegible as error:
            assert isinstance(error, LogDamaged)
            assert 0 < len(str(error)) < 300


def test_somebody_who_has_gone_too_deep_is_not_told_that_the_log_is_damaged():
    def deeper() -> Any:
        try:
            return deeper()
        except RecursionError:
            return decode(b"[[[1]]]")  # there may be room for it, or not

    with suppress(RecursionError):
        assert deeper() == [[[1]]]


def test_whoever_knows_the_log_says_which_it_is():
    def told(error: Exception, seq: int = 0) -> str:
        with pytest.raises(LogDamaged) as raised, damage_in("tasks/t-1", seq):
            raise error
        return str(raised.value)

    assert told(Illegible("too deep"), 7).startswith("tasks/t-1: event 7 is damaged: too deep.")
    assert told(KeyError("x")).startswith("tasks/t-1: it is damaged: its events make no sense")
    gone = LogDamaged("blobs/00", 0, "the blob is gone")
    assert "tasks/t-1: it is damaged: it has a value in blobs/00, and the blob is" in told(gone)
    assert told(LogDamaged("tasks/other", 3, "another")).startswith("tasks/other: event 3 is")


# Whose JSON is not that of a store: values by their annotations, replies of models and of servers,
# and files of users, each of which catches what there is to catch.
OTHERS = (
    *("codec/", "testing/", "agent/formats/", "engines/temporal/", "engines/restate/"),
    *("workspace/batches.py", "workspace/ensure.py", "views/sql/apart.py", "core/decoding.py"),
)


def test_nobody_else_decodes_json():
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not name.startswith(OTHERS):
            found += [f"{name}:{line}" for line in _decoders(path.read_text())]
    assert not found, f"use holdfast.core.decoding, which says what can be wrong: {found}"


def _decoders(source: str) -> list[int]:
    """The lines that reach for a decoder of JSON."""
    names = ("msgspec.json.decode", "msgspec.json.Decoder", "json.loads", "json.load")
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in names:
            found.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module in ("msgspec.json", "json"):
            decoders = {"decode", "Decoder", "load", "loads"}
            found += [node.lineno for each in node.names if each.name in decoders]
    return found


def test_that_looks_for_what_it_should():
    assert _decoders("import msgspec\nmsgspec.json.decode(b'1', type=int)") == [2]
    assert _decoders("from msgspec.json import decode") == [1]
    assert _decoders("import json\njson.loads('1')") == [2]
    assert _decoders("import msgspec\nmsgspec.json.encode(1)") == []


# What is written can be read


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Node(Struct):
    next: Node | None = None


def chain_of(length: int) -> Node:
    node = Node()
    for _ in range(length):
        node = Node(node)
    return node


@step
def deep_result(levels: int) -> Any:
    return deep(levels)


@step
def deep_node(levels: int) -> Node:
    return chain_of(levels)


@task
def deep_anywhere(where: str, levels: int) -> Any:
    if where == "checkpoint":
        restore({})
        checkpoint({"state": deep(levels)})
    elif where == "note":
        note("deep", deep(levels))
    elif where == "decision":
        decide("deep", deep(levels))
    elif where == "options":
        decide("deep", 1, options=[deep(levels)])
    elif where == "step":
        deep_result(levels)
    elif where == "class":
        deep_node(levels)
    elif where == "argument":
        deep_taken(deep(levels))
    return deep(levels) if where == "result" else None


@step
def deep_taken(value: Any) -> None: ...


WHERE = ("checkpoint", "note", "decision", "options", "step", "class", "argument", "result")


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 900, 2000, 20_000])
@pytest.mark.parametrize("where", WHERE)
def test_a_value_that_is_nested_too_deep_is_refused_and_the_log_stays_readable(where, levels):
    with Holdfast("memory://") as hf:
        with pytest.raises((TaskFailed, Unserializable, BadInput), match="nested"):
            hf.run(deep_anywhere, where, levels, id="deep")
        assert hf.verify().sound
        assert [each.id for each in hf.tasks()] == ["deep"]


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 900, 2000])
def test_so_is_a_message(levels):
    with Holdfast("memory://") as hf:
        chat = hf.session("chat")
        with pytest.raises(HoldfastError, match=r"nested|recursion"):
            chat.say(Message("user", "hi", meta={"a": deep(levels)}))
        chat.say("hello")
        assert hf.verify().sound
        assert [message.text for message in chat.messages()] == ["hello"]


@pytest.mark.parametrize("where", WHERE)
def test_as_deep_as_it_may_be_it_can_be_read_from_anywhere(where):
    def deeper(levels: int, hf: Holdfast) -> Any:
        return deeper(levels - 1, hf) if levels else hf.task("deep").record()

    with Holdfast("memory://") as hf:
        hf.run(deep_anywhere, where, 95, id="deep")
        assert deeper(300, hf).status == "completed"
