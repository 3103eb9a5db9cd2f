"""Pydantic's types: validated and dumped by pydantic, the same on every run and anywhere."""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import json
import math
import re
import subprocess
import sys
import tempfile
import typing
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pydantic_core
import pytest
import typing_extensions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, HttpUrl, SecretBytes, SecretStr

from holdfast import (
    Holdfast,
    HoldsSecret,
    TaskFailed,
    Unanswered,
    Undecodable,
    Unserializable,
    ask,
    each,
    step,
    task,
)
from holdfast.codec import Signature, shape_of
from tests.flavors import Crash
from tests.thorough import THOROUGH

T = TypeVar("T")


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


class Plain(BaseModel):
    city: str
    beds: int = 1


class Suite(Plain):
    rooms: int = 2


class Wide(BaseModel):
    when: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    url: HttpUrl = HttpUrl("https://example.org/a")
    ip: ipaddress.IPv4Address = ipaddress.IPv4Address("10.0.0.1")
    pattern: re.Pattern[str] = re.compile("a+")
    color: Color = Color.BLUE
    ids: frozenset[UUID] = frozenset({UUID(int=1), UUID(int=2)})
    price: Decimal = Decimal("1.50")
    path: Path = Path("/tmp")
    pair: tuple[int, str] = (1, "a")


class Aliased(BaseModel):
    room: int = Field(
        validation_alias=pydantic.AliasChoices("roomNo", pydantic.AliasPath("rooms", 0)),
        serialization_alias="ROOM",
    )


class Extra(BaseModel, extra="allow"):
    x: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.x


class Closed(BaseModel, extra="forbid"):
    x: int
    _seen: int = pydantic.PrivateAttr(default=0)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.x


class Box(BaseModel, Generic[T]):
    content: T


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(default=9, alias="nLives")


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = "Rex"


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


@dataclasses.dataclass
class Held:
    plain: Plain
    n: int = 0


class Holder(BaseModel):
    held: Held


class HeldStruct(msgspec.Struct):
    plain: Plain


@attrs.define
class HeldAttrs:
    plain: Plain


class Login(BaseModel):
    user: str
    password: SecretStr
    pin: SecretBytes = SecretBytes(b"")

    @pydantic.field_serializer("password", when_used="json")
    def shown(self, value: SecretStr) -> str:
        return value.get_secret_value()


class TwoBoxes(BaseModel):
    """Pydantic makes a class for each of them, with the same name."""

    one: Box[Annotated[int, Field(gt=0)]]
    two: Box[Annotated[int, Field(gt=0)]]


NATURAL: list[tuple[Any, Any, str]] = [
    (Plain, Plain(city="Oslo"), '{"city":"Oslo","beds":1}'),
    (list[Plain], [Plain(city="Oslo")], '[{"city":"Oslo","beds":1}]'),
    (Plain | None, None, "null"),
    (dict[str, Plain], {"a": Plain(city="Oslo")}, '{"a":{"city":"Oslo","beds":1}}'),
    (tuple[Plain, int], (Plain(city="Oslo"), 1), '[{"city":"Oslo","beds":1},1]'),
    (Aliased, Aliased(roomNo=3), '{"room":3}'),  # type: ignore[call-arg]
    (Extra, Extra(x=1, y=[2]), '{"x":1,"y":[2]}'),  # type: ignore[call-arg]
    (Closed, Closed(x=1), '{"x":1}'),
    (Box[int], Box[int](content=1), '{"content":1}'),
    (Numbers, Numbers([1, 2]), "[1,2]"),
    (
        TwoBoxes,
        TwoBoxes.model_validate({"one": {"content": 1}, "two": {"content": 2}}),
        '{"one":{"content":1},"two":{"content":2}}',
    ),
    (Pet, Cat(nLives=3), '{"kind":"cat","lives":3}'),
    (list[Pet], [Dog(), Cat()], '[{"kind":"dog","name":"Rex"},{"kind":"cat","lives":9}]'),
    (Held, Held(Plain(city="a")), '{"plain":{"city":"a","beds":1},"n":0}'),
    (Holder, Holder(held=Held(Plain(city="a"))), '{"held":{"plain":{"city":"a","beds":1},"n":0}}'),
    (HeldStruct, HeldStruct(Plain(city="a")), '{"plain":{"city":"a","beds":1}}'),
    (HeldAttrs, HeldAttrs(Plain(city="a")), '{"plain":{"city":"a","beds":1}}'),
    (pydantic.PositiveInt, 3, "3"),
    (HttpUrl, HttpUrl("https://example.org/a"), '"https://example.org/a"'),
]


@pytest.mark.parametrize(("annotation", "value", "data"), NATURAL, ids=lambda x: repr(x)[:40])
def test_where_the_annotation_names_the_class_the_log_holds_natural_json(annotation, value, data):
    shape = shape_of(annotation)
    written, settled = shape.settle(value)
    assert written.decode() == data
    assert (settled, shape.load(written), shape.accept(written)) == (value, value, value)
    assert type(settled) is type(value)


def test_every_type_that_pydantic_knows_comes_back():
    written, settled = shape_of(Wide).settle(Wide())
    assert b'"$' not in written
    assert settled == Wide() == shape_of(Wide).load(written)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Wide, Wide(when=datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Oslo")))),
        (Wide, Wide(pattern=re.compile("a", re.I))),
        (Box[float], Box[float](content=float("inf"))),
        (Box[bytes], Box[bytes](content=b"\xff")),
        (Box[int], Box[int](content=10**30)),
        (Box[Any], Box[Any](content=(1, {2}))),
        (Extra, Extra(x=1, **{"$type": "Extra", "of": {}})),
        (Plain | Suite, Suite(city="a")),
        (list[Cat | Dog], [Cat.model_construct(kind="cat"), Dog()]),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_what_a_dump_would_change_comes_back_as_it_was_all_the_same(annotation, value):
    written, settled = shape_of(annotation).settle(value)
    again = shape_of(annotation).load(written)
    assert settled == again == value
    assert repr(settled) == repr(again) == repr(value)


def test_a_private_attribute_that_was_changed_comes_back():
    value = Closed(x=1)
    value._seen = 3
    assert shape_of(Closed).settle(value)[1]._seen == 3


@pytest.mark.parametrize("value", [Suite(city="a"), [Suite(city="a")]], ids=["alone", "in a list"])
def test_a_subclass_where_the_base_is_annotated_is_never_cut(value):
    annotation = list[Plain] if isinstance(value, list) else Plain
    with pytest.raises(Unserializable, match="annotate the step with Suite"):
        shape_of(annotation).dump(value)


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (Plain, {"nonsense": 1}, r"city\n  Field required"),
        (Plain, Plain.model_construct(city=3), r"city\n  Input should be a valid string"),
        (list[Plain], [{"city": "a"}, {"city": 3}], r"1\.city\n"),
        (dict[str, Plain], {"a": {"city": 3}}, r"a\.city\n"),
        (Plain | None, {"beds": 3}, r"city\n  Field required"),
        (Annotated[int, Field(gt=0)], 0, "greater than 0"),
        (pydantic.PositiveInt, -1, "greater than 0"),
        (HttpUrl, "nonsense", "valid URL"),
        (Box[int], {"content": "x"}, r"content\n"),
        (Pet, {"kind": "cow"}, r"expected tags: 'cat', 'dog'"),
        (Closed, {"x": 1, "y": 2}, r"y\n  Extra inputs are not permitted"),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_a_value_that_does_not_fit_is_refused_in_pydantics_words(annotation, value, says):
    with pytest.raises(Unserializable, match=says) as refused:
        shape_of(annotation).dump(value)
    assert "errors.pydantic.dev" not in str(refused.value)


class HeldInStruct(msgspec.Struct):
    plain: Plain
    price: float = 0.0


@attrs.define
class HeldInAttrs:
    plain: Plain


class HeldInDict(typing_extensions.TypedDict):
    plain: Plain


in_struct: Any = HeldInStruct  # no type checker shall refuse what the codec is to refuse
in_attrs: Any = HeldInAttrs


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (HeldInStruct, {"nonsense": 1}, "expected HeldInStruct, found dict"),
        (HeldInStruct, 5, "expected HeldInStruct, found int"),
        (HeldInStruct, in_struct([]), r"expected Plain at \.plain, found list"),
        (HeldInStruct, in_struct(Plain(city="a"), "x"), r"expected float at \.price, found str"),
        (
            list[HeldInAttrs],
            [in_attrs({"city": 3})],
            r"expected Plain at \[0\]\.plain, found dict",
        ),
        (dict[str, HeldInAttrs], {"a": {"plain": 3}}, r"expected HeldInAttrs at \.a, found dict"),
        (HeldInAttrs | None, {}, "expected HeldInAttrs, found dict"),
        (HeldInAttrs | int | None, "x", r"expected HeldInAttrs \| int \| None, found str"),
        (tuple[HeldInAttrs, int], (1, 2), r"expected HeldInAttrs at \[0\], found int"),
        (HeldInDict, {"plain": {"city": 3}}, r"plain\.city\n"),
        (HeldInDict, {}, r"plain\n  Field required"),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_what_does_not_fit_a_class_that_holds_a_model_is_refused(annotation, value, says):
    with pytest.raises(Unserializable, match=says):
        shape_of(annotation).dump(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (HeldInStruct, HeldInStruct(Plain(city="a"), math.inf)),
        (HeldInStruct, HeldInStruct(Plain(city="a"), 2**70)),
        (list[HeldInAttrs], [HeldInAttrs(Plain(city="a"))]),
        (HeldInAttrs | None, None),
        (HeldInDict, {"plain": Plain(city="a")}),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_what_fits_a_class_that_holds_a_model_comes_back(annotation, value):
    shape = shape_of(annotation)
    assert shape.load(shape.dump(value)) == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Plain, Plain(city="$5")),
        (list[Plain], [Plain(city="a"), Plain(city="$5")]),
        (dict[str, Plain], {"a": Plain(city="$type")}),
        (tuple[Plain, str], (Plain(city="a"), "$5")),
        (HeldInStruct, HeldInStruct(Plain(city="$5"))),
        (list[HeldInAttrs], [HeldInAttrs(Plain(city="$5"))]),
        (HttpUrl, HttpUrl("https://a.example/?$=5")),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_a_text_that_begins_as_tags_do_is_natural_json(annotation, value):
    shape = shape_of(annotation)
    data = shape.dump(value)
    assert b'"$type":' not in data
    assert exactly(shape.load(data)) == exactly(value)


class Homes(BaseModel):
    by_name: dict[str, Plain]


WRONG = Plain.model_construct(city=3)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[Plain], [Plain(city="a"), WRONG]),
        (tuple[Plain, int], (WRONG, 1)),
        (dict[str, Plain], {"a": WRONG}),
        (dict[str, list[Plain]], {"a": [Plain(city="a")], "b": [WRONG]}),
        (Homes, Homes.model_construct(by_name={"a": WRONG})),
        (Box[Plain], Box[Plain].model_construct(content=WRONG)),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_a_model_made_around_its_validators_is_refused_wherever_it_is(annotation, value):
    with pytest.raises(Unserializable, match=r"for Plain\ncity\n  Input should be a valid string"):
        shape_of(annotation).dump(value)


def test_json_from_outside_may_use_aliases_or_names_and_no_tags():
    shape = shape_of(Aliased)
    for data in (b'{"roomNo":3}', b'{"rooms":[3]}', b'{"room":3}'):
        assert shape.accept(data) == Aliased.model_validate({"roomNo": 3})
    with pytest.raises(Undecodable, match="valid string"):
        shape_of(Plain).accept(b'{"$type":"Plain","of":{"city":3,"beds":1}}')


def test_a_secret_of_pydantic_is_kept_out_of_the_log_as_ours_is():
    login = Login(user="ada", password=SecretStr("hunter22"))
    with pytest.raises(HoldsSecret, match=r"SecretStr at \.password"):
        shape_of(Login).dump(login)

    def log_in(login: Login, key: SecretStr) -> None: ...

    signature = Signature.of(log_in)
    data = signature.dump_call((login, SecretStr("sesame99")), {})
    assert b"hunter22" not in data
    assert b"sesame99" not in data
    (found, key), _ = signature.load(data)
    assert (found.password.get_secret_value(), key.get_secret_value()) == ("hunter22", "sesame99")


def test_what_was_wrong_with_a_secret_is_said_without_it():
    with pytest.raises(Unserializable) as refused:
        shape_of(Login).dump({"user": 3, "password": ["hunter22"]})
    assert "password: Input should be a valid string" in str(refused.value)
    assert "hunter22" not in str(refused.value)


def test_the_offsets_of_pydantic_can_be_stored_anywhere():
    aware = Wide.model_validate({"when": "2024-01-01T00:00:00+02:00"}).when
    assert type(aware.tzinfo).__name__ == "TzInfo"
    for annotation in (Any, datetime, dict[str, Any]):
        value = {"at": aware} if annotation == dict[str, Any] else aware
        assert shape_of(annotation).settle(value)[1] == value


OLD = b'{"$type":"Plain","of":{"city":"Oslo","beds":3},"set":["beds","city"]}'


@pytest.mark.parametrize(
    ("annotation", "data", "value"),
    [
        (Plain, OLD, Plain(city="Oslo", beds=3)),
        (list[Plain], b"[" + OLD + b"]", [Plain(city="Oslo", beds=3)]),
        (
            list[Plain],
            b"[" + OLD + b',{"city":"Rome","beds":1},' + OLD + b"]",
            [Plain(city="Oslo", beds=3), Plain(city="Rome"), Plain(city="Oslo", beds=3)],
        ),
        (dict[str, Plain], b'{"a":' + OLD + b"}", {"a": Plain(city="Oslo", beds=3)}),
        (tuple[Plain, ...], b'{"$tuple":[' + OLD + b"]}", (Plain(city="Oslo", beds=3),)),
        (HeldAttrs, b'{"$type":"HeldAttrs","of":{"plain":' + OLD + b"}}",
         HeldAttrs(Plain(city="Oslo", beds=3))),
        (set[str], b'{"$set":["a"]}', {"a"}),
        (Path, b'{"$path":"/a"}', Path("/a")),
        (Path, b"null", None),
        (Plain, b"null", None),
    ],
)  # fmt: skip
def test_what_an_older_version_wrote_with_tags_is_still_read(annotation, data, value):
    assert shape_of(annotation).load(data) == value


# What is recorded is not judged again

closed: set[date] = set()


def is_open(day: date) -> date:
    if day in closed:
        raise ValueError("we are closed on that day")
    return day


OpenDay = Annotated[date, pydantic.AfterValidator(is_open)]


class Stay(BaseModel):
    arrives: date
    leaves: OpenDay
    also: list[OpenDay] = []
    place: Path | None = None

    @pydantic.field_validator("arrives")
    @classmethod
    def is_open(cls, day: date) -> date:
        return is_open(day)

    @pydantic.model_validator(mode="after")
    def has_an_end(self) -> Stay:
        assert not closed, "we are closed for ever"
        return self


@pydantic.dataclasses.dataclass
class StayData:
    leaves: OpenDay
    nested: list[Stay] = dataclasses.field(default_factory=list)


class StayStruct(msgspec.Struct):
    stay: Stay


@attrs.define
class StayAttrs:
    stays: list[Stay]


class StayDict(typing_extensions.TypedDict):
    stay: Stay


DAY = date(2026, 5, 1)
STAY = Stay(arrives=DAY, leaves=DAY, also=[DAY])


@pytest.fixture
def closes():
    yield lambda: closed.add(DAY)
    closed.clear()


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Stay, STAY),
        (list[Stay], [STAY]),
        (Box[Stay], Box[Stay](content=STAY)),
        (Box[OpenDay], Box[OpenDay](content=DAY)),
        (OpenDay, DAY),
        (dict[str, OpenDay], {"a": DAY}),
        (StayData, StayData(DAY, [STAY])),
        (StayStruct, StayStruct(STAY)),
        (StayAttrs, StayAttrs([STAY])),
        (StayDict, StayDict(stay=STAY)),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_a_recorded_value_that_a_validator_refuses_today_comes_back_as_it_was(
    annotation, value, closes
):
    shape = shape_of(annotation)
    data = shape.dump(value)
    closes()
    assert shape.load(data) == value
    assert type(shape.load(data)) is type(value)
    with pytest.raises(Undecodable, match="closed on that day"):
        shape.accept(data)


@pytest.mark.parametrize(
    ("annotation", "data", "value"),
    [
        (pydantic.FutureDate, b'"2001-01-01"', date(2001, 1, 1)),
        (
            list[pydantic.FutureDatetime],
            b'["2001-01-01T00:00:00Z"]',
            [datetime(2001, 1, 1, tzinfo=UTC)],
        ),
        (pydantic.FilePath, b'"/nowhere/a.txt"', Path("/nowhere/a.txt")),
        (pydantic.NewPath, b'"/"', Path("/")),
    ],
)
def test_neither_the_clock_nor_the_disk_takes_back_what_is_recorded(annotation, data, value):
    assert shape_of(annotation).load(data) == value
    with pytest.raises(Undecodable):
        shape_of(annotation).accept(data)


def test_what_is_recorded_still_has_to_fit_its_types_and_constraints(closes):
    closes()
    for data in (b'{"arrives":"2026-05-01"}', b'{"arrives":7.5,"leaves":"2026-05-01"}'):
        with pytest.raises(Undecodable, match=r"leaves\n|arrives\n"):
            shape_of(Stay).load(data)
    with pytest.raises(Undecodable, match="greater than 0"):
        shape_of(Box[pydantic.PositiveInt]).load(b'{"content":0}')


class Code:
    """A type of somebody else's, which pydantic makes of JSON by a function."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        def made(text: str) -> Code:
            if text == "bad":
                raise ValueError("no code")
            return cls(text)

        return pydantic_core.core_schema.no_info_after_validator_function(made, handler(str))


class Ticket(BaseModel):
    code: Code
    day: OpenDay


def test_a_function_that_makes_a_type_of_json_keeps_its_veto(closes):
    closes()
    ticket = shape_of(Ticket).load(b'{"code":"a","day":"2026-05-01"}')
    assert (type(ticket.code), ticket.code.text, ticket.day) == (Code, "a", DAY)
    with pytest.raises(Undecodable, match="no code"):
        shape_of(Ticket).load(b'{"code":"bad","day":"2026-05-01"}')


@step
def find_stay() -> Stay:
    return STAY


@step
def book_stay(stay: Stay) -> str:
    return f"booked {stay.arrives}"


@step
def book_day(day: OpenDay) -> str:
    return f"booked {day}"


@step
async def abook_day(day: OpenDay) -> str:
    return f"booked {day}"


@step
def stream_day(day: OpenDay) -> Iterator[str]:
    yield f"booked {day}"


@task
def book_all(stay: Stay) -> list[Any]:
    found = find_stay()
    day = found.arrives
    booked = [book_stay(found), book_day(day), *stream_day(day), *each(book_day, [day])]
    if not closed:
        raise Crash
    return booked


@task
async def abook_all(stay: Stay) -> list[Any]:
    day = find_stay().arrives
    booked = [await abook_day(day), *(await each(abook_day, [day]))]
    if not closed:
        raise Crash
    return booked


@pytest.mark.parametrize("books", [book_all, abook_all], ids=["sync", "async"])
def test_a_task_goes_on_after_the_day_on_which_its_values_were_valid(books, closes):
    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(books, STAY, id="t")
        closes()
        booked = hf.resume("t")
        assert set(booked) == {"booked 2026-05-01"}
        assert hf.task("t").result == booked


@task
def asks_for_a_stay() -> str:
    booked = book_stay(ask("When?", Stay))
    if not closed:
        raise Crash
    return booked


def test_an_answer_that_came_in_time_stays_the_answer(closes):
    with Holdfast("memory://") as hf:
        with pytest.raises(Unanswered):
            hf.run(asks_for_a_stay, id="t")
        hf.answer("t", {"arrives": "2026-05-01", "leaves": "2026-05-01"})
        with pytest.raises(Crash):
            hf.resume("t")
        closes()
        assert hf.resume("t") == "booked 2026-05-01"


def test_a_value_that_comes_too_late_is_refused_where_it_enters(closes):
    @task
    def books_late() -> str:
        return book_day(DAY)

    closes()
    with Holdfast("memory://") as hf, pytest.raises(TaskFailed, match="closed on that day"):
        hf.run(books_late, id="t")


# Any model, anywhere

_leaves = st.sampled_from([
    "int", "float", "str", "bool", "bytes", "datetime", "Decimal", "UUID", "Color", "Path",
    "ipaddress.IPv4Address", "HttpUrl", "Plain", "Wide", "Numbers", "Pet", "Any",
])  # fmt: skip
_types = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        inner.map("list[{}]".format),
        inner.map("dict[str, {}]".format),
        inner.map("typing.Optional[{}]".format),
        st.tuples(inner, inner).map(lambda two: "tuple[{}, {}]".format(*two)),
    ),
    max_leaves=3,
)
_values: dict[Any, st.SearchStrategy[Any]] = {
    HttpUrl: st.sampled_from([HttpUrl("https://example.org/a?b=1"), HttpUrl("http://x.y:8/")]),
    Any: st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
        max_leaves=4,
    ),
    datetime: st.datetimes(timezones=st.none() | st.just(UTC) | st.just(ZoneInfo("Asia/Tokyo"))),
    Path: st.sampled_from([Path("a"), Path("/b c")]),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    float: st.floats(allow_nan=False),
    Numbers: st.lists(st.integers()).map(Numbers),
    Wide: st.just(Wide()),
    Pet: st.sampled_from([Cat(nLives=2), Dog(name="x")]),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation in _values:
        return _values[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return st.lists(values_of(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(), values_of(inner[1]), max_size=3)
    if origin is tuple:
        return st.tuples(*map(values_of, inner))
    if inner:
        return st.one_of(*map(values_of, inner))
    return st.from_type(annotation)


_AGENT = """
class Made(BaseModel):
    model_config = pydantic.ConfigDict(extra={extra!r})
{fields}

@step(name="make_any_model")
def make() -> Made:
    return body()

@task(name="sees_any_model")
def sees() -> None:
    see(make())
"""


@st.composite
def agents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """The source of an agent with a model that nobody has thought of, and values for its fields."""
    kinds = draw(st.lists(_types, min_size=1, max_size=4))
    extra = draw(st.sampled_from(["ignore", "allow", "forbid"]))
    fields = "\n".join(f"    field_{number}: {kind}" for number, kind in enumerate(kinds))
    source = _AGENT.format(extra=extra, fields=fields)
    values = {f"field_{n}": draw(values_of(eval(kind))) for n, kind in enumerate(kinds)}  # noqa: S307
    return source, values


def made_by(source: str, **names: Any) -> dict[str, Any]:
    """What a source defines, with the names of this module."""
    found = {**globals(), **names}
    exec(compile(source, "<agent>", "exec", dont_inherit=True), found)  # noqa: S102
    return found


def exactly(value: Any) -> str:
    """A text that two values share only if they are equal, of equal types, in every part. A zone
    that is nothing but an offset is the same, whichever class it has."""
    if isinstance(value, BaseModel):
        held = {**vars(value), **(value.__pydantic_extra__ or {})}
        return f"{type(value).__qualname__}{exactly(held)}"
    if isinstance(value, dict):
        return f"dict({','.join(f'{k!r}:{exactly(v)}' for k, v in value.items())})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(map(exactly, value))})"
    if isinstance(value, frozenset | set):
        return f"{type(value).__name__}({sorted(map(exactly, value))})"
    if isinstance(value, datetime):
        zone = value.tzinfo if isinstance(value.tzinfo, ZoneInfo) else value.utcoffset()
        return f"{value.replace(tzinfo=None)!r}{zone}"
    return f"{type(value).__name__}:{value!r}"


class Elsewhere:
    """Another process, which is given the sources of agents, and the stores of their tasks."""

    def __init__(self) -> None:
        code = "from tests.codec.test_pydantic import resume_what_is_asked; resume_what_is_asked()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], text=True, cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def sees(self, source: str, url: str) -> str:
        """What the task in a store sees when it is resumed there, exactly."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([source, url]) + "\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def resume_what_is_asked() -> None:
    """The other process: it resumes one task for each line, and prints what the task saw."""
    for line in sys.stdin:
        source, url = json.loads(line)
        seen: list[Any] = []
        agent = made_by(source, see=seen.append)  # no body: a recorded step never runs again
        with Holdfast(url, sync=False) as hf:
            hf.run(agent["sees"], id="t")
        is_made = all(type(each) is agent["Made"] for each in seen)
        print(json.dumps(exactly(seen[0]) if is_made else repr(seen)), flush=True)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    other = Elsewhere()
    yield other
    other.close()


@settings(
    max_examples=1000 if THOROUGH else 60, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(made=agents())
def test_any_model_is_the_same_on_the_first_run_on_a_replay_and_elsewhere(made, elsewhere):
    source, values = made
    seen: list[Any] = []

    def see_and_crash(found: Any) -> None:
        seen.append(found)
        raise Crash

    agent = made_by(source, see=see_and_crash, body=lambda: value)
    value = agent["Made"](**values)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with Holdfast(folder, sync=False) as hf, pytest.raises(Crash):
                hf.run(agent["sees"], id="t")
        there = elsewhere.sees(source, folder)
    assert exactly(seen[0]) == exactly(seen[1]) == there == exactly(value)
    assert type(seen[0]) is type(seen[1]) is agent["Made"]


class Report(BaseModel):
    wide: Wide
    pets: list[Pet]
    box: Box[Plain]
    when: datetime


@step
def make_report() -> Report:
    return Report(
        wide=Wide(),
        pets=[Dog(), Cat(nLives=1)],
        box=Box[Plain](content=Plain(city="Oslo")),
        when=datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Oslo")),
    )


@task
def report_task(crashes: bool) -> str:
    report = make_report()
    if crashes:
        raise Crash
    return exactly(report)


def test_another_process_sees_the_same_model(tmp_path):
    with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
        hf.run(report_task, True, id="t")
    code = (
        "import sys; from holdfast import Holdfast; from tests.codec import test_pydantic as t\n"
        "with Holdfast(sys.argv[1]) as hf:\n"
        "    view = hf.task('t')\n"
        "    raw = view.calls[0].result\n"
        "    print(t.exactly(t.shape_of(t.Report).load(bytes(raw))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "w")],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.strip() == exactly(make_report())


def test_a_step_that_returns_what_does_not_fit_fails_in_pydantics_words():
    @step
    def half_right() -> Plain:
        return {"city": "Oslo", "beds": "many"}  # type: ignore[return-value]

    @task
    def asks_half_right() -> None:
        half_right()

    with Holdfast("memory://") as hf, pytest.raises(TaskFailed, match="beds") as failed:
        hf.run(asks_half_right, id="t")
    assert "valid integer" in str(failed.value)


def test_an_instance_that_was_valid_once_is_stored_on_any_day(closes):
    @task
    def ends_later() -> Stay:
        stay = find_stay()
        closes()
        return stay

    with Holdfast("memory://") as hf:
        assert hf.run(ends_later, id="t") == STAY
        assert hf.run(ends_later, id="t") == STAY
