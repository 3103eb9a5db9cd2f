"""JSON from outside becomes what the annotation says, or is refused by the name of its field: also
where the log has tags, because the annotation is an abstract one or leaves a choice."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from holdfast import BadInput, Holdfast, Undecodable, Unserializable, step, task
from holdfast.agent.tooling import BadCall, Tools
from holdfast.codec import Signature, shape_of
from holdfast.log.messages import ToolCall

T = TypeVar("T")


@dataclasses.dataclass
class Nothing:
    """Has no fields."""


@dataclasses.dataclass
class Room:
    city: str
    beds: int = 1


@dataclasses.dataclass
class Suite:
    city: str
    beds: int = 1
    rooms: int = 2


@dataclasses.dataclass
class Computed:
    n: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.n


@attrs.define
class Private:
    _n: int
    m: int = attrs.field(default=1, validator=attrs.validators.gt(0))


@dataclasses.dataclass
class Holder:
    rooms: Sequence[Room]


@dataclasses.dataclass
class Box(Generic[T]):
    content: T
    more: Sequence[T] = ()


class Tagged(msgspec.Struct, tag="tagged", rename="camel"):
    all_rooms: Sequence[Room]


class Row(NamedTuple):
    rooms: Sequence[Room]
    n: int = 0


class Keys(TypedDict, total=False):
    rooms: Sequence[Room]


class Mixed(enum.Enum):
    PAIR = (1, 2)
    TEXT = "text"


class Model(pydantic.BaseModel):
    city: str


class Open(pydantic.BaseModel, extra="allow"):
    __pydantic_extra__: dict[str, int] = pydantic.Field(init=False)
    x: int


Rooms = NewType("Rooms", Sequence[Room])

FITS: list[tuple[Any, Any, Any]] = [
    (Sequence[Room], [{"city": "a"}], [Room("a")]),
    (Iterable[Room], [{"city": "a"}], [Room("a")]),
    (Collection[Room] | None, None, None),
    (Mapping[str, Room], {"x": {"city": "a"}}, {"x": Room("a")}),
    (Mapping[int, Sequence[Room]], {"7": [{"city": "a"}]}, {7: [Room("a")]}),
    (tuple[Sequence[Room], int], [[{"city": "a"}], 3], ([Room("a")], 3)),
    (Rooms, [{"city": "a"}], [Room("a")]),
    (Annotated[Sequence[Room], "all of them", []], [{"city": "a"}], [Room("a")]),
    (Room | Suite, {"city": "a"}, Room("a")),
    (Room | Suite, {"city": "a", "rooms": 3}, Suite("a", 1, 3)),
    (Nothing | Room, {"city": "a"}, Room("a")),
    (Nothing | Room, {}, Nothing()),
    (Room | dict[str, Any], {"city": "a"}, Room("a")),
    (Room | dict[str, Any], {"other": 1}, {"other": 1}),
    (Computed, {"n": 3}, Computed(3)),
    (Private, {"n": 3}, Private(3)),
    (Private, {"_n": 3, "m": 2}, Private(3, 2)),
    (Holder, {"rooms": [{"city": "a"}]}, Holder([Room("a")])),
    (Box[Sequence[Room]], {"content": [{"city": "a"}]}, Box([Room("a")])),
    (Box[Room], {"content": {"city": "a"}, "more": []}, Box(Room("a"), [])),
    (Tagged, {"allRooms": [{"city": "a"}]}, Tagged([Room("a")])),
    (Row, [[{"city": "a"}]], Row([Room("a")])),
    (Row, {"rooms": [], "n": 2}, Row([], 2)),
    (Keys, {"rooms": [{"city": "a"}]}, {"rooms": [Room("a")]}),
    (Mixed, [1, 2], Mixed.PAIR),
    (Mixed, "text", Mixed.TEXT),
    (tuple[Model, Any], [{"city": "a"}, [1]], (Model(city="a"), [1])),
    (dict[str, Any], {"a": [1]}, {"a": [1]}),
    (tuple, [1], (1,)),
    (Open, {"x": 1, "y": 2}, Open(x=1, y=2)),  # type: ignore[call-arg]
]


@pytest.mark.parametrize(("annotation", "data", "value"), FITS, ids=lambda x: repr(x)[:40])
def test_json_that_fits_becomes_what_the_annotation_says(annotation, data, value):
    shape = shape_of(annotation)
    found = shape.accept(json.dumps(data).encode())
    assert found == value
    assert type(found) is type(value)
    # A value that a caller gives as data is stored as the object that it stands for.
    assert shape.load(shape.given(data)) == value
    assert shape.load(shape.given(value)) == value


@pytest.mark.parametrize(
    ("annotation", "data", "says"),
    [
        (Sequence[Room], [{"city": "a"}, {"city": 7}], r"got `int` - at `\$\[1\]\.city`"),
        (Sequence[Room], {"city": "a"}, "Expected `array`, got `object`"),
        (Mapping[str, Room], {"x": {"city": 7}}, r"at `\$\.x\.city`"),
        (Mapping[int, Sequence[Room]], {"seven": []}, "the key 'seven' is no int"),
        (tuple[Sequence[Room], int], [[]], "length 2, got 1"),
        (Room | Suite, {"city": 7}, r"Room: .*city.*; Suite: .*city"),
        (Sequence[Room] | None, [{"beds": 1}], "missing required field `city`"),
        (Computed, {"n": "x"}, r"at `\$\.n`"),
        (Computed, {}, "missing required field `n`"),
        (Private, {"n": "x"}, r"at `\$\.n`"),
        (Private, {"n": 1, "m": 0}, "Private: 'm' must be > 0"),
        (Holder, {"rooms": [{"city": 7}]}, r"at `\$\.rooms\[0\]\.city`"),
        (Box[Sequence[Room]], {"content": [{"city": 7}]}, r"at `\$\.content\[0\]\.city`"),
        (Tagged, {"type": "other", "allRooms": []}, r"'other' - at `\$\.type`"),
        (Row, [[{"city": 7}]], r"at `\$\.rooms\[0\]\.city`"),
        (Keys, {"rooms": 3}, r"Expected `array`, got `int` - at `\$\.rooms`"),
        (Mixed, "other", "Invalid enum value 'other'"),
        (tuple[Model, Any], [{"city": 7}, 1], "valid string"),
        (dict[str, Any], [1], "Expected `object`, got `array`"),
        (Open, {"x": 1, "y": "many"}, "y\n"),
    ],
    ids=lambda x: repr(x)[:40],
)
def test_json_that_does_not_fit_is_refused_by_the_name_of_its_field(annotation, data, says):
    shape = shape_of(annotation)
    with pytest.raises(Undecodable, match=says):
        shape.accept(json.dumps(data).encode())
    with pytest.raises(Unserializable):
        shape.given(data)


def test_arguments_that_are_given_in_any_number_are_read_alike():
    def book(*rooms: Sequence[Room], **by_name: Room) -> None: ...

    args, kwargs = Signature.of(book).accept(
        b'{"rooms":[[{"city":"a"}]],"by_name":{"x":{"city":"b"}}}'
    )
    assert (args, kwargs) == (([Room("a")],), {"x": Room("b")})
    with pytest.raises(Undecodable, match="city"):
        Signature.of(book).accept(b'{"rooms":[[{"city":7}]]}')


def test_numbers_that_pydantic_writes_and_json_does_not_have_come_back(tmp_path):
    class Wild(pydantic.BaseModel, ser_json_inf_nan="constants"):
        f: float

    def make() -> Wild:
        return Wild(f=float("inf"))

    make.__annotations__["return"] = Wild
    make_wild = step(make)

    @task
    def wild() -> str:
        return repr(make_wild())

    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(wild, id="t") == "Wild(f=inf)"
        assert hf.run(wild, id="t") == "Wild(f=inf)"
        assert hf.verify("t").damage == []


class Line(pydantic.BaseModel):
    people: deque[int]


def test_a_queue_whose_length_would_be_lost_is_refused():
    assert shape_of(Line).settle(Line(people=deque([1])))[1] == Line(people=deque([1]))
    with pytest.raises(Unserializable, match="deque"):
        shape_of(Line).dump(Line(people=deque([1], maxlen=2)))


def test_a_model_with_typed_extras_comes_back():
    given = Open(x=1, y=2)
    assert shape_of(Open).settle(given) == (b'{"x":1,"y":2}', given)


def test_an_annotation_that_names_no_model_is_refused_where_it_stands():
    with pytest.raises(BadInput, match="result of make: the annotation BaseModel names no fields"):

        @step
        def make() -> pydantic.BaseModel:
            return Model(city="a")


def test_what_can_be_read_only_once_is_refused_with_advice():
    with pytest.raises(Unserializable, match="read only once; make a list of it"):
        shape_of(Iterable[Model]).dump([Model(city="a")])


@dataclasses.dataclass
class Likewise:
    city: str
    beds: int = 1


@pytest.mark.parametrize(
    ("one", "other", "data"),
    [
        (Room | Likewise, Likewise | Room, b'{"city":"a"}'),
        (list[Room | Likewise], list[Likewise | Room], b'[{"city":"a"}]'),
        (
            Mapping[str, tuple[Room | Likewise, ...]],
            Mapping[str, tuple[Likewise | Room, ...]],
            b'{"all":[{"city":"a"}]}',
        ),
    ],
    ids=str,
)
def test_data_that_fits_two_classes_becomes_the_first_of_its_union(one, other, data):
    assert one == other  # for Python, which does not look at the order
    assert "Room" in str(shape_of(one).accept(data))
    assert "Likewise" in str(shape_of(other).accept(data))


def test_a_model_is_told_the_members_of_a_union_and_calls_with_one():
    @step
    def book(what: Room | Suite, all_of: list[Room | Suite] | None = None) -> str:
        return repr((what, all_of))

    tools = Tools([book])
    (told,) = tools.infos
    members = [{"$ref": "#/$defs/Room"}, {"$ref": "#/$defs/Suite"}]
    assert told.parameters["properties"]["what"] == {"anyOf": members}
    assert told.parameters["$defs"].keys() == {"Room", "Suite"}
    data = {"what": {"city": "a", "rooms": 3}, "all_of": [{"city": "b"}]}
    assert tools.prepared(ToolCall("1", "book", json.dumps(data)))() == repr(
        (Suite("a", 1, 3), [Room("b")])
    )
    with pytest.raises(BadCall, match="city"):
        tools.prepared(ToolCall("1", "book", json.dumps({"what": {"city": 7}})))
