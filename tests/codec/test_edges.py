"""The decisions inside the codec, each as a table: where one more or one less counts, and which
way a value takes."""

from __future__ import annotations

import base64
import re
import typing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from ipaddress import IPv4Address, IPv6Network
from typing import Annotated, Any, NewType, TypedDict
from zoneinfo import ZoneInfo

import annotated_types
import msgspec
import pydantic
import pytest

from holdfast.api.branches import Results
from holdfast.codec import Growing, shape_of
from holdfast.codec.change import _may_become, _same_zone, complete
from holdfast.codec.closed import (
    _as_builtin,
    _is_ambiguous,
    _to_json,
    _write_named,
)
from holdfast.codec.growing import _copied, _Field, _is_plain, _itself, _way
from holdfast.codec.pydantic_types import is_pydantics, model_record
from holdfast.codec.scalars import MAX_DEPTH, TEXTS, Misfit, name_of
from holdfast.codec.secret import MARK, Secret, hidden, without_known
from holdfast.codec.secrets import (
    Arguments,
    is_complete,
    keeping,
    must_be_secret,
    read_secret,
    with_secrets,
)
from holdfast.codec.signature import hints_of
from holdfast.codec.tags import plain_json
from holdfast.core.events import ListGrew
from holdfast.core.lists import FEWEST_ITEMS, pieces
from holdfast.errors import BadInput, Undecodable, Unserializable

NAN = float("nan")


def hours(number: int, *name: str) -> tzinfo:
    return timezone(timedelta(hours=number), *name)


def pydantics(number: int) -> tzinfo | None:
    """An offset as pydantic has it in the times that it reads."""
    read = pydantic.TypeAdapter(datetime).validate_python(f"2024-01-01T00:00:00+0{number}:00")
    return read.tzinfo


def nested(levels: int, inside: Any = 1) -> Any:
    for _ in range(levels):
        inside = [inside]
    return inside


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ([], True),
        ({}, True),
        ([1, 2.5, "a", None, True, [{}], {"a": [1]}], True),
        ([1.0, NAN], False),
        ([NAN, 1.0], False),
        ([1, NAN], False),
        ([float("inf")], False),
        ([2**63 - 1, -(2**63)], True),
        ([1, 2**63], False),
        ([1, -(2**63) - 1], False),
        ([[1, 2**63], 1], False),
        ([(1,)], False),
        ([1, (1,)], False),
        ([{1}], False),
        ([{"a": (1,)}], False),
        ([{"a": 1, 2: 3}], False),
        ([{"$a": 1}], False),
        ([{"a": 1, "b": {"$": 1}}], False),
        ([{"a": "$a"}], True),
        (nested(MAX_DEPTH - 2), True),
        (nested(MAX_DEPTH - 1, "a"), True),
        (nested(MAX_DEPTH), False),
    ],
)
def test_what_is_plain_json_goes_the_fast_way_and_nothing_else_does(value, plain):
    given = value if type(value) in (list, dict) else [value]
    assert plain_json(given) == (msgspec.json.encode(given) if plain else b"")
    if plain:
        assert shape_of(Any).settle(value) == (msgspec.json.encode(value), value)


@pytest.mark.parametrize(
    ("data", "ambiguous"),
    [
        (b'{"a":1}', False),
        (b'["$x"]', False),
        (b'{"a":"$x"}', False),
        (b'{"$x":1}', True),
        (b'[[{"a":{"$x":1}}]]', True),
        (b"[9223372036854775807]", False),
        (b"[9223372036854775808]", True),
        (b'{"a":[1,{"b":-9223372036854775809}]}', True),
        (b'{"a":[1,{"b":-9223372036854775808}]}', False),
        (b'["9223372036854775808"]', False),
        (b'{"9223372036854775808":[]}', False),
    ],
)
def test_natural_json_that_could_be_read_in_two_ways_is_told(data, ambiguous):
    assert bool(_is_ambiguous(data)) is ambiguous


class Ratio(float):
    """As numpy's float64 is a float."""


class Word(str):
    """As numpy's str_ is a str."""


def test_a_number_of_a_library_is_written_as_the_builtin_it_is():
    for value, plain in [(Ratio(1.5), 1.5), (Word("a"), "a")]:
        for written in (_as_builtin(value), _to_json(value)):
            assert (written, type(written)) == (plain, type(plain))
    assert _write_named([IPv4Address("10.0.0.1")]) == b'["10.0.0.1"]'
    with pytest.raises(TypeError, match="a value of type object can't be stored"):
        _to_json(object())


def test_an_address_is_a_text_where_the_annotation_names_it():
    for value in (IPv4Address("10.0.0.1"), IPv6Network("fe80::/64")):
        assert type(value) in TEXTS
        form = TEXTS[type(value)]
        assert form.read(form.write(value)) == value
        assert shape_of(type(value)).settle(value) == (b'"%b"' % str(value).encode(), value)
    assert int not in TEXTS and "str" not in TEXTS


@dataclass
class Half:
    a: int = 1
    b: int = 2
    inner: Any = None


def half(**given: Any) -> Half:
    """An object that has the rest of its fields by its class alone, as msgspec makes them."""
    made = object.__new__(Half)
    for name, value in given.items():
        object.__setattr__(made, name, value)
    return made


@pytest.mark.parametrize(
    "around",
    [
        lambda it: it,
        lambda it: [it],
        lambda it: (1, it),
        lambda it: {"k": it},
        lambda it: {"k": [{"k": it}]},
        lambda it: Half(inner=it),
        lambda it: half(inner=[it]),
    ],
)
def test_an_object_gets_the_fields_it_has_by_its_class_wherever_it_stands(around):
    it = half(a=5)
    complete(around(it))
    assert vars(it) == {"a": 5, "b": 2, "inner": None}


@dataclass
class Stay:
    nights: int = 1
    rooms: dict[str, Half] = field(default_factory=dict)


def test_what_a_class_leaves_to_its_defaults_is_written_out():
    shape = shape_of(Stay)
    given = Stay(rooms={"x": half(a=5)})
    data, back = shape.settle(given)
    assert msgspec.json.decode(data) == {
        "nights": 1,
        "rooms": {"x": {"a": 5, "b": 2, "inner": None}},
    }
    assert back == Stay(1, {"x": Half(5)}) and vars(back.rooms["x"])["b"] == 2


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (set[int], {1, 2}),
        (dict[str, list[int]], {"a": [1]}),
        (Half, Half(3)),
        (list[Half], [Half(3), Half(4)]),
    ],
)
def test_json_from_outside_may_have_tags(annotation, value):
    tagged = shape_of(Any if annotation is not Half else annotation)
    written = b'{"$type":"Half","of":{"a":3,"b":2,"inner":null}}'
    data = written if annotation is Half else None
    if annotation == list[Half]:
        data = b"[%b,%b]" % (written, written.replace(b"3", b"4"))
    found = shape_of(annotation).accept(data or tagged.dump(value))
    assert (found, type(found)) == (value, type(value))


# Errors


@pytest.mark.parametrize(
    ("labels", "place"),
    [(0, ""), (1, " at .1"), (12, " at " + "".join(f".{n}" for n in range(12, 0, -1)))],
)
def test_the_place_of_a_misfit_is_told_from_the_outside_in(labels, place):
    misfit = Misfit("no{at}", *(f".{n}" for n in range(1, labels + 1)))
    assert str(misfit) == f"no{place}"


def test_a_long_place_is_cut_after_twelve():
    misfit = Misfit("no{at}", *(f".{n}" for n in range(1, 14)))
    assert str(misfit) == "no at " + "".join(f".{n}" for n in range(13, 1, -1)) + "…"


UserId = NewType("UserId", int)
T = typing.TypeVar("T")


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (None, "None"),
        (int, "int"),
        (Half, "Half"),
        (list[int], "list[int]"),
        (dict[str, Half], "dict[str, Half]"),
        (typing.Literal["a", 1], "Literal['a', 1]"),
        (int | None, "int | None"),
        (T, "~T"),
        (UserId, "UserId"),
        ("later", "later"),
    ],
)
def test_an_annotation_is_named_as_it_stands_in_the_code(annotation, name):
    assert name_of(annotation) == name


def test_a_pattern_of_bytes_is_refused_with_its_place():
    with pytest.raises(Unserializable, match=r"a pattern of bytes at \[1\] can't be stored"):
        shape_of(Any).dump([1, re.compile(b"a")])
    assert shape_of(Any).settle(re.compile("a", re.I))[1] == re.compile("a", re.I)


def test_a_class_that_is_not_declared_is_not_made():
    with pytest.raises(Undecodable, match="it holds a Other, which the annotation does not"):
        shape_of(Any).load(b'[{"$type":"Other","of":{}}]')


def test_the_first_annotation_that_is_unknown_is_named():
    def visit(city, first, second):
        return city, first, second

    visit.__annotations__ = {"city": "str", "first": "Lost", "second": "LostToo"}
    with pytest.raises(BadInput, match=r"visit\(first=…\): the annotation 'Lost' can't be"):
        hints_of(visit)


# Secrets


@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        ("(?P<secret>[a-z]+)=x", "abc=x", f"{MARK}=x"),
        ("k=(?P<secret>[a-z]+);", "a k=abc; b", f"a k={MARK}; b"),
        ("k=(?P<secret>[a-z]+)?;", "a k=; b", f"a {MARK} b"),
        ("k=[a-z]+", "a k=abc b", f"a {MARK} b"),
        ("(?P<secret>[a-z]+)!", "ab!cd!", f"{MARK}!{MARK}!"),
    ],
)
def test_a_pattern_hides_its_group_or_all_of_it(pattern, text, shown):
    assert hidden(re.compile(pattern), text) == shown


@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_inside_of_base64_is_found_whatever_is_around_it(before, encode):
    value = "hunter\u00ff?>22"
    data = value.encode()
    text = encode(b"x" * before + data + b"yyyy").decode()
    start, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
    assert without_known(text, [value]) == text[:start] + MARK + text[end:]


def test_the_longest_spelling_goes_first():
    assert without_known("x  hunter22  y", ["  hunter22  "]) == f"x{MARK}y"
    assert without_known("a\nb hunter-one hunter-two", ["hunter-one hunter-two"]) == f"a\nb {MARK}"
    assert without_known("abcdefg abcdef abcde", ["abcdef", "abcdefg", "abcde"]) == (
        f"{MARK} {MARK} abcde"
    )


def test_pydantic_takes_a_secret_a_text_or_its_name():
    adapter = pydantic.TypeAdapter(Secret)
    named = adapter.validate_python({"$secret": "TOKEN"})
    assert named == Secret.named("TOKEN") and named.name == "TOKEN"
    assert adapter.validate_python("hunter22") == Secret("hunter22")
    for wrong in ({"$secret": 1}, {"$secret": "A", "b": 1}, {}, 1):
        with pytest.raises(pydantic.ValidationError):
            adapter.validate_python(wrong)


def test_a_secret_is_read_by_its_name_or_by_a_number_that_is_kept():
    one, two = Secret("hunter22"), Secret("hunter23")
    assert read_secret({"$secret": "TOKEN"}).name == "TOKEN"
    with keeping([one, two]):
        assert [read_secret({"$secret": n}) for n in (0, 1)] == [one, two]
        for wrong in (-1, 2, 3, "", True, None, 1.0):
            with pytest.raises(Misfit, match="was left out of the log"):
                read_secret({"$secret": wrong})
    with pytest.raises(Misfit, match="was left out of the log"):
        read_secret({"$secret": 0})


def test_arguments_are_complete_if_nothing_is_beside_them_or_missing():
    assert is_complete(b'{"a":1}') is True
    assert is_complete(Arguments(b'{"a":1}')) is True
    assert is_complete(with_secrets(b'{"a":{"$secret":0}}', [Secret("hunter22")])) is False
    assert is_complete(with_secrets(b'{"a":1}', [])) is True
    assert is_complete(b'{"a":{"$redacted":true}}') is False
    assert is_complete(b'{"a":{"$secret":3}}') is False
    assert is_complete(b'{"a":{"$secret":"TOKEN"}}') is True


class Account(TypedDict):
    token: Secret


class Login(msgspec.Struct):
    token: Secret
    name: str = ""


Token = NewType("Token", Secret)
SECRET = Secret("hunter22")


@pytest.mark.parametrize(
    ("annotation", "good", "bad", "place"),
    [
        (Secret, SECRET, "plain", ""),
        (Annotated[Secret, "x"], SECRET, "plain", ""),
        (Annotated[list[Secret], int], [SECRET], ["plain"], "[0]"),
        (Token, SECRET, "plain", ""),
        (list[Token], [SECRET], [SECRET, "plain"], "[1]"),
        (Secret | None, None, None, None),
        (Secret | None, SECRET, "plain", ""),
        (Secret | Any, "plain", None, None),
        (Secret | Account, {"token": SECRET}, None, None),
        (dict[str, Secret], {"a": SECRET}, {"a": "plain"}, ".a"),
        (dict[Secret, int], {SECRET: 1}, {"plain": 1}, ".keys()"),
        (tuple[Secret, str], (SECRET, "plain"), ("plain", "plain"), "[0]"),
        (tuple[str, Secret], ("plain", SECRET), ("plain", "plain"), "[1]"),
        (tuple[Secret, ...], (SECRET, SECRET), (SECRET, "plain"), "[1]"),
        (tuple[Secret, Any], [SECRET, "plain"], ["plain", "plain"], "[0]"),
        (Account, {"token": SECRET}, {"token": "plain"}, ".token"),
        (Account, {}, {"token": 1}, ".token"),
        (Login, Login(SECRET), Login("plain"), ".token"),  # type: ignore[arg-type]
        (list[Login], [Login(SECRET)], [Login("plain")], "[0].token"),  # type: ignore[arg-type]
    ],
)
def test_where_the_annotation_says_secret_nothing_else_will_do(annotation, good, bad, place):
    must_be_secret(annotation, good)
    if place is not None:
        with pytest.raises(Misfit, match="expected a Secret") as caught:
            must_be_secret(annotation, bad)
        assert "".join(caught.value.trail[::-1]) == place


class Profile(pydantic.BaseModel):
    token: Secret
    age: int = 0
    city: str = ""


def test_what_pydantic_says_of_a_value_with_a_secret_has_no_input_in_it():
    shape = shape_of(Profile)
    with pytest.raises(Undecodable) as caught:
        shape.accept(b'{"token":"hunter22","age":"not-a-number"}')
    assert "age" in str(caught.value)
    assert "not-a-number" not in str(caught.value) and "hunter22" not in str(caught.value)


def test_constraints_are_pydantics_where_it_is_loaded():
    assert is_pydantics(annotated_types.Gt(1)) is True
    assert is_pydantics(annotated_types.MinLen(1)) is True
    assert is_pydantics(pydantic.Field(gt=1)) is True
    assert is_pydantics(Profile) is True
    assert is_pydantics(annotated_types.Gt) is False
    assert is_pydantics("text") is False and is_pydantics(int) is False


class Trip(pydantic.BaseModel):
    city: str
    nights: int = 1


def test_a_model_that_is_taken_apart_still_knows_which_fields_were_given():
    apart, build = model_record(Trip)
    whole, part = Trip(city="Oslo", nights=1), Trip(city="Oslo")
    assert apart(whole) == {"of": {"city": "Oslo", "nights": 1}}
    assert apart(part) == {"of": {"city": "Oslo", "nights": 1}, "set": ["city"]}
    for model in (whole, part):
        back = build(apart(model))
        assert back == model and back.model_fields_set == model.model_fields_set
    with pytest.raises(Misfit, match="Trip has a field 'city', and the data has not"):
        build({"of": {"nights": 1}})
    assert build({"of": {"city": "Oslo"}}).nights == 1


# Lists that grow


class Frozen(msgspec.Struct, frozen=True):
    text: str
    n: Any = 1


class Loose(msgspec.Struct):
    text: str


class NoEq(msgspec.Struct, frozen=True, eq=False):
    text: str


class OwnEq(msgspec.Struct, frozen=True):
    text: str

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("item", "way", "numbers"),
    [
        ("a", _itself, []),
        (None, _itself, []),
        (True, _itself, [((), bool)]),
        (1, _itself, [((), int)]),
        (0, _itself, [((), int)]),
        (1.5, _itself, [((), float)]),
        (0.0, None, None),
        (-0.0, None, None),
        ({}, dict.copy, []),
        ({"a": "b", "n": 2}, dict.copy, [(("n",), int)]),
        ({"a": {"n": 2}}, _copied, [(("a", "n"), int)]),
        ({"a": ["b", 2]}, _copied, [(("a", 1), int)]),
        ({1: "b"}, None, None),
        ({"a": 0.0}, None, None),
        ({"a": (1,)}, None, None),
        ([], _copied, []),
        ([1, [2.5]], _copied, [((0,), int), ((1, 0), float)]),
        ([0.0], None, None),
        (["a", object], None, None),
        (Frozen("a"), _itself, [((_Field("n"),), int)]),
        (Frozen("a", [1]), None, None),
        (Frozen("a", 0.0), None, None),
        (Loose("a"), None, None),
        (NoEq("a"), None, None),
        (OwnEq("a"), None, None),
        ((1,), None, None),
        ({"a"}, None, None),
    ],
)
def test_how_an_item_is_copied_and_where_its_numbers_stand(item, way, numbers):
    found: list[Any] = []
    assert _way(item, (), found) == way
    assert numbers is None or found == numbers


def test_only_structs_that_are_what_they_hold_are_shared():
    kinds = [Frozen, Loose, NoEq, OwnEq]
    assert [_is_plain(kind) for kind in kinds] == [True, False, False, False]


class Counting:
    """A shape that counts how often the codec is asked."""

    def __init__(self, annotation: Any) -> None:
        self._shape = shape_of(annotation)
        self.asked = 0

    def settle(self, value: Any) -> tuple[bytes, Any]:
        self.asked += 1
        return self._shape.settle(value)

    def load(self, data: bytes) -> Any:
        return self._shape.load(data)


PAD = "p" * 200


def grown(kind: Any, *lists: list[Any]) -> tuple[Counting, list[Any]]:
    shape, growing = Counting(kind), Growing(dict)
    return shape, [growing.find(value, shape) for value in lists]


def test_a_list_that_grows_is_given_to_the_codec_item_by_item():
    base = [{"text": f"{n}{PAD}"} for n in range(FEWEST_ITEMS)]
    shape, (one, two, same) = grown(list[Any], base, [*base, {"n": 1}], [*base, {"n": 1}])
    assert shape.asked == 2, "once for the whole, once for the new item"
    assert two.version.base is one.version and two.version.items == b'{"n":1}'
    assert (one.version.length, two.version.length) == (FEWEST_ITEMS, FEWEST_ITEMS + 1)
    assert same is two and two.copies() == [*base, {"n": 1}]


def test_items_that_only_the_codec_can_compare_are_recognised_too():
    base = [(f"{n}{PAD}",) for n in range(FEWEST_ITEMS)]
    _, (one, two) = grown(list[Any], base, [*base, (1,)])
    assert two.version.base is one.version
    assert two.copies() == [*base, (1,)] and two.begins([*base, (1,), (2,)])
    assert not two.begins([*base, (2,)])


def test_copies_are_deep_where_an_older_item_is():
    deep = [{"text": PAD, "in": {"n": [n]}} for n in range(FEWEST_ITEMS)]
    _, (_, two) = grown(list[Any], deep, [*deep, {"flat": "yes"}])
    two.copies()[0]["in"]["n"].append("changed")
    two.copies()[-1]["flat"] = "changed"
    assert two.copies() == [*deep, {"flat": "yes"}]


def test_a_list_shares_the_texts_it_was_given():
    texts = [f"{n}{PAD}" for n in range(FEWEST_ITEMS)]
    base = [{"text": text} for text in texts]
    more = {"text": f"more {PAD}"}
    _, (one, two) = grown(list[Any], base, [*base, more])
    assert two._items[-1]["text"] is more["text"] and two._items[-1] is not more
    assert one.begins(base)
    assert all(kept["text"] is text for kept, text in zip(one._items, texts, strict=True))


def event(digest: str, length: int, base: str, items: bytes = b"[1]") -> ListGrew:
    return ListGrew(digest=digest, length=length, base=base, items=msgspec.Raw(items))


def test_a_list_is_recalled_from_the_one_it_goes_on_from():
    base = [{"text": f"{n}{PAD}"} for n in range(FEWEST_ITEMS)]
    shape, growing = shape_of(list[Any]), Growing(dict)
    known = growing.find(base, shape)
    assert known is not None
    start = known.version.digest
    lists = {"b": event("b", 9, start, b'["b"]'), "c": event("c", 11, "b", b'["c",3]')}
    found = growing.recall("c", shape, lists, lambda each: bytes(each.items)[1:-1])
    assert found == [*base, "b", "c", 3]
    again = growing.find([*base, "b", "c", 3, 4], shape)
    assert again is not None and again.version.base is not None
    assert (again.version.base.length, again.version.base.base) == (11, None)
    assert again.version.base.items == b"", "the log has it"
    assert growing.recall("x", shape, lists, lambda each: b"") is None
    assert growing.recall(start, shape_of(list[str]), {}, lambda each: b"") is None


@pytest.mark.parametrize(("one", "two"), [(9, 9), (9, 10), (10, 9)])
def test_lists_that_go_on_from_each_other_have_no_end_and_are_not_followed(one, two):
    lists = {"a": event("a", one, "b"), "b": event("b", two, "a")}
    assert Growing(dict).recall("a", shape_of(list[Any]), lists, lambda each: b"1") is None
    assert pieces(lists, "a") is None
    sound = {"a": event("a", 9, ""), "b": event("b", 10, "a")}
    assert [each.digest for each in pieces(sound, "b") or ()] == ["a", "b"]
    assert pieces(sound, "c") is None


def test_a_list_is_known_by_the_shape_it_was_handed_over_with():
    base = [{"n": n, "text": PAD} for n in range(FEWEST_ITEMS)]
    growing, one, two = Growing(dict), shape_of(list[Any]), shape_of(list[dict[str, Any]])
    first, second = growing.find(base, one), growing.find(base, two)
    assert first is not None and second is not None
    assert (first.shape, second.shape) == (one, two)
    longer = growing.find([*base, {"n": 1}], one)
    assert longer is not None and longer.shape is one and longer.version.base is first.version


class Loaded(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    city: str


def test_a_model_with_more_than_its_fields_is_not_written_without_it():
    given = Loaded(city="Oslo")
    object.__setattr__(given, "__dict__", {"city": "Oslo", "more": 1})
    with pytest.raises(Unserializable, match="more"):
        shape_of(Loaded).settle(given)


MOMENT = datetime.fromisoformat("2024-10-27T02:30:00")
OSLO = ZoneInfo("Europe/Oslo")


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (MOMENT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=UTC), True),
        (MOMENT.replace(tzinfo=OSLO), MOMENT.replace(tzinfo=OSLO), True),
        (MOMENT.replace(tzinfo=OSLO), MOMENT.replace(tzinfo=OSLO, fold=1), False),
        (MOMENT.replace(tzinfo=hours(2)), MOMENT.replace(tzinfo=pydantics(2)), True),
        (MOMENT.replace(tzinfo=hours(2)), MOMENT.replace(tzinfo=pydantics(3)), False),
        (MOMENT.replace(tzinfo=hours(2)), MOMENT.replace(tzinfo=pydantics(2), fold=1), False),
        (MOMENT.replace(tzinfo=hours(2)), MOMENT.replace(tzinfo=OSLO), False),
        (MOMENT.replace(tzinfo=OSLO), MOMENT.replace(tzinfo=pydantics(2)), False),
        (MOMENT.replace(tzinfo=hours(2, "X")), MOMENT.replace(tzinfo=pydantics(2)), False),
    ],
)
def test_a_moment_comes_back_in_its_zone(before, after, same):
    assert _same_zone(before, after) is same


class Wide(int):
    """As numpy's int64 would be an int."""


@pytest.mark.parametrize(
    ("kind", "value", "may"),
    [
        (tuple, Results([1]), True),
        (list, Results([1]), True),
        (dict, Results([1]), False),
        (tuple, [1], False),
        (list, [1], True),
        (float, 3, True),
        (float, True, False),
        (int, True, False),
        (float, 2**53 + 1, False),
        (float, 2**1022, True),
        (float, 2**1023, False),
        (float, "3", False),
        (int, Wide(3), True),
        (str, Word("a"), True),
        (set, {1}, False),
        (int, 3.0, False),
    ],
)
def test_a_value_comes_back_as_another_type_only_where_the_annotation_says_so(kind, value, may):
    assert _may_become(kind, value) is may


def test_what_gather_returned_may_be_a_tuple_or_a_list():
    assert shape_of(tuple[int, ...]).settle(Results([1, 2])) == (b"[1,2]", (1, 2))
    assert shape_of(list[int]).settle(Results([1, 2])) == (b"[1,2]", [1, 2])
