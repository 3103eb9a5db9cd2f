"""How the values of one annotation become bytes, and come back.

The second part reads JSON from outside, which has no tags.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from holdfast.codec import pydantic_types
from holdfast.codec.classes import (
    Declared,
    hints_of,
    is_typed_dict,
    made_once,
    reach,
    record_of,
    required_keys,
)
from holdfast.codec.closed import Closed, NaturalWay, closed_way
from holdfast.codec.pydantic_types import PydanticAdapter
from holdfast.codec.scalars import TOO_DEEP, Misfit, decode, encode, label, name_of
from holdfast.codec.secrets import Unkept, must_be_secret
from holdfast.codec.tags import Open, has_tags
from holdfast.core.decoding import is_too_deep
from holdfast.core.lists import FEWEST_BYTES, LISTED, REFERENCES, for_hashing
from holdfast.errors import HoldsSecret, Undecodable, Unserializable


class Shape:
    """How the values of one annotation become bytes, and come back.

    >>> shape = shape_of(list[int])
    >>> shape.dump([1, 2])
    b'[1,2]'
    >>> shape.load(b"[1,2]")
    [1, 2]
    """

    __slots__ = ("_way", "annotation")

    def __init__(self, annotation: Any, way: Outside | Closed | NaturalWay | _Strict) -> None:
        self.annotation: Any = annotation
        self._way = way

    @property
    def bare(self) -> frozenset[type]:
        """The types whose values come back as they are; an int, if it has no more than 64 bits."""
        bare: frozenset[type] = self._way.bare
        return bare

    @property
    def is_open(self) -> bool:
        """Whether what it writes has tags, so that nothing else looks like one."""
        return not isinstance(self._way, Closed | NaturalWay)

    def dump(self, value: Any) -> bytes:
        """The value as compact JSON, or `Unserializable` that says where and why not.

        >>> shape_of(Any).dump({"a": (1, 2)})
        b'{"a":{"$tuple":[1,2]}}'
        >>> shape_of(list[str]).dump(["a", b"b"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        holdfast.errors.Unserializable: ... list[str]: expected str at [1], found bytes
        """
        try:
            return self._way.dump(value)
        except Exception as error:
            raise _refusal(value, error) from error.__cause__

    def load(self, data: bytes) -> Any:
        """The value that `dump` was given, or `Undecodable`.

        >>> shape_of(int).load(b'"x"')
        Traceback (most recent call last):
        holdfast.errors.Undecodable: stored data does not fit int: Expected `int`, got `str`
        """
        try:
            return self._way.load(data)
        # Each fault of the data shows in a way of its own, and all mean the same.
        except Exception as error:
            what = f"stored data does not fit {name_of(self.annotation)}"
            raise Undecodable(f"{what}: {_said(error)}") from error

    def accept(self, data: bytes) -> Any:
        """The value of some JSON from outside: of a model, a person, a command line.

        >>> shape_of(list[int]).accept(b'["x"]')
        Traceback (most recent call last):
        holdfast.errors.Undecodable: Expected `int`, got `str` - at `$[0]`
        """
        try:
            return self._way.accept(data)
        except Exception as error:
            raise Undecodable(_said(error)) from error

    def given(self, value: Any) -> bytes:
        """A value from outside as it goes into the log: an object, or plain data of one.

        >>> shape_of(tuple[int, ...]).given([1, 2])
        b'[1,2]'
        """
        if type(value) is Raw:  # see `from_outside`
            return self._accepted(bytes(value))
        is_plain = type(value) in (dict, list, str)
        if is_plain and isinstance(self._way, Outside):
            try:
                data = shape_of(Any).dump(value)
            except Unserializable:  # there are objects in it
                return self.settle(value)[0]
            return self._accepted(data)
        try:
            return self.settle(value)[0]
        except HoldsSecret:
            raise
        except Unserializable:
            if not is_plain:
                raise
            return self._accepted(shape_of(Any).dump(value))

    def _accepted(self, data: bytes) -> bytes:
        try:
            return self.settle(self.accept(data))[0]
        except Undecodable as error:
            raise Unserializable(str(error)) from None

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The bytes, and the value as a replay will see it; that one is to be used from here on.

        >>> shape_of(tuple[int, ...]).settle((1, 2))
        (b'[1,2]', (1, 2))
        """
        try:
            return self._way.settle(value)
        except Exception as error:
            raise _refusal(value, error) from error.__cause__


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.DecodeError | Misfit) else repr(error)


def _refusal(value: Any, error: Exception) -> Unserializable:
    match error:
        case Unkept():
            return HoldsSecret(str(error))
        case Misfit():
            return Unserializable(str(error))
        case UnicodeEncodeError():
            text = error.object[max(error.start - 10, 0) : error.end + 10]
            return Unserializable(
                f"the text {text!a} holds half of a surrogate pair, which UTF-8 can't store"
            )
        case RecursionError():
            return Unserializable(TOO_DEEP.replace("{at}", ""))
    return Unserializable(f"a value of type {type(value).__name__} can't be stored: {error!r}")


def shape_of(annotation: Any) -> Shape:
    """The shape of an annotation. None at all (`inspect.Parameter.empty`) counts as `Any`.

    >>> shape_of(Any).settle({1, 2})
    (b'{"$set":[1,2]}', {1, 2})
    """
    return _known_shape(annotation)


def _make_shape(annotation: Any) -> Shape:
    if annotation is inspect.Parameter.empty:
        annotation = Any
    declared = reach(annotation)
    tagged = Open(declared.classes)
    if declared.secret:
        return Shape(annotation, _Strict(annotation, tagged, declared))
    return Shape(
        annotation, closed_way(annotation, tagged, declared) or Outside(annotation, tagged)
    )


def from_outside(value: Any) -> Any:
    """Decoded JSON of a person, for `Shape.given`. A value copied from a log has tags, and only an
    annotation can read those, so it stays JSON.

    >>> shape_of(Any).given(from_outside({"$tuple": [1, 2]}))
    b'{"$tuple":[1,2]}'
    >>> shape_of(Any).given({"$tuple": [1, 2]})
    b'{"$dict":[["$tuple",[1,2]]]}'
    """
    return Raw(encode(value)) if has_tags(value) else value


def unchecked(value: Any) -> bytes:
    """A value from outside as it goes into the log, where the code that knows its type is not at
    hand. JSON with tags goes in as it is: the process that has the code reads it, and checks it.

    >>> unchecked(from_outside({"$type": "Room", "of": {"beds": 2}}))
    b'{"$type":"Room","of":{"beds":2}}'
    """
    if type(value) is not Raw:
        return shape_of(Any).dump(value)
    data = bytes(value)
    if is_too_deep(data):
        raise Unserializable(TOO_DEEP.replace("{at}", ""))
    if data.startswith(REFERENCES):
        raise Unserializable("it begins like a reference, and only the log itself may hold one")
    return data


class _Strict:
    """The open way for an annotation with `Secret` in it, where nothing else will do."""

    bare: frozenset[type] = frozenset()

    def __init__(self, annotation: Any, tagged: Open, declared: Declared) -> None:
        self._annotation = annotation
        self._tagged = tagged
        self._adapter = None
        if declared.pydantic and not declared.loose:
            self._adapter = PydanticAdapter.of(annotation, hides=True)

    def load(self, data: bytes) -> Any:
        value = self._tagged.load(data)
        must_be_secret(self._annotation, value)
        return value

    def accept(self, data: bytes) -> Any:
        return self.load(data) if self._adapter is None else self._adapter.accept(data)

    def dump(self, value: Any) -> bytes:
        return self.settle(value)[0]

    def settle(self, value: Any) -> tuple[bytes, Any]:
        given = value if self._adapter is None else self._adapter.enter(value)
        must_be_secret(self._annotation, given)
        return self._tagged.settle(given)


_known_shape = made_once(_make_shape)


_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def canonical(data: bytes) -> bytes:
    """The same JSON with the keys of its objects sorted, for hashing.

    >>> canonical(b'{"b":1,"a":2}')
    b'{"a":2,"b":1}'
    """
    if b"{" not in data:
        return data
    try:
        return _encode_sorted(decode(data))
    except (msgspec.DecodeError, RecursionError) as error:
        raise Undecodable(f"it is not JSON: {error}") from error


def args_hash(data: bytes) -> str:
    """A short name for the content of some JSON: 16 hex digits.

    >>> args_hash(b'{"city":"Oslo","n":2}') == args_hash(b'{"n":2,"city":"Oslo"}')
    True
    """
    if len(data) >= FEWEST_BYTES or data.startswith(LISTED):
        data = for_hashing(data)
    # Where there is no comma no object has a second key, and there is nothing to sort.
    return hashlib.sha256(canonical(data) if b"," in data else data).hexdigest()[:16]


def shape_of_value(value: Any) -> Shape:
    """The shape of a value that has no annotation: its own type says as much, and so do the items
    of a list.

    >>> shape_of_value([1, 2]).annotation
    list[int]
    """
    kind = getattr(type(value), "holdfast_plain", type(value))
    if kind in (list, set, frozenset) and len({type(item) for item in value}) == 1:
        return shape_of(kind[type(next(iter(value)))])
    return shape_of(kind)


# JSON from outside, for annotations that neither msgspec nor pydantic reads whole.
#
# Such an annotation names its classes all the same: `Sequence[Order]`, `Mapping[str, Order]`, a
# union of two dataclasses, a class with private fields. The log has tags there, which say what is
# what. A person, a model or a command line writes none. So the annotation is walked part by part,
# msgspec or pydantic reads every part that it knows, and data that does not fit is refused by the
# name of its field.

_ARRAYS: dict[Any, Callable[[list[Any]], Any]] = {
    **dict.fromkeys((list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable), list),
    **dict.fromkeys((set, abc.Set, abc.MutableSet), set),
    frozenset: frozenset,
    tuple: tuple,
}
_OBJECTS = (dict, abc.Mapping, abc.MutableMapping)
_MARKS = (typing.Required, typing.NotRequired)
_ANYTHING = (Any, object, inspect.Parameter.empty)


class Outside:
    """Stored data has tags, as `Open` writes them. JSON from outside is read as annotated."""

    def __init__(self, annotation: Any, tagged: Open) -> None:
        self._annotation = annotation
        self.bare: frozenset[type] = tagged.bare
        self.dump: Callable[[Any], bytes] = tagged.dump
        self.load: Callable[[bytes], Any] = tagged.load
        self.settle: Callable[[Any], tuple[bytes, Any]] = tagged.settle

    def accept(self, data: bytes) -> Any:
        """The value of some JSON from outside, or `Misfit`."""
        # It may have been copied from a log, tags and all.
        return self.load(data) if b'"$' in data else from_json(self._annotation, decode(data))


@made_once
def _whole(annotation: Any) -> Closed | NaturalWay | None:
    """The way of a part that msgspec or pydantic knows; None for one that has to be walked."""
    declared = reach(annotation)
    if declared.hides:
        return None
    return closed_way(annotation, Open(declared.classes), declared)


def from_json(annotation: Any, data: Any, at: str = "$") -> Any:
    """The value of some decoded JSON, or `Misfit` that names the field."""
    annotation = _plain(annotation)
    if annotation in _ANYTHING or isinstance(annotation, typing.TypeVar):
        return data
    if (way := _whole(annotation)) is not None:
        return _read(way, data, at)
    kind, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if kind in (typing.Union, types.UnionType):
        return _member(annotation, data, at)
    if kind in _ARRAYS:
        return _array(kind, inner, _must_be(list, data, at), at)
    if kind in _OBJECTS:
        of_key, of_value = inner or (str, Any)
        return {
            _key(of_key, key, at): from_json(of_value, item, at + label(key))
            for key, item in _must_be(dict, data, at).items()
        }
    if is_typed_dict(kind):
        return _typed_dict(kind, _must_be(dict, data, at), at)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_member(kind, data, at)
    if isinstance(kind, type) and _fields_of(kind):
        return _object(annotation, data, at)
    return data


def _plain(annotation: Any) -> Any:
    """An annotation without what says nothing of the data: `Annotated`, aliases, `Required`."""
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated and not any(
            map(pydantic_types.is_pydantics, annotation.__metadata__)
        ):
            annotation = annotation.__origin__
        elif origin in _MARKS:
            (annotation,) = typing.get_args(annotation)
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and not isinstance(annotation, type):
            annotation = annotation.__value__
        else:
            return annotation


def _read(way: Closed | NaturalWay, data: Any, at: str) -> Any:
    try:
        return way.accept(encode(data))
    except (msgspec.DecodeError, Misfit) as error:
        said = str(error)
    if " - at `$" in said:
        raise Misfit(said.replace(" - at `$", f" - at `{at}", 1))
    raise _misplaced(said, at)


def _misplaced(said: str, at: str) -> Misfit:
    return Misfit(said if at == "$" else f"{said} - at `{at}`")


_NAMES = {dict: "object", list: "array", type(None): "null", float: "float", bool: "bool"}


def _must_be(kind: type, data: Any, at: str) -> Any:
    if type(data) is not kind:
        found = _NAMES.get(type(data), type(data).__name__)
        raise _misplaced(f"Expected `{_NAMES[kind]}`, got `{found}`", at)
    return data


def _array(kind: Any, inner: tuple[Any, ...], data: list[Any], at: str) -> Any:
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        if len(data) != len(inner):
            raise _misplaced(f"Expected `array` of length {len(inner)}, got {len(data)}", at)
        kinds: Iterable[Any] = inner
    else:
        kinds = [inner[0] if inner else Any] * len(data)
    items = [
        from_json(each, item, f"{at}[{index}]")
        for index, (each, item) in enumerate(zip(kinds, data, strict=True))
    ]
    try:
        return _ARRAYS[kind](items)
    except TypeError as error:  # an item of a set that has no hash
        raise _misplaced(str(error), at) from None


def _key(of_key: Any, key: str, at: str) -> Any:
    way = _whole(of_key)
    if of_key in (str, Any) or way is None:
        return key
    for data in (encode(key), key.encode()):  # a number is a text where it is a key
        try:
            return way.accept(data)
        except (msgspec.DecodeError, Misfit):
            continue
    raise _misplaced(f"the key {key!r:.60} is no {name_of(of_key)}", at)


def _typed_dict(kind: Any, data: dict[str, Any], at: str) -> dict[str, Any]:
    hints = hints_of(kind)
    if missing := sorted(required_keys(kind) - data.keys()):
        raise _misplaced(f"Object missing required field `{missing[0]}`", at)
    return {
        key: from_json(hints[key], item, f"{at}.{key}")
        for key, item in data.items()
        if key in hints
    }


def _enum_member(kind: Any, data: Any, at: str) -> Any:
    for member in kind:
        if data == member.value or (type(data) is list and data == _listed(member.value)):
            return member
    raise _misplaced(f"Invalid enum value {data!r:.60}", at)


def _listed(value: Any) -> Any:
    return list(value) if type(value) is tuple else value


def _member(annotation: Any, data: Any, at: str) -> Any:
    """The data as the member of a union that knows most of its fields, and takes it."""
    members = sorted(typing.get_args(annotation), key=functools.partial(_unlikeness, data))
    refused = []
    for member in members:
        try:
            return from_json(type(None) if member is None else member, data, at)
        except Misfit as misfit:
            refused.append((member, misfit))
    told = [(member, misfit) for member, misfit in refused if member is not type(None)]
    if len(told) == 1:
        raise told[0][1]
    raise Misfit("; ".join(f"{name_of(member)}: {misfit}" for member, misfit in told))


def _unlikeness(data: Any, member: Any) -> int:
    kind = typing.get_origin(_plain(member)) or _plain(member)
    if kind in _ANYTHING or kind in (dict, list, str):
        return sys.maxsize  # what takes anything comes last
    if type(data) is not dict or not isinstance(kind, type) or not _is_made_of_fields(kind):
        return 0
    known = {name for field in _fields_of(kind) for name in (field.name, field.given_as)}
    return len(data.keys() - known)


class _Field(NamedTuple):
    name: str
    given_as: str
    """Its names in JSON, and in the constructor."""
    is_given: bool
    """Whether the constructor takes it."""
    is_required: bool


@functools.lru_cache(maxsize=4096)
def _is_made_of_fields(cls: Any) -> bool:
    """Whether objects of a class are made of fields, and not by pydantic."""
    is_made_otherwise = pydantic_types.is_model(cls) or issubclass(cls, Enum)
    return record_of(cls) is not None and not is_made_otherwise


def _fields_of(cls: Any) -> tuple[_Field, ...]:
    """The fields of a class that is made of them; none of any other."""
    if not _is_made_of_fields(cls):
        return ()
    if issubclass(cls, msgspec.Struct):
        found = msgspec.structs.fields(cls)
        return tuple(_Field(f.name, f.encode_name, True, f.required) for f in found)
    if issubclass(cls, tuple):
        return tuple(_Field(f, f, True, f not in cls._field_defaults) for f in cls._fields)
    if hasattr(cls, "__attrs_attrs__"):
        nothing = sys.modules["attr"].NOTHING
        attributes = cls.__attrs_attrs__
        return tuple(_Field(a.name, a.alias, a.init, a.default is nothing) for a in attributes)
    missing = dataclasses.MISSING
    return tuple(
        _Field(f.name, f.name, f.init, f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(cls)
    )


def _object(annotation: Any, data: Any, at: str) -> Any:
    cls = typing.get_origin(annotation) or annotation
    fields, hints = _fields_of(cls), _hints_with(annotation, cls)
    data = _by_name(cls, fields, data, at)
    found: dict[str, Any] = {}
    for field in fields:
        key = field.name if field.name in data else field.given_as
        if key in data:
            found[field.name] = from_json(hints.get(field.name, Any), data[key], at + label(key))
        elif field.is_given and field.is_required:
            raise _misplaced(f"Object missing required field `{field.given_as}`", at)
    by_struct = issubclass(cls, msgspec.Struct)
    given = {
        field.name if by_struct else field.given_as: found.pop(field.name)
        for field in fields
        if field.is_given and field.name in found
    }
    try:
        made = cls(**given)
    except Exception as error:  # whatever its validators may raise
        raise _misplaced(f"{cls.__name__}: {error}", at) from None
    for name, value in found.items():
        object.__setattr__(made, name, value)
    return made


def _by_name(cls: Any, fields: tuple[_Field, ...], data: Any, at: str) -> dict[str, Any]:
    """The fields of an object in JSON, by their names. Some classes are arrays there."""
    config = getattr(cls, "__struct_config__", None)
    is_array = issubclass(cls, tuple) or (config is not None and config.array_like)
    if is_array and type(data) is list and len(data) <= len(fields):
        return {field.name: item for field, item in zip(fields, data, strict=False)}
    found: dict[str, Any] = _must_be(dict, data, at)
    if config is not None and config.tag is not None:
        tag = found.get(config.tag_field, config.tag)
        if tag != config.tag:
            raise _misplaced(f"Invalid value {tag!r:.60}", f"{at}.{config.tag_field}")
    return found


def _hints_with(annotation: Any, cls: Any) -> dict[str, Any]:
    """The fields of a class with their annotations; of a generic one with what stands for each
    variable."""
    hints = hints_of(cls)
    given = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(annotation), strict=False))
    if not given:
        return hints
    return {name: _filled_in(hint, given) for name, hint in hints.items()}


def _filled_in(hint: Any, given: dict[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    wanted = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(each, each) for each in wanted)] if wanted else hint
