"""JSON from outside, for annotations that neither msgspec nor pydantic reads whole.

Such an annotation names its classes all the same: `Sequence[Order]`, `Mapping[str, Order]`, a union
of two dataclasses, a class with private fields. The log has tags there, which say what is what. A
person, a model or a command line writes none. So the annotation is walked part by part, msgspec or
pydantic reads every part that it knows, and data that does not fit is refused by the name of its
field.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from holdfast.codec import pydantic_types
from holdfast.codec.classes import (
    hints_of,
    is_typed_dict,
    made_once,
    reach,
    record_of,
    required_keys,
)
from holdfast.codec.closed import Closed, NaturalWay, closed_way
from holdfast.codec.scalars import Misfit, decode, encode, label, name_of
from holdfast.codec.tags import Open

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
    """What it is called in JSON, and by the constructor."""
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
