"""The closed way: annotations that name the classes of their values are written as natural JSON.

Msgspec or pydantic reads back what it has written, and the result is compared with what was given,
so that nothing changes in silence; a value that would is written with tags after all, or refused.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
from msgspec import inspect as about

from holdfast.codec import pydantic_types
from holdfast.codec.change import Changed, Partial, compare, complete
from holdfast.codec.classes import Declared, must_fit, names_of, record_of
from holdfast.codec.scalars import (
    INT64,
    TEXTS,
    Misfit,
    name_of,
)
from holdfast.codec.tags import Open

# Starts what is written with tags after all.
_TAGGED = b'{"$tagged":'

# Values of these types are written and read as they are wherever the annotation names the type.
_SURE: frozenset[type] = frozenset({str, bool, int, type(None)})


class Natural(Protocol):
    """Writes the values of an annotation as natural JSON: msgspec, or pydantic."""

    def enter(self, value: Any) -> Any:
        """The value as it is let in."""

    def write(self, value: Any) -> bytes:
        """The value as JSON."""

    def read(self, data: bytes) -> Any:
        """The value of some JSON that was written here."""

    def accept(self, data: bytes) -> Any:
        """The value of some JSON from outside."""

    def must_be_valid(self, value: Any) -> None:
        """Raise `Misfit` for a value that is refused when it is read back, and should be."""

    def must_fit(self, value: Any) -> None:
        """Raise `Misfit` for a value that `enter` let in, and that is not of the annotation."""


class Closed:
    """Leaves the work to msgspec, then compares what went in with what comes out.

    A value of another type is refused: the value is not what the annotation says. A value of the
    right type that is still not the same (a time with a named zone, an object whose constructor
    changes it) is written with tags.
    """

    def __init__(self, annotation: Any, tagged: Open) -> None:
        self._annotation = annotation
        self._tagged = tagged
        self._read = msgspec.json.Decoder(annotation).decode
        is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
        members = typing.get_args(annotation) if is_union else (annotation,)
        self.bare: frozenset[type] = _SURE.intersection(
            type(None) if each is None else each for each in members
        )

    def dump(self, value: Any) -> bytes:
        """The value as JSON, or `Misfit`."""
        if type(value) in self.bare and (type(value) is not int or value in INT64):
            return _write(value)
        return self.settle(value)[0]

    def load(self, data: bytes) -> Any:
        """The value as it was."""
        if data.startswith(_TAGGED):
            return self._tagged.load(data[len(_TAGGED) : -1])
        return self._read(data)

    accept = load

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The value as JSON, and as it comes back; or `Misfit`."""
        if type(value) in self.bare and (type(value) is not int or value in INT64):
            return _write(value), value
        try:
            data = self._written(value)
            loaded = self._loaded(data)
            compare(value, loaded)
            if not data.startswith(_TAGGED):  # as a dict with that very key would
                return data, loaded
        except Partial:
            complete(value)
            return self.settle(value)
        except (Changed, ArithmeticError):  # a signaling NaN refuses even to be compared
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
                raise Changed("") from None
            hint = " (which is how nan is written)" if "got `null`" in str(error) else ""
            raise Misfit(f"{error}{hint}") from None


class NaturalWay:
    """Natural JSON for annotations that name their classes, and still leave something open.

    A value that does not come back as it was is written with tags. So were all of these once:
    JSON with tags in it is read as such, and natural JSON never holds a key that looks like one.
    """

    bare: frozenset[type] = frozenset()

    def __init__(self, natural: Natural, tagged: Open) -> None:
        self._natural = natural
        self._tagged = tagged

    def dump(self, value: Any) -> bytes:
        """The value as JSON, or `Misfit`."""
        return self.settle(value)[0]

    def load(self, data: bytes) -> Any:
        """The value as it was."""
        if b'"$' not in data or not _any_key(msgspec.json.decode(data), _is_tag):
            try:
                return self._natural.read(data)
            except Exception:
                if data == b"null":  # of a function that says it never returns None, and does
                    return None
                raise
        if data.startswith(_TAGGED):
            return self._tagged.load(data[len(_TAGGED) : -1])
        return self._mixed(_split_array(data)) if data[:1] == b"[" else self._tagged.load(data)

    def _mixed(self, items: list[msgspec.Raw]) -> list[Any]:
        """A list that has grown since its items were written with tags."""
        old = [_any_key(msgspec.json.decode(item), _is_tag) for item in items]
        new = [bytes(item) for item, is_old in zip(items, old, strict=True) if not is_old]
        read = iter(self._natural.read(b"[%b]" % b",".join(new)) if new else ())
        return [
            self._tagged.load(bytes(item)) if is_old else next(read)
            for item, is_old in zip(items, old, strict=True)
        ]

    def accept(self, data: bytes) -> Any:
        """The value of some JSON from outside, or `Misfit`."""
        if b'"$' in data and _any_key(msgspec.json.decode(data), _is_tag):
            return self.settle(self.load(data))[1]
        return self._natural.accept(data)

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The value as JSON, and as it comes back; or `Misfit`."""
        given = self._natural.enter(value)
        try:
            data = self._natural.write(given)
            loaded = self._read_back(given, data)
            compare(given, loaded)
            if not _is_ambiguous(data):
                return data, loaded
        except _Refused:
            raise
        except Partial:
            complete(given)
            return self.settle(given)
        # The tags bring back everything that can be stored, and say what can't.
        except Exception:
            pass
        data = b"%b%b}" % (_TAGGED, self._tagged.dump(given))
        if given is None:
            return b"null", self.load(b"null")
        self._natural.must_fit(given)
        return data, self.load(data)

    def _read_back(self, given: Any, data: bytes) -> Any:
        try:
            return self._natural.read(data)
        except Misfit:
            try:
                self._natural.must_be_valid(given)
            except Misfit as misfit:
                raise _Refused(misfit.why) from None
            raise


class _Refused(Misfit):
    """A value that its own type refuses."""


_split_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


_LONG = re.compile(rb"\d{19}")


def _is_ambiguous(data: bytes) -> bool:
    """Whether some natural JSON has what looks like a tag, or a number that few readers keep."""
    if b"Infinity" in data or b"NaN" in data:
        msgspec.json.decode(data)  # pydantic may be told to write numbers that are not in JSON
    has_tag = b'"$' in data and _any_key(msgspec.json.decode(data), _may_be_tag)
    return has_tag or (_LONG.search(data) is not None and _has_long(msgspec.json.decode(data)))


def _has_long(value: Any) -> bool:
    if type(value) is int:
        return value not in INT64
    items = value.values() if type(value) is dict else value if type(value) is list else ()
    return any(map(_has_long, items))


def _is_tag(keys: Iterable[str]) -> bool:
    return next(iter(keys), "").startswith("$")


def _may_be_tag(keys: Iterable[str]) -> bool:
    return any(key.startswith("$") for key in keys)


def _any_key(value: Any, test: Callable[[Iterable[str]], bool]) -> bool:
    """Whether the keys of a dict anywhere in some plain data pass a test."""
    todo = [value]
    while todo:
        this = todo.pop()
        if type(this) is dict:
            if test(this):
                return True
            todo.extend(this.values())
        elif type(this) is list:
            todo.extend(this)
    return False


def closed_way(annotation: Any, tagged: Open, declared: Declared) -> Closed | NaturalWay | None:
    """How the values of an annotation are written as natural JSON; None if it names too little."""
    if declared.pydantic and not declared.loose:
        adapter = pydantic_types.PydanticAdapter.of(annotation, hides=declared.hides)
        if adapter is not None:
            return NaturalWay(adapter, tagged)
    if not declared.concrete:
        return None
    try:
        kinds = _kinds(about.type_info(annotation))
        if kinds == {"closed"}:
            return Closed(annotation, tagged)
        if "open" in kinds or declared.loose:
            return None
        by_msgspec = _Msgspec(annotation, in_full="in full" in kinds, is_strict=declared.pydantic)
        return NaturalWay(by_msgspec, tagged)
    except Exception:  # msgspec has many ways to say that a type is not for it
        return None


class _Msgspec:
    """Natural JSON by msgspec, with what it does not know itself."""

    def __init__(self, annotation: Any, *, in_full: bool, is_strict: bool) -> None:
        self._annotation = annotation
        self._read = msgspec.json.Decoder(annotation, dec_hook=_from_log).decode
        self._accept = msgspec.json.Decoder(annotation, dec_hook=_from_json).decode
        self._in_full = in_full
        self._is_strict = is_strict

    def enter(self, value: Any) -> Any:
        return value

    def write(self, value: Any) -> bytes:
        return _write_named(_in_full(value) if self._in_full else value)

    def read(self, data: bytes) -> Any:
        return self._read(data)

    def accept(self, data: bytes) -> Any:
        return self._accept(data)

    def must_be_valid(self, value: Any) -> None:
        return None

    def must_fit(self, value: Any) -> None:
        if self._is_strict:
            must_fit(self._annotation, value)


def _to_json(value: Any) -> Any:
    kind: Any = type(value)
    if kind in TEXTS:
        return TEXTS[kind].write(value)
    if pydantic_types.is_pydantics(kind):
        return msgspec.Raw(pydantic_types.adapter_of(kind).write(value))
    return _as_builtin(value)


def _as_builtin(value: Any) -> Any:
    # A float64 of numpy is a float, and a float is what the annotation asked for.
    for base in (str, int, float):
        if isinstance(value, base):
            return getattr(base, f"__{base.__name__}__")(value)
    raise TypeError(f"a value of type {type(value).__name__} can't be stored")


def _from_json(kind: Any, data: Any) -> Any:
    return _of_part(kind, data, pydantic_types.PydanticAdapter.accept)


def _from_log(kind: Any, data: Any) -> Any:
    return _of_part(kind, data, pydantic_types.PydanticAdapter.read)


def _of_part(kind: Any, data: Any, read: Callable[..., Any]) -> Any:
    if kind in TEXTS:
        return TEXTS[kind].read(data)
    try:
        return read(pydantic_types.adapter_of(kind), msgspec.json.encode(data))
    except Misfit as misfit:
        raise ValueError(str(misfit)) from None


_write = msgspec.json.Encoder(enc_hook=_as_builtin).encode
_write_named = msgspec.json.Encoder(enc_hook=_to_json).encode


def _in_full(value: Any) -> Any:
    """The value with every field, also of Structs that leave out what is the default: it would
    come back as the default of that day. And with sets in an order that every process has."""
    kind = type(value)
    if kind is list or kind is tuple:
        return [_in_full(item) for item in value]
    if kind is dict:
        return {key: _in_full(item) for key, item in value.items()}
    if kind is set or kind is frozenset:
        return sorted((_in_full(item) for item in value), key=_write_named)
    if isinstance(value, msgspec.Struct):
        return _struct_in_full(value)
    names = names_of(kind)
    return {name: _in_full(getattr(value, name)) for name in names} if names else value


def _struct_in_full(value: msgspec.Struct) -> Any:
    config, names = value.__struct_config__, value.__struct_fields__
    items = [_in_full(getattr(value, name)) for name in names]
    if config.array_like:
        return items if config.tag is None else [config.tag, *items]
    full = {} if config.tag is None else {config.tag_field: config.tag}
    return full | dict(zip(value.__struct_encode_fields__, items, strict=True))


_KEYS = (
    *(about.StrType, about.IntType, about.UUIDType, about.DateType),
    *(about.EnumType, about.LiteralType),
)
_OPEN = (about.RawType, about.ExtType, about.MemoryViewType)
_SETS = (about.SetType, about.FrozenSetType)


def _kinds(info: about.Type) -> set[str]:
    """What msgspec knows of the places in an annotation: "closed" if it knows a type for each,
    "named" if one takes anything, "in full" if objects are to be written by us, "open" if one is
    of a type that it does not know."""
    kinds = {"closed"}
    seen: set[int] = set()
    todo: list[Any] = [info]
    while todo:
        this = todo.pop()
        if isinstance(this, tuple):
            todo.extend(this)
        if not isinstance(this, about.Type | about.Field) or id(this) in seen:
            continue
        seen.add(id(this))
        kinds.add(_kind(this))
        names = this.__struct_fields__
        todo.extend(getattr(this, name) for name in names if not name.startswith("default"))
    return kinds


def _kind(this: about.Type | about.Field) -> str:
    if isinstance(this, about.AnyType):
        return "named"
    if isinstance(this, _SETS):
        return "in full"
    if isinstance(this, about.CustomType):
        known = this.cls in TEXTS or pydantic_types.is_pydantics(this.cls)
        return "named" if known else "open"
    if isinstance(this, about.DictType) and isinstance(this.key_type, about.AnyType):
        return "named"
    if isinstance(this, about.DictType) and not isinstance(this.key_type, _KEYS):
        return "open"
    if isinstance(this, about.DataclassType | about.StructType):
        return _kind_of_class(this.cls)
    return "open" if isinstance(this, _OPEN) else "closed"


def _kind_of_class(cls: Any) -> str:
    """Whether msgspec writes all there is of an object of a class."""
    cls = typing.get_origin(cls) or cls
    if issubclass(cls, msgspec.Struct):
        return "in full" if cls.__struct_config__.omit_defaults else "closed"
    if record_of(cls) is None:
        return "open"
    # A field of init=False need not be set. Private ones of an attrs class are left out.
    private = (field.name[:1] == "_" for field in getattr(cls, "__attrs_attrs__", ()))
    fields = getattr(cls, "__attrs_attrs__", None) or dataclasses.fields(cls)
    return "closed" if all(field.init for field in fields) and not any(private) else "open"
