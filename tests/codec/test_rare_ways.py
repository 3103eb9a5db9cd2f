"""Rare values and rare annotations: each takes its own way through the codec."""

from __future__ import annotations

import dataclasses
import inspect
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, NotRequired, Required, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from msgspec import Raw

from holdfast import BadInput, Secret, Undecodable, Unserializable
from holdfast.codec import Signature, from_outside, shape_of, unchecked
from holdfast.codec.change import Changed, compare
from holdfast.codec.classes import must_fit, schema_of, taken_apart
from holdfast.codec.pydantic_types import PydanticAdapter
from holdfast.codec.scalars import MAX_DEPTH, Misfit
from holdfast.codec.tags import has_tags, readable, readable_json
from holdfast.core.lists import FEWEST_BYTES, is_long


class Way(TypedDict):
    city: str
    stops: NotRequired[list[int]]


class Seats(TypedDict, total=False):
    rooms: Required[Sequence[int]]
    more: NotRequired[Sequence[int]]
    city: str


class Rest(TypedDict):
    rooms: NotRequired[Sequence[int]]
    city: str


@dataclasses.dataclass
class Room:
    city: str
    beds: int = 1


@dataclasses.dataclass
class Suite:
    city: Room


class Row(NamedTuple):
    room: Room


class Point(msgspec.Struct, array_like=True, tag="p"):
    x: int
    y: int = 0


class Bare(msgspec.Struct, array_like=True):
    x: int


class Odd:
    """No codec knows it."""


class Model(pydantic.BaseModel):
    city: str
    beds: int = 1


# Tags: whether there are any, and what people read of them.


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"$date": "2026-11-18"}, True),
        ([1, [{"a": [0, {"$tuple": [1]}]}]], True),
        ({"a": {"b": {"$bytes": "eA=="}}, "c": 1}, True),
        ({"x": 1, "$date": "2026-11-18"}, False),
        ({"$date": 7}, False),
        ({"$date": "2026-11-18", "mine": 1}, False),
        ({"$type": "Room", "of": {}, "extra": {}}, True),
        ({"$ref": "#"}, False),
        ([], False),
        ({}, False),
        ("$date", False),
    ],
)
def test_what_was_copied_from_a_log_is_known_at_any_depth(value, found):
    assert has_tags(value) is found
    raw = from_outside(value)
    assert isinstance(raw, Raw) is found
    assert found or raw is value


def test_json_with_tags_goes_in_as_it_is_unless_no_log_could_hold_it():
    assert unchecked(Raw(b'{"$tuple":[1]}')) == b'{"$tuple":[1]}'
    assert unchecked({"$tuple": [1]}) == b'{"$dict":[["$tuple",[1]]]}'
    for depth, is_fine in ((MAX_DEPTH, True), (20_000, False)):
        data = Raw(b"[" * depth + b"]" * depth)
        if is_fine:
            assert unchecked(data) == bytes(data)
        else:
            with pytest.raises(Unserializable, match="nested"):
                unchecked(data)
    for begins in (b'{"$blob":"x","size_bytes":1}', b'{"$lists":[],"value":1}'):
        with pytest.raises(Unserializable, match="begins like a reference"):
            unchecked(Raw(begins))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"$timedelta": [1, 7200, 5]}, "1 day, 2:00:00.000005"),
        ({"$dict": [["a", {"$tuple": [1]}], ["b", 2]]}, {"a": [1], "b": 2}),
        ({"$dict": [[1, 2], ["b", {"$set": [3]}]]}, [[1, 2], ["b", [3]]]),
        ({"$type": "R", "of": {"a": 1}, "extra": {"b": {"$int": "7"}}}, {"a": 1, "b": "7"}),
        ({"$type": "R", "of": [1], "extra": {"b": 2}}, [1]),
        ({"$type": "R", "of": {"a": 1}, "extra": None}, {"a": 1}),
        ({"$time": "09:00", "zone": ""}, "09:00"),
        ({"$time": "09:00", "offset": 60}, "09:00"),
        ({"$type": "R"}, {"$type": "R"}),
        ({"$timedelta": 1}, {"$timedelta": 1}),
        ({"$dict": [[1]]}, {"$dict": [[1]]}),
        ({"$tuple": [1], "mine": 2}, {"$tuple": [1], "mine": 2}),
        ({"a": 1, "$tuple": [1]}, {"a": 1, "$tuple": [1]}),
        ({"a": {"$tuple": [1]}, "b": 2}, {"a": [1], "b": 2}),
        ([1, {"$tuple": [1]}], [1, [1]]),
    ],
)
def test_people_read_a_value_without_its_tags(value, shown):
    assert readable(value) == shown
    data = msgspec.json.encode(value)
    assert msgspec.json.decode(readable_json(data)) == shown
    is_the_same = shown == value
    assert (readable(value) is value) is is_the_same
    assert (readable_json(data) is data) is is_the_same


@pytest.mark.parametrize("data", [b'{"$type"', b'{"$tuple":1e999}', b"", b'"$'])
def test_what_can_not_be_read_is_shown_as_it_is(data):
    assert readable_json(data) is data


# Values that are refused.


def test_a_coroutine_is_refused_and_closed():
    async def forgotten() -> None: ...

    made = forgotten()
    with pytest.raises(Unserializable, match="an `await` is missing for "):
        shape_of(Any).dump([made])
    assert inspect.getcoroutinestate(made) == inspect.CORO_CLOSED


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (Way, {}, "Way has a key 'city', and the value has not"),
        (Way, [], "expected Way, found list"),
        (Way, {"city": 1}, "expected str at .city, found int"),
        (Way, {"city": "x", "stops": [1, "a"]}, r"expected int at .stops\[1\], found str"),
        (dict[str, Room], {"a": Room("x"), "b": 1}, "expected .*Room at .b, found int"),
        (Mapping[str, int], {"a": "x"}, "expected int at .a, found str"),
        (tuple[int, str], (1, 2), r"expected str at \[1\], found int"),
        (tuple[int, ...], (1, 2, "x"), r"expected int at \[2\], found str"),
        (list[int], [1, "x"], r"expected int at \[1\], found str"),
        (Room, Room(city=1), "expected str at .city, found int"),  # type: ignore[arg-type]
        (Suite, Suite(Room(city=1)), "expected str at .city.city, found int"),  # type: ignore[arg-type]
        (int | None, "x", "expected int, found str"),
        (int | str, 1.5, r"expected int \| str, found float"),
        (Room | None, Room(city=1), "expected str at .city, found int"),  # type: ignore[arg-type]
        (float, "x", "expected float, found str"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_by_its_place(annotation, value, says):
    with pytest.raises(Misfit, match=says) as caught:
        must_fit(annotation, value)
    assert str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Way, {"city": "x"}),
        (Way, {"city": "x", "stops": [1], "more": object()}),
        (dict[str, Room], {"a": Room("x")}),
        (tuple[int, str], (1, "x")),
        (tuple[int, ...], ()),
        (float, 1),
        (object, object()),
        (int | None, None),
        (Room | Suite, Suite(Room("x"))),
        (Model, Model(city="x")),
    ],
)
def test_what_fits_is_let_pass(annotation, value):
    assert must_fit(annotation, value) is None


# Whether a value came back as it was.


def partial() -> Room:
    made = Room("x")
    del made.__dict__["beds"]
    return made


def marked() -> Room:
    made = Room("x")
    made.mark = 1  # type: ignore[attr-defined]
    return made


def without(name: str) -> Model:
    made = Model(city="x")
    del made.__dict__[name]
    return made


HOUR = timedelta(hours=1)
NIGHT = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Oslo"))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (defaultdict(list), defaultdict(dict), "its default is lost"),
        ({"a": 1, "b": 2}, {"a": 1}, "it loses a key"),
        ({"a": 1}, {"b": 1}, "it changes at .keys()"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "it changes at .a.b"),
        (deque([1], 3), deque([1], 4), "its length is lost"),
        (deque([1]), deque([2]), "it changes at [0]"),
        ({1, 2}, {1, 3}, "it changes"),
        ({1, 2}, {1.0, 2}, "it changes"),
        ([1, 2], [1, 3], "it changes at [1]"),
        ([Room("x"), Room("y")], [Room("x"), Room("z")], "it changes at [1].city"),
        ([Room("x"), marked()], [Room("x"), Room("x")], "it loses an attribute at [1]"),
        ([Room("x"), partial()], [Room("x"), Room("x")], "it is not whole"),
        (partial(), Room("x"), "it is not whole"),
        (marked(), Room("x"), "it loses an attribute"),
        (Suite(Room("x")), Suite(Room("y")), "it changes at .city.city"),
        (without("beds"), Model(city="x"), "it loses a field at .beds"),
        (Model(city="x"), without("city"), "it loses a field at .city"),
        (Model(city="x"), Model(city="y"), "it changes at .city"),
        (pydantic.SecretStr("x"), pydantic.SecretStr("x"), "it is a secret"),
        (NIGHT.replace(fold=1), NIGHT, "its zone or its fold is lost"),
        (NIGHT, NIGHT.astimezone(UTC), "its zone or its fold is lost"),
        (date(2026, 1, 1), date(2026, 1, 2), "it changes"),
    ],
)
def test_what_changed_on_the_way_is_told_with_its_place(before, after, says):
    with pytest.raises(Misfit) as caught:
        compare(before, after)
    assert str(caught.value) == says
    assert isinstance(caught.value, Changed) is ("whole" not in says)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (defaultdict(list, a=[]), defaultdict(list, a=[])),
        (deque([1], 3), deque([1], 3)),
        ([Room("x")], [Room("x")]),
        (pydantic.SecretStr(""), pydantic.SecretStr("")),
        (NIGHT, NIGHT.replace()),
        (NIGHT.astimezone(timezone(HOUR)), NIGHT.astimezone(timezone(HOUR))),
        (Model(city="x"), Model(city="x")),
    ],
)
def test_what_came_back_as_it_was_is_let_pass(before, after):
    assert compare(before, after) is None


def test_items_of_one_class_are_compared_to_the_same_depth_as_others():
    def nested(depth: int) -> list[Any]:
        made: list[Any] = [Room("x")]
        for _ in range(depth):
            made = [made]
        return made

    assert compare(nested(MAX_DEPTH - 2), nested(MAX_DEPTH - 2)) is None
    with pytest.raises(Misfit, match="nested"):
        compare(nested(MAX_DEPTH + 1), nested(MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Point(1), b'["p",1,0]'),
        ([Point(1, 2)], b'[["p",1,2]]'),
        (Bare(1), b"[1]"),
    ],
)
def test_a_struct_that_is_an_array_in_json_is_written_with_its_tag_and_its_defaults(value, data):
    kind = type(value) if not isinstance(value, list) else list[Point]
    assert shape_of(kind).dump(value) == data
    assert shape_of(kind).load(data) == value


# The schema that a model is shown.


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Odd, {}),
        (dict[str, Odd], {"type": "object", "additionalProperties": {}}),
        (Mapping[str, Odd], {"type": "object", "additionalProperties": {}}),
        (list[Odd], {"type": "array", "items": {}}),
        (tuple[Odd, ...], {"type": "array", "items": {}}),
        (set[Odd], {"type": "array", "items": {}}),
        (tuple[Odd, int], {}),
        (int | Odd, {"anyOf": [{"type": "integer"}, {}]}),
        (Literal["a"], {"enum": ["a"]}),
    ],
)
def test_a_type_that_has_no_schema_as_a_whole_has_one_by_its_parts(kind, schema):
    assert schema_of(kind) == schema


def test_definitions_of_one_name_and_another_content_get_a_name_of_their_own():
    definitions: dict[str, Any] = {}

    def apart(content: Any) -> Any:
        schema = {"anyOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": content}}
        return taken_apart(schema, definitions)["anyOf"][0]["$ref"]

    refs = [apart({"n": each}) for each in (1, 2, 1, 3, 2)]
    assert [ref.removeprefix("#/$defs/") for ref in refs] == ["A", "A_2", "A", "A_3", "A_2"]
    assert definitions == {"A": {"n": 1}, "A_2": {"n": 2}, "A_3": {"n": 3}}
    both = schema_of(Room | Suite)
    assert set(both) == {"anyOf", "$defs"} and {"Room", "Suite"} <= set(both["$defs"])


# JSON from outside.


@pytest.mark.parametrize(
    ("annotation", "data", "says"),
    [
        (Way, {}, "Object missing required field `city`"),
        (Seats, {}, "Object missing required field `rooms`"),
        (Mapping[str, Way], {"a": {}}, "Object missing required field `city` - at `$.a`"),
        (frozenset[Any], [[1]], "unhashable type: 'list'"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_place(annotation, data, says):
    with pytest.raises(Undecodable) as caught:
        shape_of(annotation).accept(msgspec.json.encode(data))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Seats, {"rooms": [1]}),
        (Seats, {"rooms": [1], "more": [2], "city": "x"}),
        (Rest, {"city": "x"}),
        (Rest, {"city": "x", "rooms": []}),
        (Sequence[Rest], [{"city": "x"}]),
    ],
)
def test_a_key_that_need_not_be_there_need_not_though_annotations_are_texts(annotation, value):
    shape = shape_of(annotation)
    assert shape.accept(msgspec.json.encode(value)) == value
    assert shape.load(shape.dump(value)) == value
    assert must_fit(annotation, value) is None


# Pydantic, where it is old, or asked again.


@pytest.mark.parametrize(
    ("version", "is_fine"),
    [("2.10.6", False), ("1.99.9", False), ("2.11.0", True), ("2.11.0b1", True), ("3.0.0", True)],
)
def test_an_old_pydantic_is_refused_in_words(monkeypatch, version, is_fine):
    monkeypatch.setattr(pydantic, "VERSION", version)
    if is_fine:
        assert PydanticAdapter(int).enter(3) == 3
    else:
        with pytest.raises(BadInput, match=f"pydantic {version} is too old: holdfast needs 2.11"):
            PydanticAdapter(int)


class Checked(pydantic.BaseModel):
    n: int
    inner: Any = None

    @pydantic.field_validator("n")
    @classmethod
    def is_even(cls, n: int) -> int:
        if n == 13:
            raise RuntimeError("only what comes from outside is asked")
        if n % 2:
            raise ValueError("odd")
        return n


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


def test_models_are_found_wherever_they_are_held_and_asked_once():
    adapter = PydanticAdapter(Any)
    good, bad, raising = (Checked.model_construct(n=n) for n in (2, 3, 13))
    around: list[Any] = [lambda m: m, lambda m: [m], lambda m: {"a": (1, {"b": m})}, Holder]
    around += [
        lambda m: Checked(n=4, inner=m),
        lambda m: Holder([Holder(m)]),
        lambda m: [0, m, good],
    ]
    for wrap in around:
        assert adapter.must_be_valid(wrap(good)) is None
        assert adapter.must_be_valid(wrap(raising)) is None
        with pytest.raises(Misfit, match="odd"):
            adapter.must_be_valid(wrap(bad))
    circle: list[Any] = [good]
    circle.append(circle)
    assert adapter.must_be_valid(circle) is None
    circle.append(bad)
    with pytest.raises(Misfit, match="odd"):
        adapter.must_be_valid(circle)
    assert adapter.must_be_valid([Checked, bad.__class__]) is None, "classes are no models"


# Functions whose arguments are taken apart.


def takes_a_text(text: str, more: str = "") -> None: ...


@pytest.mark.parametrize("given", [("\ud800",), ("fine", "\ud800"), ("x", "a\udfffb")])
def test_half_a_surrogate_pair_is_refused_by_the_name_of_its_parameter(given):
    signature = Signature.of(takes_a_text)
    with pytest.raises(Unserializable, match="half of a surrogate pair") as refused:
        signature.take(given, {})
    assert ("more" if len(given) == 2 else "text") in str(refused.value)
    assert signature.take(("é", "ü"), {})[0] == '{"text":"é","more":"ü"}'.encode()


def test_a_function_that_tells_nobody_what_it_takes_is_refused():
    with pytest.raises(BadInput, match="max: its parameters can't be read"):
        Signature.of(max)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**200])
def test_ints_of_any_size_are_taken_and_come_back(number):
    def takes(n: int) -> None: ...

    signature = Signature.of(takes)
    data, _ = signature.take((number,), {})
    assert signature.load(data) == ((number,), {})


@pytest.mark.parametrize(("items", "commas"), [([1000] * 8, 7), (["x" * 100] * 12, 11)])
def test_a_list_is_long_by_its_bytes_without_the_commas(items, commas):
    data = msgspec.json.encode(items)
    filler = FEWEST_BYTES - (len(data) - 2 - commas)
    for more, found in ((-1, False), (0, True), (1, True)):
        longer = data[:-1] + b" " * (filler + more) + b"]"
        assert is_long(len(items), longer[: len(data) + filler + more]) is found
    assert not is_long(7, b"x" * 5000)


def test_a_secret_leaves_it_to_others_whether_they_are_equal():
    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None

    assert Secret("x" * 9) == Anything() and Secret("x" * 9) != "x" * 9
