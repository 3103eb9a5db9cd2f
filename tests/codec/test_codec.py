"""What goes into the codec comes out as it was, or is refused with a word on where and why."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import math
import subprocess
import sys
import typing
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec import Shape, Signature, args_hash, canonical, shape_of
from holdfast.errors import BadInput, Undecodable, Unserializable

T = TypeVar("T")

OSLO = ZoneInfo("Europe/Oslo")
NAIVE = datetime.fromisoformat("2024-02-29T12:30:00.000001")


# ---- Classes to store --------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Odd(enum.Enum):
    """Members whose values JSON does not know."""

    PAIR = (1, 2)
    RAW = b"\xff"
    SET = frozenset({1})


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    A = 1
    B = 8


@dataclasses.dataclass
class Room:
    name: str
    beds: int = 1


@dataclasses.dataclass
class Suite(Room):
    bath: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Hotel:
    rooms: list[Room]
    best: Room | None = None
    by_floor: dict[int, Room] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Computed:
    x: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.x


@dataclasses.dataclass
class Counting:
    """Its constructor changes what it is given."""

    n: int

    def __post_init__(self) -> None:
        self.n += 1


@dataclasses.dataclass(repr=False)
class NotYet:
    name: str
    result: int = dataclasses.field(init=False)


@dataclasses.dataclass
class WithInitVar:
    x: int
    scale: dataclasses.InitVar[int] = 2

    def __post_init__(self, scale: int) -> None:
        self.x *= scale


@dataclasses.dataclass
class Lazy:
    x: int

    @functools.cached_property
    def square(self) -> int:
        return self.x**2


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Link:
    next: Link | None = None


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@dataclasses.dataclass
class Anything:
    content: Any


@dataclasses.dataclass
class Trouble(Exception):
    code: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


Loose = namedtuple("Loose", "a b")  # untyped, so it leaves its fields open


class Message(TypedDict):
    role: str
    content: str


class Partial(TypedDict, total=False):
    at: datetime


class Packed(msgspec.Struct):
    x: int
    y: list[int] = []


class Frozen(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="frozen"):
    some_x: int


class Sparse(msgspec.Struct, omit_defaults=True):
    x: int = 3


class Hooked(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Maybe(msgspec.Struct):
    x: int | msgspec.UnsetType = msgspec.UNSET


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    lives: int


@attrs.define
class Guest:
    name: str
    nights: int = 1


@attrs.frozen
class Secretive:
    _pin: int
    seen: int = attrs.field(init=False, default=0)


@attrs.define(slots=False)
class Checked:
    n: int = attrs.field(converter=lambda n: int(n) + 1, validator=attrs.validators.ge(0))

    def __attrs_post_init__(self) -> None:
        self.n += 1


@attrs.frozen(cache_hash=True)
class Hashed:
    x: int


class Model(pydantic.BaseModel):
    name: str
    when: datetime | None = None
    hidden: int = pydantic.Field(default=0, exclude=True, alias="secret")
    _token: str = pydantic.PrivateAttr(default="t")


class Bigger(Model):
    more: int = 0


class Holder(pydantic.BaseModel):
    model: Model
    path: Path = Path("/tmp")


class Extra(pydantic.BaseModel, extra="allow", frozen=True):
    x: int

    @pydantic.field_validator("x", mode="before")
    @classmethod
    def add_one(cls, x: int) -> int:
        return x + 1


class Roots(pydantic.RootModel[list[int]]):
    pass


class Outer:
    @dataclasses.dataclass
    class Room:
        number: int


UserId = NewType("UserId", int)


class TextOf(str):
    """A subclass of str."""


class NumberOf(float):
    """A subclass of float, as numpy has one."""


# ---- Sameness, spelled out apart from the codec ------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Whether two values can't be told apart: by type, order, zone, fold, sign, everything."""
    if type(a) is not type(b):
        return False
    if isinstance(a, enum.Enum):
        return a is b
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) if a == b else a != a and b != b
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, datetime | time):
        return repr(a) == repr(b) and a.fold == b.fold and same_zone(a.tzinfo, b.tzinfo)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return same(sorted(a, key=in_order), sorted(b, key=in_order))
    if hasattr(a, "__pydantic_fields_set__"):
        one, other = a.__getstate__(), b.__getstate__()
        # Which fields were given and which took their default is no part of the value.
        del one["__pydantic_fields_set__"], other["__pydantic_fields_set__"]
        return same(one, other)
    return same_fields(a, b)


def in_order(value: Any) -> str:
    """A repr that does not depend on the order of a set."""
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(in_order, value)))}}}"
    return f"({','.join(map(in_order, value))})" if isinstance(value, tuple) else repr(value)


def same_fields(a: Any, b: Any) -> bool:
    names = getattr(a, "__struct_fields__", None) or [
        field.name
        for field in getattr(a, "__attrs_attrs__", ())
        or (dataclasses.fields(a) if dataclasses.is_dataclass(a) else ())
    ]
    if not names:
        return bool(a == b)
    return all(
        hasattr(a, name) == hasattr(b, name)
        and (not hasattr(a, name) or same(getattr(a, name), getattr(b, name)))
        for name in names
    )


def same_zone(a: tzinfo | None, b: tzinfo | None) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


def comes_back(annotation: Any, value: Any) -> bool:
    shape = shape_of(annotation)
    data, settled = shape.settle(value)
    json.loads(data)  # what is stored is JSON for everyone
    return data == shape.dump(value) and same(settled, value) and same(shape.load(data), value)


# ---- Every type, wherever it stands ------------------------------------------------------------

BUILTIN: list[tuple[Any, Any]] = [
    (None, None),
    (bool, True),
    (int, -7),
    (int, 2**63 - 1),
    (int, 2**63),
    (int, 10**100),
    (int, -(10**40)),
    (float, 1.0),
    (float, -0.0),
    (float, 5e-324),
    (float, 1.7976931348623157e308),
    (str, ""),
    (str, "a\x00b\u2028😀\ufeff"),
    (bytes, b""),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"ab")),
    (datetime, NAIVE),
    (datetime, NAIVE.replace(tzinfo=UTC)),
    (datetime, NAIVE.replace(tzinfo=timezone(timedelta(hours=-9, minutes=30)))),
    (datetime, NAIVE.replace(tzinfo=timezone(timedelta(hours=2, seconds=3)))),
    (datetime, NAIVE.replace(tzinfo=timezone(timedelta(hours=2), "CEST"))),
    (datetime, NAIVE.replace(tzinfo=timezone(timedelta(0), "UTC"))),
    (datetime, NAIVE.replace(tzinfo=timezone(timedelta(hours=1), ""))),
    (datetime, NAIVE.replace(tzinfo=timezone(timedelta(microseconds=1)))),
    (datetime, NAIVE.replace(tzinfo=OSLO)),
    (datetime, NAIVE.replace(tzinfo=ZoneInfo("UTC"))),
    (datetime, datetime(2024, 10, 27, 2, 30, tzinfo=OSLO, fold=0)),
    (datetime, datetime(2024, 10, 27, 2, 30, tzinfo=OSLO, fold=1)),
    (datetime, NAIVE.replace(fold=1)),
    (datetime, datetime.min.replace(tzinfo=UTC)),
    (datetime, datetime.max.replace(tzinfo=OSLO)),
    (time, time(1, 2, 3, 4)),
    (time, time(1, 2, tzinfo=UTC)),
    (time, time(1, 2, tzinfo=OSLO, fold=1)),
    (time, time(1, 2, tzinfo=timezone(timedelta(hours=1), "X"))),
    (date, date(1, 1, 1)),
    (timedelta, timedelta(days=-1, microseconds=5)),
    (timedelta, timedelta.max),
    (timedelta, timedelta.min),
    (UUID, UUID(int=5)),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("-0E+5")),
    (Decimal, Decimal("NaN")),
    (Decimal, Decimal("-Infinity")),
    (Decimal, Decimal("sNaN123")),
    (Path, Path("/a/b c")),
    (PurePath, PurePosixPath("a")),
    (PureWindowsPath, PureWindowsPath("c:\\a")),
    (PurePosixPath, PurePosixPath("//a")),
    (list[int], [1, 2]),
    (list[list[str]], [["a"], []]),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "a")),
    (tuple[()], ()),
    (set[str], {"b", "a"}),
    (frozenset[int], frozenset({3, 1})),
    (set[tuple[int, ...]], {(1, 2), ()}),
    (dict[str, int], {"b": 1, "a": 2}),
    (dict[int, str], {2: "b", 1: "a", -5: "c", 2**70: "d"}),
    (dict[float, str], {1.5: "a"}),
    (dict[bool, int], {True: 1}),
    (dict[tuple[int, int], str], {(1, 2): "a"}),
    (dict[UUID, date], {UUID(int=1): date(2024, 1, 1)}),
    (dict[str | None, int], {None: 1, "a": 2}),
    (dict[int | str, int], {1: 2, "1": 3}),
    (dict[bytes, set[int]], {b"a": {1}}),
    (Literal["a", 1], "a"),
    (Literal[1, "a"], 1),
    (int | str | None, None),
    (int | float, 1),
    (int | float, 1.0),
    (bool | int, True),
    (str | bytes, b"a"),
    (date | datetime, NAIVE),
    (UUID | str, "00000000-0000-0000-0000-000000000005"),
    (UserId, UserId(3)),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
]

OBJECTS: list[tuple[Any, Any]] = [
    (Color, Color.RED),
    (Level, Level.HIGH),
    (Word, Word.YES),
    (Odd, Odd.PAIR),
    (Odd, Odd.RAW),
    (Rights, Rights.READ | Rights.WRITE),
    (Rights, Rights(0)),
    (Bits, Bits.A | Bits.B),
    (Literal[Color.RED], Color.RED),
    (dict[Color, int], {Color.BLUE: 1}),
    (dict[Level, int], {Level.LOW: 1}),
    (dict[Literal["a", "b"], int], {"b": 1}),
    (Room, Room("attic", 2)),
    (Suite, Suite("top", 3, False)),
    (Room | Suite, Suite("top")),
    (list[Room | Suite | int], [Room("a"), Suite("b"), 3]),
    (Point, Point(1, 2.5)),
    (set[Point], {Point(1), Point(2)}),
    (dict[Point, str], {Point(1): "a"}),
    (Hotel, Hotel([Room("a"), Room("b")], Room("a"), {1: Room("c")})),
    (Computed, Computed(4)),
    (Counting, Counting(1)),
    (list[Counting], [Counting(1), Counting(2)]),
    (NotYet, NotYet("a")),
    (WithInitVar, WithInitVar(3)),
    (Lazy, Lazy(3)),
    (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])])),
    (Link, Link(Link(Link()))),
    (Box[int], Box(1)),
    (Box[int], Box[int](1)),
    (Box[Room], Box(Room("a"))),
    (Box[Box[Point]], Box(Box(Point(1)))),
    (Box, Box((1, {2}))),
    (Anything, Anything((1, b"a"))),
    (list[Anything], [Anything({1: 2})]),
    (Pair, Pair(1)),
    (list[Pair], [Pair(1, "a")]),
    (Loose, Loose(1, (2,))),
    (Message, {"role": "user", "content": "hi"}),
    (Partial, {}),
    (Partial, {"at": NAIVE.replace(tzinfo=OSLO)}),
    (Packed, Packed(1, [2])),
    (Frozen, Frozen(some_x=1)),
    (Frozen | None, Frozen(some_x=1)),
    (Sparse, Sparse()),
    (Sparse, Sparse(4)),
    (Hooked, Hooked(1)),
    (Maybe, Maybe()),
    (Maybe, Maybe(3)),
    (Cat | Dog, Dog(9)),
    (Guest, Guest("Ada", 2)),
    (Secretive, Secretive(1234)),
    (Checked, Checked("3")),
    (Hashed, Hashed(1)),
    (set[Hashed], {Hashed(1)}),
    (Model, Model(name="a", secret=5)),
    (Model | Bigger, Bigger(name="a", more=2)),
    (Holder, Holder(model=Model(name="b", when=NAIVE.replace(tzinfo=OSLO)))),
    (Extra, Extra(x=1, y=(1, 2))),  # type: ignore[call-arg]
    (Roots, Roots([1])),
    (list[Room] | dict[str, Point], {"a": Point(1)}),
    (Sequence[Room], (Room("a"),)),
    (Mapping[str, Room], {"a": Room("a")}),
    (Callable[..., Room] | Room, Room("a")),
    (typing.Optional[Annotated[Room, "x"]], Room("a")),  # noqa: UP045
]


def name(value: Any) -> str:
    if typing.get_origin(value) is not None:
        return str(value)
    return value.__name__ if isinstance(value, type) else type(value).__name__


@pytest.mark.parametrize(("annotation", "value"), BUILTIN + OBJECTS, ids=name)
def test_a_value_comes_back_as_it_was_under_its_own_annotation(annotation: Any, value: Any) -> None:
    assert comes_back(annotation, value)
    assert comes_back(annotation | None if annotation else None, value)


@pytest.mark.parametrize(("annotation", "value"), BUILTIN + OBJECTS, ids=name)
def test_a_value_comes_back_as_it_was_inside_others(annotation: Any, value: Any) -> None:
    holder = dataclasses.make_dataclass("holder", [("held", annotation), ("n", int)])
    made = holder(value, 3)
    assert comes_back(holder, made)
    assert comes_back(list[holder], [made, made])  # type: ignore[valid-type]
    assert comes_back(dict[str, annotation], {"a b": value, "$type": value})
    assert comes_back(tuple[annotation, Any], (value, (1,)))


@pytest.mark.parametrize(("annotation", "value"), BUILTIN, ids=name)
@pytest.mark.parametrize("no", [Any, inspect.Parameter.empty, object, T, list | Any], ids=name)
def test_a_value_comes_back_as_it_was_where_the_annotation_says_nothing(
    annotation: Any, value: Any, no: Any
) -> None:
    assert comes_back(no, value)
    assert comes_back(no, {"a": [value, (value,)]})
    assert comes_back(list[Any], [value])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_survive_where_the_annotation_leaves_it_open(value: float) -> None:
    assert comes_back(Any, value)
    assert comes_back(Any, [1.0, value, {"a": value}])
    assert comes_back(dict[str, Any], {"a": value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("annotation", [float, float | None, list[float | None], Point])
def test_nan_and_infinity_are_refused_under_float(annotation: Any, value: float) -> None:
    held = [value] if annotation == list[float | None] else value
    with pytest.raises(Unserializable, match=r"nan|not in JSON"):
        shape_of(annotation).dump(Point(1, value) if annotation is Point else held)


# ---- Closed annotations give plain JSON --------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "data"),
    [
        (Room, Room("attic"), b'{"name":"attic","beds":1}'),
        (list[Room], [Room("a")], b'[{"name":"a","beds":1}]'),
        (Room | None, None, b"null"),
        (datetime, NAIVE.replace(tzinfo=UTC), b'"2024-02-29T12:30:00.000001Z"'),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (Color, Color.RED, b'"red"'),
        (Pair, Pair(1, "a"), b'[1,"a"]'),
        (dict[int, str], {1: "a"}, b'{"1":"a"}'),
        (dict[str, int], {"$type": 1}, b'{"$type":1}'),
        (Tree, Tree(1, [Tree(2)]), b'{"value":1,"children":[{"value":2,"children":[]}]}'),
        (Box[int], Box(1), b'{"content":1}'),
        (Box[int], Box[int](1), b'{"content":1}'),
        (Frozen, Frozen(some_x=1), b'{"type":"frozen","someX":1}'),
        (Guest, Guest("Ada"), b'{"name":"Ada","nights":1}'),
        (Message, {"role": "a", "content": "b"}, b'{"role":"a","content":"b"}'),
        (int, 2**70, b"1180591620717411303424"),
    ],
    ids=name,
)
def test_a_closed_annotation_is_stored_as_plain_json(
    annotation: Any, value: Any, data: bytes
) -> None:
    assert shape_of(annotation).dump(value) == data


def test_an_open_annotation_tags_only_what_json_does_not_know() -> None:
    value = {"a": [1, "x", None, 1.5], "b": (1,), "c": {1: 2}, "d": b"x", "e": {"$f": 1}}
    assert shape_of(Any).dump(value) == (
        b'{"a":[1,"x",null,1.5],"b":{"$tuple":[1]},"c":{"$dict":[[1,2]]},'
        b'"d":{"$bytes":"eA=="},"e":{"$dict":[["$f",1]]}}'
    )
    assert shape_of(Room | Suite).dump(Room("a")) == b'{"$type":"Room","of":{"name":"a","beds":1}}'
    assert shape_of(Any).dump(NAIVE.replace(tzinfo=OSLO)) == (
        b'{"$datetime":"2024-02-29T12:30:00.000001","zone":"Europe/Oslo"}'
    )


def test_plain_json_is_written_without_a_copy_or_a_tag() -> None:
    messages = [{"role": "user", "content": f"{n} costs $5"} for n in range(100)]
    assert shape_of(Any).dump(messages) == msgspec.json.encode(messages)
    assert comes_back(None.__class__ | Any, messages)  # type: ignore[operator]


def test_a_set_is_stored_in_the_same_order_in_every_process() -> None:
    one: set[Any] = {8, 0, "a", (1,)}
    other: set[Any] = {(1,), "a", 0, 8}
    assert shape_of(Any).dump(one) == shape_of(Any).dump(other)
    assert shape_of(set[str]).dump({"b", "a", "c"}) == b'["a","b","c"]'


def test_a_lazily_computed_attribute_is_left_out_and_computed_again() -> None:
    lazy = Lazy(3)
    assert lazy.square == 9
    for annotation in (Lazy, Lazy | Any):
        settled = shape_of(annotation).settle(lazy)[1]
        assert "square" not in vars(settled)
        assert settled.square == 9


# ---- What does not fit its annotation is refused -----------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "x", r"int: Expected `int`, got `str`"),
        (int, True, r"got `bool`"),
        (int, 1.0, r"got `float`"),
        (bool, 1, r"got `int`"),
        (str, b"abc", r"str: expected str, found bytes"),
        (str, UUID(int=1), r"expected str, found UUID"),
        (str, Color.RED, r"expected str, found Color"),
        (list[str], ["a", date(2024, 1, 1)], r"expected str at \[1\], found date"),
        (bytes, "YQ==", r"expected bytes, found str"),
        (list[int], (1, 2), r"expected list, found tuple"),
        (list[int], {1, 2}, r"expected list, found set"),
        (tuple[int, ...], [1], r"expected tuple, found list"),
        (tuple[int, int], (1, 2, 3), r"length 2"),
        (
            list[tuple[int, int]],
            [(1, 2), (3, "x")],
            r"Expected `int`, got `str` - at `\$\[1\]\[1\]`",
        ),
        (dict[str, int], {1: 2}, r"expected str at \.keys\(\), found int"),
        (
            dict[str, list[str]],
            {"a b": ["x", b"y"]},
            r"expected str at \['a b'\]\[1\], found bytes",
        ),
        (dict[int, str], {True: "a"}, r"str-like|keys"),
        (float, 2**53 + 1, r"expected float, found int"),
        (float, 10**400, r"float|range"),
        (float, Decimal("1.5"), r"got `str`"),
        (Decimal, 1.5, r"expected Decimal, found float"),
        (Decimal, "1.5", r"expected Decimal, found str"),
        (datetime, date(2024, 1, 1), r"RFC3339"),
        (date, NAIVE, r"RFC3339"),
        (UUID, str(UUID(int=1)), r"expected UUID, found str"),
        (Room, {"name": "a"}, r"expected Room, found dict"),
        (Room, Suite("a"), r"expected Room, found Suite"),
        (Hotel, Hotel([Room("a"), Suite("b")]), r"expected Room at \.rooms\[1\], found Suite"),
        (list[Room], [Room("a"), Room(b"b")], r"expected str at \[1\]\.name, found bytes"),  # type: ignore[arg-type]
        (list[Hotel], [Hotel([Room(b"b")])], r"at \[0\]\.rooms\[0\]\.name, found bytes"),  # type: ignore[arg-type]
        (Room, Room("a", "two"), r"Expected `int`, got `str` - at `\$\.beds`"),  # type: ignore[arg-type]
        (Packed, Packed("x"), r"\$\.x"),  # type: ignore[arg-type]
        (Pair, (1, "a"), r"expected Pair, found tuple"),
        (Message, {"role": "a"}, r"missing required field `content`"),
        (Literal["a"], "b", r"Invalid enum value 'b'"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, r">= 0"),
        (None, 3, r"None: Expected `null`, got `int`"),
        (int, Path("/a"), r"PosixPath|WindowsPath"),
        (list[int], [object()], r"a value of type object at \[0\] can't be stored"),
    ],
    ids=name,
)
def test_a_value_that_does_not_fit_its_annotation_is_refused(
    annotation: Any, value: Any, message: str
) -> None:
    for refuse in (shape_of(annotation).dump, shape_of(annotation).settle):
        with pytest.raises(Unserializable, match=message):
            refuse(value)


@pytest.mark.parametrize(
    ("annotation", "value", "settled"),
    [
        (str, Word.YES, "yes"),
        (str, TextOf("a"), "a"),
        (int, Level.HIGH, 2),
        (float, NumberOf(1.5), 1.5),
        (float | None, NumberOf(1.5), 1.5),
        (float, 3, 3.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (dict[str, int], OrderedDict(a=1), {"a": 1}),
        (dict[str, int], Counter("a"), {"a": 1}),
        (dict[str, list[str]], defaultdict(list, a=[TextOf("b")]), {"a": ["b"]}),
        (tuple[int, str], Pair(1, "a"), (1, "a")),
    ],
    ids=name,
)
def test_a_subclass_of_a_builtin_comes_back_as_what_the_annotation_says(
    annotation: Any, value: Any, settled: Any
) -> None:
    assert same(shape_of(annotation).settle(value)[1], settled)


def test_what_a_typed_dict_does_not_name_is_kept() -> None:
    assert comes_back(Message, {"role": "a", "content": "b", "$more": (1,)})


# ---- What can't be stored is refused, with its place -------------------------------------------


class Custom(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Any, object(), r"a value of type object can't be stored"),
        (Any, {"rooms": [1, {"owner": object()}]}, r"type object at \.rooms\[1\]\.owner can't"),
        (Any, {"a": {1: {"x y": object()}}}, r"at \.a\[1\]\['x y'\] can't"),
        (Any, ({object(): 1},), r"at \[0\]\.keys\(\) can't"),
        (Any, {frozenset(): object()}, r"at \[a frozenset\] can't"),
        (Any, Room("a"), r"type Room can't be stored; annotate the step with Room"),
        (Any, [Color.RED], r"type Color at \[0\] can't"),
        (Any, Pair(1), r"type Pair can't be stored; annotate the step with Pair"),
        (Any, Word.YES, r"type Word can't"),
        (Any, {Word.YES: 1}, r"type Word at \.keys\(\) can't"),
        (Any, [{"yes": 1}, {Word.YES: 1}], r"type Word at \[1\]\.keys\(\) can't"),
        (Any, TextOf("a"), r"type TextOf can't be stored; turn it into a plain str"),
        (Any, OrderedDict(a=1), r"OrderedDict can't be stored; turn it into a plain dict"),
        (Any, deque([1]), r"deque"),
        (Any, UserDict(), r"UserDict"),
        (Any, 1j, r"complex"),
        (Any, range(3), r"range"),
        (Any, memoryview(b"a"), r"memoryview"),
        (Any, Trouble(3), r"Trouble"),
        (Trouble, Trouble(3), r"Trouble"),
        (Any, len, r"builtin_function"),
        (Any, int, r"type type can't"),
        (Any, Model(name="a"), r"annotate the step with Model"),
        (Any, NAIVE.replace(tzinfo=Custom()), r"time zone of type Custom can't be stored"),
        (datetime, NAIVE.replace(tzinfo=Custom()), r"time zone of type Custom can't be stored"),
        (list[Any], [Room("a")], r"type Room at \[0\] can't"),
        (Room | Any, Suite("a"), r"type Suite can't be stored; annotate the step with Suite"),
        (Anything, Anything({"deep": [object()]}), r"at \.content\.deep\[0\] can't"),
        (Model | Any, Bigger(name="a"), r"annotate the step with Bigger"),
        (Holder, Holder(model=Bigger(name="b")), r"type Bigger at \.model can't"),
        (Holder, Model(name="a"), r"instance of Holder"),
        (Any, 10**5000, r"digits"),
        (int, 10**5000, r"digits"),
        (Any, "a\ud800b", r"'a\\ud800b' holds half of a surrogate pair"),
        (str, "a\ud800b", r"'a\\ud800b' holds half of a surrogate pair"),
        (Any, {"\udfff": 1}, r"surrogate"),
        (Room, Room("\ud800"), r"surrogate"),
        (Path, Path("\udc80"), r"surrogate"),
    ],
    ids=name,
)
def test_what_cannot_be_stored_is_refused_with_its_place(
    annotation: Any, value: Any, message: str | None
) -> None:
    if message is None:
        assert comes_back(annotation, value)
        return
    with pytest.raises(Unserializable, match=message):
        shape_of(annotation).dump(value)


def test_an_attribute_that_is_not_a_field_is_not_lost_in_silence() -> None:
    room = Room("a")
    room.view = "sea"  # type: ignore[attr-defined]
    for annotation in (Room, list[Room], Room | Any):
        with pytest.raises(Unserializable, match="attribute 'view'"):
            shape_of(annotation).dump([room] if annotation == list[Room] else room)


def test_a_private_attribute_that_cannot_be_stored_is_refused() -> None:
    model = Model(name="a")
    model._token = object()  # type: ignore[assignment]
    with pytest.raises(Unserializable, match=r"type object at \._token can't"):
        shape_of(Model).dump(model)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def linked(length: int) -> Link:
    link = Link()
    for _ in range(length - 1):
        link = Link(link)
    return link


@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: (v,), lambda v: {1: v}, lambda v: {"a": v}]
)
def test_a_hundred_levels_are_stored_and_more_are_refused(wrap: Callable[[Any], Any]) -> None:
    assert comes_back(Any, wrap(nested(99)))
    for depth in (101, 102, 500, 5_000):
        with pytest.raises(Unserializable, match="more than 100 deep"):
            shape_of(Any).dump(wrap(nested(depth)))


def test_a_hundred_links_are_stored_and_more_are_refused() -> None:
    for annotation in (Link, Link | Room):
        assert comes_back(annotation, linked(100))
        assert comes_back(list[annotation], [linked(99), linked(99)])  # type: ignore[valid-type]
        for length in (101, 102, 400, 5_000):
            with pytest.raises(Unserializable, match="more than 100 deep"):
                shape_of(annotation).dump(linked(length))


def test_what_contains_itself_is_refused_at_once() -> None:
    twice: list[Any] = []
    twice += [twice, twice]
    looped: dict[str, Any] = {"a": 1}
    looped["self"] = (looped, looped)
    tree = Tree(1)
    tree.children = [tree, tree]
    for annotation, value in ((Any, twice), (Any, looped), (Tree, tree), (Tree | Room, tree)):
        with pytest.raises(Unserializable, match="contains itself"):
            shape_of(annotation).dump(value)
    tree.children.insert(0, object())  # type: ignore[arg-type]
    with pytest.raises(Unserializable):
        shape_of(Tree).dump(tree)


# ---- Data can't pass for a tag, nor name what is not declared ----------------------------------

FORGED: list[Any] = [
    {"$type": "Room", "of": {"name": "a"}},
    {"$tuple": [1]},
    {"$dict": [[1, 2]]},
    {"$tagged": {"$tuple": [1]}},
    {"$": 1},
    {"$unknown": {"$bytes": "!"}},
    {"a": {"$set": [[]]}, "$b": 1},
    [{"x": {"$type": "Room"}}],
    {"$int": "x", "a": (1,)},
]


@pytest.mark.parametrize("value", FORGED)
def test_user_data_that_looks_like_a_tag_comes_back_as_it_was(value: Any) -> None:
    for annotation in (Any, dict[str, Any] | list[Any], Room | Any):
        assert comes_back(annotation, value)
        assert comes_back(annotation, {"deep": [value, {1: value}]})


@pytest.mark.parametrize("key", ["$tagged", "$type", "$dict", "$", "$$"])
def test_hostile_keys_survive_in_closed_annotations(key: str) -> None:
    when = NAIVE.replace(tzinfo=UTC)
    assert comes_back(dict[str, int], {key: 1})
    assert comes_back(dict[str, datetime], {key: when})
    assert comes_back(dict[str, datetime], {key: when.astimezone(OSLO)})
    assert comes_back(dict[str, dict[str, list[int]]], {key: {key: [1]}})


@pytest.mark.parametrize(
    "data",
    [
        b'{"$type":"Suite","of":{"name":"a"}}',
        b'{"$type":"os.system","of":{"command":"ls"}}',
        b'{"$type":"Room"}',
        b'{"$type":["Room"],"of":{}}',
        b'{"$type":"Room","of":{}}',
        b'{"$nothing":1}',
        b'{"$bytes":3}',
        b'{"$set":[[1]]}',
        b'{"$datetime":"never"}',
        b'{"$datetime":"2024-01-01T00:00:00","zone":"../../etc/passwd"}',
        b'{"$datetime":"2024-01-01T00:00:00","zone":"Nowhere/At_All"}',
        b'{"$path":"/a","class":"Popen"}',
        b'{"$timedelta":[1e400,0,0]}',
        b"{",
        b"",
        b"\xff",
    ],
)
def test_data_that_names_what_is_not_declared_or_is_damaged_is_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable):
        shape_of(Room | Any).load(data)


@pytest.mark.parametrize(
    ("annotation", "data"),
    [(int, b'"x"'), (Room, b"{}"), (Room, b"[]"), (int, b""), (Color, b'"green"'), (UUID, b'"x"')],
)
def test_data_that_does_not_fit_a_closed_annotation_is_undecodable(
    annotation: Any, data: bytes
) -> None:
    with pytest.raises(Undecodable, match=annotation.__name__):
        shape_of(annotation).load(data)


def test_loading_runs_no_constructor_of_a_rebuilt_object() -> None:
    data = shape_of(Counting | Room).dump(Counting(1))
    assert shape_of(Counting | Room).load(data).n == 2


def test_two_classes_of_one_name_are_told_apart() -> None:
    shape = shape_of(list[Room | Outer.Room])
    value = [Room("a"), Outer.Room(1)]
    assert comes_back(list[Room | Outer.Room], value)
    names = [item["$type"] for item in json.loads(shape.dump(value))]
    assert names == [f"{__name__}.Room", "Outer.Room"]


def test_a_name_written_before_there_were_two_is_still_found_if_it_is_clear() -> None:
    alone = shape_of(Outer.Room | Any).dump(Outer.Room(1))
    assert alone == b'{"$type":"Room","of":{"number":1}}'
    full = b'{"$type":"Outer.Room","of":{"number":1}}'
    assert shape_of(Outer.Room | Any).load(full) == Outer.Room(1)
    with pytest.raises(Undecodable, match="Room"):
        shape_of(Outer.Room | Room).load(alone)


def test_two_classes_that_no_name_tells_apart_are_refused_with_their_name() -> None:
    def make() -> Any:
        return dataclasses.make_dataclass("Twin", [("x", int)])

    with pytest.raises(BadInput, match="Twin"):
        shape_of(make() | make())


# ---- Code that has changed since ---------------------------------------------------------------


@dataclasses.dataclass
class Grown:
    x: int
    y: list[int] = dataclasses.field(default_factory=lambda: [7])
    z: str = "new"


@attrs.define
class GrownAttrs:
    x: int
    y: list[int] = attrs.field(factory=lambda: [7])
    z: str = "new"


class GrownModel(pydantic.BaseModel):
    x: int
    y: list[int] = pydantic.Field(default_factory=lambda: [7])
    z: str = "new"


class GrownStruct(msgspec.Struct):
    x: int
    y: list[int] = msgspec.field(default_factory=lambda: [7])
    z: str = "new"


class GrownTuple(NamedTuple):
    x: int
    y: list[int] = [7]  # noqa: RUF012 (a NamedTuple has no factories)
    z: str = "new"


@pytest.mark.parametrize("cls", [Grown, GrownAttrs, GrownModel, GrownStruct, GrownTuple])
def test_a_new_field_takes_its_default_and_a_lost_one_is_dropped(cls: Any) -> None:
    tagged = shape_of(cls | Any)
    found = tagged.load(b'{"$type":"%b","of":{"x":1,"gone":2}}' % cls.__name__.encode())
    assert (found.x, found.y, found.z) == (1, [7], "new")
    with pytest.raises(Undecodable, match="x"):
        tagged.load(b'{"$type":"%b","of":{"y":[]}}' % cls.__name__.encode())


def test_a_new_field_of_a_closed_class_takes_its_default() -> None:
    assert shape_of(Grown).load(b'{"x":1,"gone":2}') == Grown(1)


# ---- Any value at all --------------------------------------------------------------------------

ZONES = st.one_of(
    st.none(),
    st.timezones(),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text()),
)
HASHABLE_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.sampled_from(["$type", "$dict", "$tagged", "$", "of"]),
    st.binary(),
    st.datetimes(timezones=ZONES),
    st.times(timezones=ZONES),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
    st.decimals().filter(lambda number: not number.is_snan()),  # has no hash
    st.builds(PurePosixPath, st.text(st.characters(codec="utf-8", exclude_characters="\0"))),
)
HASHABLES = st.recursive(
    HASHABLE_LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)
    ),
    max_leaves=4,
)
KEYS = st.one_of(st.text(), st.sampled_from(["$type", "$dict", "$tuple", "$tagged", "of"]))
VALUES = st.recursive(
    st.one_of(HASHABLES, st.binary().map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(HASHABLES, inner, max_size=3),
        st.sets(HASHABLES, max_size=3),
        st.builds(Anything, inner),
        st.builds(Box, inner),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    assert comes_back(Any | Anything | Box[Any], value)


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(KEYS, inner)),
)


@given(JSON_VALUES)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert comes_back(Any, value)


FINITE = st.floats(allow_nan=False, allow_infinity=False)
CLOSED_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (str, st.text()),
    (bool, st.booleans()),
    (float, FINITE),
    (bytes, st.binary()),
    (datetime, st.datetimes(timezones=ZONES)),
    (time, st.times(timezones=ZONES)),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False)),
    (Color, st.sampled_from(Color)),
    (Rights, st.sampled_from([Rights.READ, Rights.READ | Rights.WRITE])),
    (Point, st.builds(Point, st.integers(), FINITE)),
    (Room, st.builds(Room, st.text(), st.integers())),
    (Pair, st.builds(Pair, st.integers(), st.text())),
    (Guest, st.builds(Guest, st.text(), st.integers())),
    (Counting, st.builds(Counting, st.integers())),
    (Model, st.builds(Model, name=st.text())),
]
Typed = tuple[Any, st.SearchStrategy[Any]]


def wrapped(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def wrap(typed: Typed, other: Typed, how: int) -> Typed:
        annotation, values = typed
        return [
            (list[annotation], st.lists(values, max_size=3)),
            (tuple[annotation, ...], st.lists(values, max_size=3).map(tuple)),
            (tuple[annotation, other[0]], st.tuples(values, other[1])),
            (dict[str, annotation], st.dictionaries(KEYS, values, max_size=3)),
            (dict[int, annotation], st.dictionaries(st.integers(), values, max_size=3)),
            (annotation | None, st.none() | values),
            (annotation | other[0], values | other[1]),
            (Box[annotation], st.builds(Box, values)),
        ][how]

    return st.builds(wrap, inner, inner, st.integers(0, 7))


LEAVES = st.sampled_from(CLOSED_LEAVES)
TYPED = LEAVES | wrapped(LEAVES | wrapped(LEAVES))


@given(st.data())
def test_a_value_of_any_annotation_comes_back_as_it_was(data: st.DataObject) -> None:
    annotation, values = data.draw(TYPED)
    value = data.draw(values)
    assert comes_back(annotation, value)
    assert comes_back(annotation | Any, value)


# ---- Canonical bytes ---------------------------------------------------------------------------


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(item) for key, item in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(JSON_VALUES)
def test_the_order_of_keys_does_not_change_the_canonical_bytes(value: Any) -> None:
    one, other = (msgspec.json.encode(v) for v in (value, shuffled(value)))
    assert canonical(one) == canonical(other)
    assert args_hash(one) == args_hash(other)
    assert same(msgspec.json.decode(canonical(one)), msgspec.json.decode(canonical(other)))
    assert canonical(canonical(one)) == canonical(one)


@given(JSON_VALUES, JSON_VALUES)
def test_different_data_has_different_canonical_bytes(one: Any, other: Any) -> None:
    def plain(value: Any) -> Any:
        return json.dumps(value, sort_keys=True)

    a, b = msgspec.json.encode(one), msgspec.json.encode(other)
    assert (canonical(a) == canonical(b)) == (plain(one) == plain(other))


@pytest.mark.parametrize("around", [lambda n: n, lambda n: [n, 0], lambda n: {"a": [0, n]}])
@pytest.mark.parametrize(
    ("number", "fits"),
    [(2**63 - 1, True), (2**63, False), (-(2**63), True), (-(2**63) - 1, False)],
)
def test_a_number_of_more_than_64_bits_is_a_text_for_readers_that_keep_no_more(
    number, fits, around
) -> None:
    shape = shape_of(Any)
    data, settled = shape.settle(around(number))
    assert json.loads(data) == around(number if fits else {"$int": str(number)})
    assert settled == shape.load(data) == around(number)


def test_huge_numbers_keep_every_digit_in_canonical_bytes() -> None:
    assert canonical(b'{"b":%d,"a":1.0}' % 10**40) == b'{"a":1.0,"b":%d}' % 10**40
    assert args_hash(b'{"a":%d}' % (2**70)) != args_hash(b'{"a":%d}' % (2**70 + 1))


def test_bytes_without_objects_are_canonical_as_they_are() -> None:
    data = b'[ 1, "x" ]'
    assert canonical(data) is data


def test_a_hash_is_sixteen_hex_digits_that_never_change() -> None:
    assert args_hash(b'{"city":"Oslo"}') == "99a8fa9e4312f0bf"


def test_what_is_not_json_has_no_canonical_bytes() -> None:
    with pytest.raises(Undecodable, match="not JSON"):
        canonical(b"{nope")


# ---- Shapes ------------------------------------------------------------------------------------


def test_a_shape_is_made_once_for_an_annotation() -> None:
    assert shape_of(list[Room]) is shape_of(list[Room])
    unhashable = Annotated[int, []]
    assert shape_of(unhashable).settle(3) == (b"3", 3)


def test_an_annotation_that_is_only_a_name_is_refused() -> None:
    with pytest.raises(BadInput, match="'Nobody' is only a name"):
        shape_of(list["Nobody"])  # type: ignore[name-defined]  # noqa: F821


def test_a_class_with_a_field_only_type_checkers_know_still_works() -> None:
    local = dataclasses.make_dataclass("local", [("x", "Nobody"), ("y", int)])
    assert comes_back(local, local((1, 2), 3))
    with pytest.raises(Unserializable, match=r"type Room at \.x can't"):
        shape_of(local).dump(local(Room("a"), 3))


def test_a_settled_value_shares_nothing_with_the_one_given() -> None:
    given_value = {"a": [1]}
    for annotation in (Any, dict[str, list[int]]):
        settled = shape_of(annotation).settle(given_value)[1]
        settled["a"].append(2)
        assert given_value == {"a": [1]}


def test_neither_attrs_nor_pydantic_is_loaded_by_the_codec() -> None:
    script = (
        "import sys; from holdfast.codec import shape_of; from typing import Any; "
        "shape_of(dict[str, Any]).settle({'a': (1,)}); "
        "print({'attr', 'attrs', 'pydantic'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


# ---- Signatures --------------------------------------------------------------------------------


class Key(str):
    """Filled in by whoever makes the call."""

    __slots__ = ()


def plain(city: str, beds: int = 1) -> list[Room]: ...  # type: ignore[empty-body]
def mixed(a: int, /, b: tuple[int, ...] = (), *, c: Room | None = None) -> None: ...
def starred(a: int, *rest: Point, flag: bool = False, **options: datetime) -> None: ...
def untyped(a, b=2, *rest, c=None, **options): ...
def keyed(room: str, *, key: Key, note: str = "") -> None: ...
def keyed_first(key: Key, room: str, beds: int = 1) -> None: ...
def keyed_maybe(room: str, key: Key | None = None) -> None: ...
def keyed_many(keys: list[Key]) -> None: ...
def nothing() -> None: ...
async def later(city: str) -> Room: ...  # type: ignore[empty-body]


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], bytes]] = [
    (plain, ("Oslo",), {}, b'{"city":"Oslo"}'),
    (plain, ("Oslo", 2), {}, b'{"city":"Oslo","beds":2}'),
    (plain, ("Oslo",), {"beds": 2}, b'{"city":"Oslo","beds":2}'),
    (plain, (), {"beds": 2, "city": "Oslo"}, b'{"city":"Oslo","beds":2}'),
    (mixed, (1,), {}, b'{"a":1}'),
    (mixed, (1, (2, 3)), {"c": Room("a")}, b'{"a":1,"b":[2,3],"c":{"name":"a","beds":1}}'),
    (mixed, (1,), {"c": None, "b": ()}, b'{"a":1,"b":[],"c":null}'),
    (starred, (1,), {}, b'{"a":1}'),
    (starred, (1, Point(2), Point(3)), {}, b'{"a":1,"rest":[{"x":2,"y":0.0},{"x":3,"y":0.0}]}'),
    (
        starred,
        (1,),
        {"$x": NAIVE.replace(tzinfo=UTC), "flag": True},
        b'{"a":1,"flag":true,"options":{"$x":"2024-02-29T12:30:00.000001Z"}}',
    ),
    (untyped, ((1,),), {"b": {2}}, b'{"a":{"$tuple":[1]},"b":{"$set":[2]}}'),
    (
        untyped,
        (1, 2, 3, (4,)),
        {"c": 5, "options": 6},
        b'{"a":1,"b":2,"rest":[3,{"$tuple":[4]}],"c":5,"options":{"options":6}}',
    ),
    (keyed, ("attic",), {"note": "x"}, b'{"room":"attic","note":"x"}'),
    (keyed_first, ("attic", 2), {}, b'{"room":"attic","beds":2}'),
    (keyed_maybe, ("attic",), {}, b'{"room":"attic"}'),
    (nothing, (), {}, b"{}"),
    (later, ("Oslo",), {}, b'{"city":"Oslo"}'),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "data"), CALLS)
def test_arguments_are_stored_by_name_and_come_back_as_the_same_call(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], data: bytes
) -> None:
    signature = Signature.of(fn, injected=(Key,))
    assert signature.dump(args, kwargs) == data
    again, named = signature.load(data)
    filled = dict.fromkeys(signature.injected, Key("k"))
    call = inspect.signature(fn).bind(*again, **named, **filled)
    expected = dict(inspect.signature(fn).bind_partial(**filled).arguments)
    stored = [p for p in inspect.signature(fn).parameters.values() if p.name not in filled]
    expected |= inspect.Signature(stored).bind(*args, **kwargs).arguments
    assert same(dict(sorted(call.arguments.items())), dict(sorted(expected.items())))


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (plain, (), {}),
        (plain, (1, 2, 3), {}),
        (plain, ("a",), {"city": "b"}),
        (plain, ("a",), {"town": "b"}),
        (mixed, (), {"a": 1}),
        (mixed, (1, (), 3), {}),
        (starred, (), {"flag": True}),
        (nothing, (1,), {}),
        (later, (), {}),
        (lambda x: x, (), {}),
    ],
)
def test_wrong_arguments_raise_what_calling_the_function_would(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as called:
        fn(*args, **kwargs)
    with pytest.raises(TypeError) as dumped:
        Signature.of(fn).dump(args, kwargs)
    assert str(dumped.value) == str(called.value)


def test_wrong_arguments_never_start_the_function() -> None:
    started = []

    def wrapper(*args: Any, **kwargs: Any) -> None:
        started.append(args)

    wrapper.__wrapped__ = plain  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="city"):
        Signature.of(wrapper).dump((), {})
    with pytest.raises(
        TypeError, match=r"keyed\(\) missing 1 required positional argument: 'room'"
    ):
        Signature.of(keyed, injected=(Key,)).dump((), {})
    assert started == []


def test_an_injected_parameter_is_left_out_and_reported() -> None:
    signature = Signature.of(keyed, injected=(Key,))
    assert signature.injected == ("key",)
    assert signature.names == ("room", "note")
    with pytest.raises(TypeError, match="'key'"):
        signature.dump(("attic",), {"key": "mine"})
    assert Signature.of(keyed).injected == ()
    assert Signature.of(keyed_many, injected=(Key,)).injected == ()


def test_an_injected_parameter_that_has_no_name_in_the_call_is_refused() -> None:
    def bad(key: Key, /, room: str) -> None: ...
    def worse(key: Key, *rooms: str) -> None: ...

    for fn in (bad, worse):
        with pytest.raises(BadInput, match=rf"{fn.__name__}\(key=…\)"):
            Signature.of(fn, injected=(Key,))


def test_errors_name_the_function_and_the_parameter() -> None:
    message = r"^untyped\(a=…\): a value of type object at \.x can't be stored"
    with pytest.raises(Unserializable, match=message):
        Signature.of(untyped).dump(({"x": object()},), {})
    with pytest.raises(Unserializable, match=r"^plain\(beds=…\): .*expected|Expected"):
        Signature.of(plain).dump(("Oslo", "two"), {})
    with pytest.raises(Undecodable, match=r"^plain\(beds=…\): .*Expected `int`, got `str`"):
        Signature.of(plain).load(b'{"city":"Oslo","beds":"two"}')
    with pytest.raises(Undecodable, match=r"^plain\(town=…\): it has no such parameter"):
        Signature.of(plain).load(b'{"city":"Oslo","town":1}')
    with pytest.raises(Undecodable, match="plain"):
        Signature.of(plain).load(b"[1]")


def unknown_parameter(x: int, room: Rom) -> int: ...  # type: ignore[name-defined,empty-body]  # noqa: F821
def unknown_result(x: int) -> list[Rom]: ...  # type: ignore[name-defined]  # noqa: F821


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(BadInput, match=r"unknown_parameter\(room=…\): the annotation 'Rom'.*'Rom'"):
        Signature.of(unknown_parameter)
    with pytest.raises(BadInput, match=r"result of unknown_result: the annotation 'list\[Rom\]'"):
        Signature.of(unknown_result)


def test_the_result_has_the_shape_of_its_annotation() -> None:
    assert Signature.of(plain).returns is shape_of(list[Room])
    assert Signature.of(later).returns.settle(Room("a"))[1] == Room("a")
    assert isinstance(Signature.of(untyped).returns, Shape)


class Service:
    def book(self, room: Room) -> bool: ...  # type: ignore[empty-body]
    def __call__(self, room: Room) -> bool: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("fn", [Service().book, Service(), functools.partial(Service().book)])
def test_methods_and_other_callables_have_signatures(fn: Any) -> None:
    signature = Signature.of(fn)
    data = signature.dump((Room("a"),), {})
    assert data == b'{"room":{"name":"a","beds":1}}'
    assert signature.load(data) == ((Room("a"),), {})
    with pytest.raises(TypeError):
        signature.dump((), {})


@given(st.lists(VALUES, max_size=4), st.dictionaries(st.text(), VALUES, max_size=3))
def test_any_arguments_come_back_as_they_were(args: list[Any], kwargs: dict[str, Any]) -> None:
    def take(*args: Any | Anything | Box[Any], **kwargs: Any | Anything | Box[Any]) -> None: ...

    signature = Signature.of(take)
    again, named = signature.load(signature.dump(tuple(args), kwargs))
    assert same(again, tuple(args))
    assert same(named, kwargs)
