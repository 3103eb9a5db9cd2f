"""The closed way: annotations that leave nothing open are written as natural JSON, in C.

What msgspec reads back is compared with what it was given, so that nothing changes in silence; a
value that would is written with tags after all, or refused.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect as about

from holdfast.codec.classes import lost_attributes, names_of, record_of
from holdfast.codec.misfit import MAX_DEPTH, TOO_DEEP, Misfit, label, name_of
from holdfast.codec.scalars import INT64
from holdfast.codec.tags import Open

# Starts what is written with tags after all.
_TAGGED = b'{"$tagged":'

# Values of these types are written and read as they are wherever the annotation names the type.
_SURE = frozenset({str, bool, int, type(None)})


class Closed:
    """Leaves the work to msgspec, then compares what went in with what comes out.

    What is of another type is refused: the value is not what the annotation says. What is of the
    right type and still not the same (a time with a named zone, an object whose constructor
    changes it) is written with tags.
    """

    def __init__(self, annotation: Any, tagged: Open) -> None:
        self._annotation = annotation
        self._tagged = tagged
        self._read = msgspec.json.Decoder(annotation).decode
        is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
        members = typing.get_args(annotation) if is_union else (annotation,)
        self._bare = _SURE.intersection(type(None) if each is None else each for each in members)

    @classmethod
    def of(cls, annotation: Any, tagged: Open) -> Closed | None:
        """For an annotation that says everything; None for one that does not."""
        try:
            return cls(annotation, tagged) if _is_closed(about.type_info(annotation)) else None
        except Exception:  # msgspec has many ways to say that a type is not for it
            return None

    def dump(self, value: Any) -> bytes:
        """The value as JSON, or `Misfit`."""
        return self.settle(value)[0]

    def load(self, data: bytes) -> Any:
        """The value as it was."""
        if data.startswith(_TAGGED):
            return self._tagged.load(data[len(_TAGGED) : -1])
        return self._read(data)

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The value as JSON, and as it comes back; or `Misfit`."""
        if type(value) in self._bare and (type(value) is not int or value in INT64):
            return _write(value), value
        try:
            data = self._written(value)
            loaded = self._loaded(data)
            compare(value, loaded)
            if not data.startswith(_TAGGED):  # as a dict with that very key would
                return data, loaded
        except (_Changed, ArithmeticError):  # a signaling NaN refuses even to be compared
            pass
        except Misfit as misfit:
            misfit.why = f"the annotation says {name_of(self._annotation)}: {misfit.why}"
            raise
        data = b"%b%b}" % (_TAGGED, self._tagged.dump(value))
        return data, self.load(data)

    def _written(self, value: Any) -> bytes:
        try:
            return _write(value)
        except UnicodeEncodeError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            self._tagged.dump(value)  # which knows the place of what can't be stored at all
            raise Misfit(str(error)) from None

    def _loaded(self, data: bytes) -> Any:
        try:
            return self._read(data)
        except msgspec.ValidationError as error:
            if "Integer value out of range" in str(error):  # msgspec counts the sign as a digit
                raise _Changed("") from None
            hint = " (which is how nan is written)" if "got `null`" in str(error) else ""
            raise Misfit(f"{error}{hint}") from None


def _as_builtin(value: Any) -> Any:
    # A float64 of numpy is a float, and a float is what the annotation asked for.
    for base in (str, int, float):
        if isinstance(value, base):
            return getattr(base, f"__{base.__name__}__")(value)
    raise TypeError(f"a value of type {type(value).__name__} can't be stored")


_write = msgspec.json.Encoder(enc_hook=_as_builtin).encode

_KEYS = (
    *(about.StrType, about.IntType, about.UUIDType, about.DateType),
    *(about.EnumType, about.LiteralType),
)
# The order of a set is another in every process, so it is left to the tags, which sort it.
_OPEN = (
    *(about.AnyType, about.RawType, about.CustomType, about.ExtType, about.MemoryViewType),
    *(about.SetType, about.FrozenSetType),
)


def _is_closed(info: about.Type) -> bool:
    """Whether msgspec knows a type for every place in the annotation."""
    seen: set[int] = set()
    todo: list[Any] = [info]
    while todo:
        this = todo.pop()
        if isinstance(this, tuple):
            todo.extend(this)
        if not isinstance(this, about.Type | about.Field) or id(this) in seen:
            continue
        seen.add(id(this))
        if isinstance(this, _OPEN):
            return False
        if isinstance(this, about.DictType) and not isinstance(this.key_type, _KEYS):
            return False
        if isinstance(this, about.DataclassType | about.StructType) and not _is_whole(this.cls):
            return False
        names = this.__struct_fields__
        todo.extend(getattr(this, name) for name in names if not name.startswith("default"))
    return True


def _is_whole(cls: Any) -> bool:
    """Whether msgspec writes all there is of an object of a class."""
    cls = typing.get_origin(cls) or cls
    if issubclass(cls, msgspec.Struct):
        # What is left out because it is the default comes back as the default of that day.
        return not cls.__struct_config__.omit_defaults
    if record_of(cls) is None:
        return False
    # A field of init=False need not be set. Private ones of an attrs class are left out.
    private = (field.name[:1] == "_" for field in getattr(cls, "__attrs_attrs__", ()))
    fields = getattr(cls, "__attrs_attrs__", None) or dataclasses.fields(cls)
    return all(field.init for field in fields) and not any(private)


class _Changed(Misfit):
    """It came back as another value of the same type."""


# Equal values of one of these types are the same.
_LEAVES = {str, int, bool, float, type(None), bytes, bytearray, date, timedelta, UUID, Decimal}


def compare(before: Any, after: Any, depth: int = 1) -> None:
    """Hold what was written against what comes back, to the type and the time zone.

    Raises `_Changed`, or a plain `Misfit` if a type is not what the annotation says.
    """
    kind = type(after)
    if type(before) is not kind and not _may_become(kind, before):
        raise _unlike(before, kind)
    if kind not in _LEAVES:
        if depth > MAX_DEPTH:
            raise Misfit(TOO_DEEP)
        _comparison(typing.cast(Any, kind))(before, after, depth + 1)
    elif before != after:
        raise _Changed("it changes{at}")


def _may_become(kind: type, value: Any) -> bool:
    """Whether a value may come back as another type, because the annotation says so."""
    if type(value) is bool:
        return False
    if kind is float and isinstance(value, int):
        return abs(value) < 2**1023 and float(value) == value
    return kind in (str, int, float, list, dict, tuple) and isinstance(value, kind)


def _unlike(value: Any, kind: type) -> Misfit:
    if isinstance(value, float) and not math.isfinite(value):
        return Misfit(f"{value!r}{{at}} is not in JSON; annotate Any to keep it")
    return Misfit(f"expected {name_of(kind)}{{at}}, found {type(value).__name__}")


@functools.lru_cache(maxsize=4096)
def _comparison(kind: Any) -> Callable[[Any, Any, int], None]:
    if issubclass(kind, dict):
        return _compare_dicts
    if issubclass(kind, list | tuple):
        return _compare_sequences
    if names := names_of(kind):
        return functools.partial(_compare_objects, names)
    return _compare_moments if kind in (datetime, time) else _compare_others


def _compare_sequences(before: Any, after: Any, depth: int) -> None:
    kinds = set(map(type, after))
    if len(kinds) == 1 and kinds == set(map(type, before)):
        if kinds <= _LEAVES and before == after:
            return
        if names := names_of(type(after[0])):
            return _compare_columns(names, before, after, depth)
    index = -1
    try:
        for old, new in zip(before, after, strict=True):
            index += 1
            compare(old, new, depth)
    except Misfit as misfit:
        raise misfit.under(f"[{index}]") from None


def _compare_columns(names: tuple[str, ...], before: Any, after: Any, depth: int) -> None:
    """Compare objects of one class field by field, so that plain fields are compared in C."""
    if depth > MAX_DEPTH:
        raise Misfit(TOO_DEEP).under("[0]")
    for index, value in enumerate(before):
        if lost_attributes(value, names):
            raise _Changed("it loses an attribute{at}").under(f"[{index}]")
    for name in names:
        get = attrgetter(name)
        try:
            _compare_sequences([*map(get, before)], [*map(get, after)], depth + 1)
        except Misfit as misfit:
            index_label = misfit.trail.pop()
            raise misfit.under(f".{name}").under(index_label) from None


def _compare_dicts(before: Any, after: Any, depth: int) -> None:
    if len(before) != len(after):  # a key that its TypedDict does not name
        raise _Changed("it loses a key{at}")
    where = ""
    try:
        for (key, old), (new_key, new) in zip(before.items(), after.items(), strict=True):
            where = ".keys()"
            compare(key, new_key, depth)
            where = label(key)
            compare(old, new, depth)
    except Misfit as misfit:
        raise misfit.under(where) from None


def _compare_objects(names: tuple[str, ...], before: Any, after: Any, depth: int) -> None:
    if lost_attributes(before, names):
        raise _Changed("it loses an attribute{at}")
    name = ""
    try:
        for name in names:
            compare(getattr(before, name), getattr(after, name), depth)
    except Misfit as misfit:
        raise misfit.under(f".{name}") from None


def _compare_moments(before: Any, after: Any, depth: int) -> None:
    is_plain = before.tzinfo is after.tzinfo and not before.fold
    if before != after or not (is_plain or repr(before) == repr(after)):
        raise _Changed("its zone or its fold is lost{at}")


def _compare_others(before: Any, after: Any, depth: int) -> None:
    if before != after:
        raise _Changed("it changes{at}")
