"""An int of up to 4,300 digits survives everywhere; a longer one is refused where it is written."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from holdfast import (
    Holdfast,
    TaskFailed,
    Unserializable,
    checkpoint,
    decide,
    note,
    restore,
    step,
    task,
)
from holdfast.cli.root import root
from holdfast.codec import shape_of

LONGEST = 10**4300 - 1
TOO_LONG = 10**4300


@dataclass
class Data:
    n: int
    more: Any = None


class Fields(msgspec.Struct):
    n: int


@attrs.define
class Attrs:
    n: int


class Model(pydantic.BaseModel):
    n: int
    more: Any = None


class Number(IntEnum):
    LONG = LONGEST
    LONGER = TOO_LONG


class Name(Enum):
    LONG = LONGEST
    LONGER = TOO_LONG


def _values(n: int) -> list[tuple[Any, Any]]:
    return [
        (Any, n),
        (int, n),
        (int | None, n),
        (int | str, n),
        (float | int, n),
        (list[int], [n]),
        (Any, [{"a": n}]),
        (dict[str, int], {"a": n}),
        (dict[int, int], {n: 1}),
        (Any, {n: 1}),
        (set[int], {n}),
        (tuple[int, str], (n, "")),
        (Data, Data(n)),
        (Data, Data(1, n)),
        (Fields, Fields(n)),
        (Attrs, Attrs(n)),
        (Model, Model(n=n)),
        (Model, Model(n=1, more=n)),
        (list[Model], [Model(n=n)]),
    ]


@pytest.fixture(params=[0, 640, 4300], ids=lambda digits: f"limit-{digits}", autouse=True)
def _limit(request) -> Iterator[None]:
    """Python's own limit may be lifted (0) or lowered in a process that writes."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(request.param)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("place", range(len(_values(0))))
@pytest.mark.parametrize("sign", [1, -1])
def test_the_longest_int_comes_back(place, sign):
    if sys.get_int_max_str_digits() == 640:
        pytest.skip("whoever lowers the limit asks for less")
    annotation, value = _values(sign * LONGEST)[place]
    shape = shape_of(annotation)
    data, settled = shape.settle(value)
    assert settled == shape.load(data) == value


@pytest.mark.parametrize("place", range(len(_values(0))))
@pytest.mark.parametrize("sign", [1, -1])
def test_a_longer_int_is_refused_with_advice(place, sign):
    annotation, value = _values(sign * TOO_LONG)[place]
    with pytest.raises(
        Unserializable, match=r"more than 4,300 digits.*keep it as a text, hex\(n\)"
    ):
        shape_of(annotation).dump(value)


@pytest.mark.parametrize("kind", [Number, Name])
def test_an_enum_of_huge_ints_comes_back_or_is_refused(kind):
    for member in kind:
        try:
            data = shape_of(kind).dump(member)
        except Unserializable:
            continue
        assert shape_of(kind).load(data) is member


@step
def give_huge(n: int) -> int:
    return 10**n


@step
def give_any_huge(n: int) -> Any:
    return [10**n]


@task
def note_huge(n: int) -> Any:
    restore({})
    checkpoint({"n": 10**n})
    note("a note", 10**n)
    decide("number", 10**n, options=[10**n, -(10**n)])
    return [give_huge(n), give_any_huge(n)]


@pytest.mark.parametrize("wrong", [give_huge, give_any_huge])
def test_a_step_that_returns_a_longer_int_fails_and_its_log_stays_readable(wrong):
    @task(name=f"makes_{wrong.__name__}")
    def makes() -> Any:
        return wrong(5000)

    with Holdfast("memory://") as hf:
        with pytest.raises(TaskFailed, match="more than 4,300 digits"):
            hf.run(makes, id="h-1")
        assert hf.task("h-1").status == "failed"
        assert hf.verify().sound


COMMANDS = [
    ["ls"],
    ["show", "h-1"],
    ["show", "h-1", "--full"],
    ["show", "h-1", "--json"],
    ["log", "h-1"],
    ["log", "h-1", "--json"],
    ["why", "h-1"],
    ["context", "h-1"],
    ["snapshot", "h-1"],
    ["diff", "h-1", "h-2"],
    ["compare", "h-1", "h-2"],
    ["compare", "h-1", "h-2", "--json"],
    ["audit", "h-1"],
    ["stats"],
    ["handoff", "h-1"],
    ["sql", "select * from steps, decisions, notes, tasks"],
    ["sql", "select * from steps", "--json"],
    ["doctor"],
    ["verify"],
    ["rebuild"],
]


def test_every_reading_command_shows_the_longest_int(tmp_path, cli):
    if sys.get_int_max_str_digits() != 4300:
        pytest.skip("what a person at the keyboard has is the default")
    with Holdfast(tmp_path) as hf:
        for id, n in (("h-1", 4299), ("h-2", 4298)):
            assert hf.run(note_huge, n, id=id) == [10**n, [10**n]]
    assert msgspec.json.decode((tmp_path / "tasks/h-1/state.json").read_bytes())
    for words in COMMANDS:
        ended = cli(*words, "--url", str(tmp_path))
        assert ended.exit_code in (0, 1, 3), (words, ended.output[-300:])  # 1: they differ


@pytest.fixture
def cli():
    from click.testing import CliRunner

    return lambda *words: CliRunner().invoke(root, words, prog_name="holdfast")
