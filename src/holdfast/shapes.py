"""Values that say themselves what they are: tagged JSON, and the classes it may name.

This is the open way of the codec, for annotations that leave something open, and for none. JSON
types are written as themselves and the rest is tagged, `{"$tuple": [1, 2]}`. A user's dict with a
key in `$` is written as a list of pairs, so that nothing in the data can pass for a tag.

An object is written only if the annotation *declares* its class: names it, directly or in the
fields of another class. A name in the data is looked up among the declared classes, so data can't
reach anything else. Objects are rebuilt field by field without their constructor, so that what it
computes or checks can't change what was stored. (A list held in two places comes back as two.)
"""

from __future__ import annotations

import binascii
import dataclasses
import functools
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from itertools import chain
from operator import attrgetter
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec import inspect as about
from msgspec import structs

from holdfast.errors import BadInput

MAX_DEPTH = 100
"""How deep a value may nest. One level can take three of JSON, and the stack has other users."""

TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep, or contains itself{{at}}"

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Misfit(Exception):
    """A value can't be stored: why (`{at}` stands for where), and where, from the inside out."""

    def __init__(self, why: str, *trail: str) -> None:
        self.why = why
        self.trail = list(trail)

    def under(self, label: str) -> Misfit:
        """The same, seen from one level further out."""
        self.trail.append(label)
        return self

    def __str__(self) -> str:
        labels = self.trail[::-1]
        place = "".join(labels[:12]) + ("…" if len(labels) > 12 else "")
        return self.why.replace("{at}", f" at {place}" if place else "")


def label(key: Any) -> str:
    """A key as it stands in the place of an error: `.rooms`, `['two words']`, `[3]`."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    return f"[{key!r:.40}]" if type(key) in (str, int) else f"[a {type(key).__name__}]"


def name_of(annotation: Any) -> str:
    """An annotation as it stands in the code."""
    if annotation is None:
        return "None"
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")


# ---- The walk ----------------------------------------------------------------------------------

Writer = Callable[[Any, int], Any]

_BARE: frozenset[type] = frozenset({str, bool, type(None)})
_JSON = _BARE | {int, float, list, dict}
_TEXT = frozenset({str})
_NUMBERS = (int, float)
_INT64 = range(-(2**63), 2**63)


class Open:
    """Writes and reads tagged JSON, with the objects of the declared classes."""

    def __init__(self, classes: Iterable[type]) -> None:
        names = _names(list(classes))
        self._writers = _Writers(_SCALARS)
        self._writers |= {
            list: self._list,
            tuple: self._tuple,
            dict: self._dict,
            set: functools.partial(self._set, "$set"),
            frozenset: functools.partial(self._set, "$frozenset"),
        }
        self._records: dict[str, Record] = {}
        for name, cls in names.items():
            record = self._records[name] = typing.cast(Record, record_of(cls))
            if cls not in self._writers:
                self._writers[cls] = functools.partial(self._object, name, record)
        self._readers: dict[str, Callable[[dict[str, Any]], Any]] = {
            **_READERS,
            "$tuple": lambda tag: tuple(self._read(tag["$tuple"])),
            "$set": lambda tag: set(self._read(tag["$set"])),
            "$frozenset": lambda tag: frozenset(self._read(tag["$frozenset"])),
            "$dict": lambda tag: {self._read(k): self._read(v) for k, v in tag["$dict"]},
            "$type": self._read_object,
        }

    def dump(self, value: Any) -> bytes:
        """The value as JSON, or `Misfit`."""
        if type(value) in _BARE:
            return encode(value)
        # Encoding first costs little and is sure to end: what contains itself fails here, and
        # does not get to double on every level of `is_plain`.
        try:
            data = encode(value)
        except (TypeError, ValueError, RecursionError):
            data = None
        if data is not None and is_plain(value):
            return data
        return encode(self._writers[type(value)](value, 1))

    def load(self, data: bytes) -> Any:
        """The value as it was."""
        value = decode(data)
        return self._read(value) if b'"$' in data else value

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The value as JSON, and as it comes back; or `Misfit`."""
        data = self.dump(value)
        return data, self.load(data)

    def _list(self, items: list[Any], depth: int) -> list[Any]:
        if depth <= MAX_DEPTH and set(map(type, items)) <= _BARE:
            return items
        return self._items(items, depth)

    def _tuple(self, items: tuple[Any, ...], depth: int) -> Any:
        return {"$tuple": self._items(items, depth)}

    def _items(self, items: Iterable[Any], depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise Misfit(TOO_DEEP)
        writers = self._writers
        written: list[Any] = []
        try:
            for item in items:
                written.append(writers[type(item)](item, depth + 1))
        except Misfit as misfit:
            raise misfit.under(f"[{len(written)}]") from None
        return written

    def _set(self, tag: str, items: Iterable[Any], depth: int) -> Any:
        # Sorted, because the order of a set is another in every process.
        return {tag: sorted(self._items(items, depth), key=encode)}

    def _dict(self, items: dict[Any, Any], depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Misfit(TOO_DEEP)
        if not set(map(type, items)) <= _TEXT or any(key[:1] == "$" for key in items):
            return {"$dict": self._pairs(items, depth)}
        if set(map(type, items.values())) <= _BARE:
            return items
        writers = self._writers
        written: dict[str, Any] = {}
        key = ""
        try:
            for key, item in items.items():
                written[key] = writers[type(item)](item, depth + 1)
        except Misfit as misfit:
            raise misfit.under(label(key)) from None
        return written

    def _pairs(self, items: dict[Any, Any], depth: int) -> list[list[Any]]:
        pairs = []
        for key, item in items.items():
            where = ".keys()"
            try:
                written = self._writers[type(key)](key, depth + 1)
                where = label(key)
                pairs.append([written, self._writers[type(item)](item, depth + 1)])
            except Misfit as misfit:
                raise misfit.under(where) from None
        return pairs

    def _object(self, name: str, record: Record, value: Any, depth: int) -> Any:
        written = {"$type": name}
        for part, content in record.apart(value).items():
            written[part] = self._writers[type(content)](content, depth)
        return written

    def _read(self, value: Any) -> Any:
        # What was decoded is ours alone, so it is changed in place.
        if type(value) is list:
            for index, item in enumerate(value):
                if type(item) is dict or type(item) is list:
                    value[index] = self._read(item)
        elif type(value) is dict:
            tag = next(iter(value), "")
            if tag[:1] == "$":
                return self._readers[tag](value)
            for key, item in value.items():
                if type(item) is dict or type(item) is list:
                    value[key] = self._read(item)
        return value

    def _read_object(self, tag: dict[str, Any]) -> Any:
        name = tag.pop("$type")
        record = self._records.get(name)
        if record is None:
            raise LookupError(f"it holds a {name}, which the annotation does not declare")
        return record.build({part: self._read(content) for part, content in tag.items()})


def is_plain(value: Any) -> bool:
    """Whether a value is nothing but JSON types that come back as they are; by column, in C."""
    column = [value]
    for _ in range(MAX_DEPTH):
        kinds = set(map(type, column))
        if not kinds <= _JSON or not all(
            _is_plain_number(n) for n in _of(column, kinds, *_NUMBERS)
        ):
            return False
        dicts = _of(column, kinds, dict)
        if not set(map(type, chain.from_iterable(dicts))) <= _TEXT:
            return False
        if any(key[:1] == "$" for key in set(chain.from_iterable(dicts))):
            return False
        lists = _of(column, kinds, list)
        column = [*chain.from_iterable(lists), *chain.from_iterable(map(dict.values, dicts))]
        if not column:
            return True
    return False


def _of(column: list[Any], kinds: set[type], *wanted: type) -> list[Any]:
    if kinds.isdisjoint(wanted):
        return []
    return column if kinds.issubset(wanted) else [v for v in column if type(v) in wanted]


def _is_plain_number(number: float) -> bool:
    return number in _INT64 if type(number) is int else math.isfinite(number)


class _Writers(dict[type, Writer]):
    """Finds the writer for a type; for a type that has none, one that says why."""

    def __missing__(self, kind: type) -> Writer:
        def refuse(value: Any, depth: int) -> Any:
            base = next((base.__name__ for base in kind.__mro__ if base in self), None)
            if record_of(kind) is not None:
                todo = f"annotate the step with {kind.__name__}, or use plain data"
            elif base is not None:
                todo = f"turn it into a plain {base}"
            else:
                todo = "annotate the step with a dataclass that holds it, or use plain data"
            raise Misfit(f"a value of type {kind.__name__}{{at}} can't be stored; {todo}")

        return refuse


# ---- Scalars -----------------------------------------------------------------------------------


def _write_int(value: int, depth: int) -> Any:
    # Few readers of JSON keep more than 64 bits.
    return value if value in _INT64 else {"$int": str(value)}


def _write_float(value: float, depth: int) -> Any:
    return value if math.isfinite(value) else {"$float": repr(value)}


def has_plain_zone(value: datetime | time) -> bool:
    """Whether ISO 8601 says all of it: no zone, or a nameless offset; and no fold."""
    zone = value.tzinfo
    return not value.fold and (
        zone is None or zone is UTC or (type(zone) is timezone and not _name_of(zone))
    )


def _name_of(zone: timezone) -> str:
    # The only way to tell a given name from a made-up one; what copies and pickles go by.
    offset_and_name: tuple[Any, ...] = zone.__getinitargs__()  # type: ignore[attr-defined]
    return offset_and_name[1] if len(offset_and_name) > 1 else ""


def _write_moment(tag: str, value: Any, depth: int) -> Any:
    if has_plain_zone(value):
        return {tag: value.isoformat()}
    zone = value.tzinfo
    written: dict[str, Any] = {tag: value.isoformat()}
    if type(zone) is ZoneInfo and zone.key:
        written = {tag: value.replace(tzinfo=None).isoformat(), "zone": zone.key}
    elif type(zone) is timezone:
        written["name"] = _name_of(zone)
    elif zone is not None:
        kind = type(zone).__name__
        raise Misfit(f"a time zone of type {kind}{{at}} can't be stored; use zoneinfo, or UTC")
    return {**written, "fold": value.fold}


def _read_moment(parse: Callable[[str], Any], text: str, tag: dict[str, Any]) -> Any:
    value = parse(text)
    if "zone" in tag:
        value = value.replace(tzinfo=ZoneInfo(tag["zone"]))
    elif tag.get("name"):
        value = value.replace(tzinfo=timezone(value.utcoffset(), tag["name"]))
    return value.replace(fold=tag.get("fold", 0))


_PURE_PATHS = {"PurePosixPath": PurePosixPath, "PureWindowsPath": PureWindowsPath}


def _write_pure_path(value: Any, depth: int) -> Any:
    return {"$path": str(value), "class": type(value).__name__}


def _write_base64(tag: str, value: Any, depth: int) -> Any:
    return {tag: binascii.b2a_base64(value, newline=False).decode()}


_SCALARS: dict[type, Writer] = {
    **dict.fromkeys(_BARE, lambda value, depth: value),
    int: _write_int,
    float: _write_float,
    bytes: functools.partial(_write_base64, "$bytes"),
    bytearray: functools.partial(_write_base64, "$bytearray"),
    datetime: functools.partial(_write_moment, "$datetime"),
    time: functools.partial(_write_moment, "$time"),
    date: lambda value, depth: {"$date": value.isoformat()},
    timedelta: lambda value, depth: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    UUID: lambda value, depth: {"$uuid": str(value)},
    Decimal: lambda value, depth: {"$decimal": str(value)},
    type(Path()): lambda value, depth: {"$path": str(value)},
    **dict.fromkeys(_PURE_PATHS.values(), _write_pure_path),
    msgspec.UnsetType: lambda value, depth: {"$unset": True},
}

_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$int": lambda tag: int(tag["$int"]),
    "$float": lambda tag: float(tag["$float"]),
    "$bytes": lambda tag: binascii.a2b_base64(tag["$bytes"]),
    "$bytearray": lambda tag: bytearray(binascii.a2b_base64(tag["$bytearray"])),
    "$datetime": lambda tag: _read_moment(datetime.fromisoformat, tag["$datetime"], tag),
    "$time": lambda tag: _read_moment(time.fromisoformat, tag["$time"], tag),
    "$date": lambda tag: date.fromisoformat(tag["$date"]),
    "$timedelta": lambda tag: timedelta(*tag["$timedelta"]),
    "$uuid": lambda tag: UUID(tag["$uuid"]),
    "$decimal": lambda tag: Decimal(tag["$decimal"]),
    "$path": lambda tag: (_PURE_PATHS[tag["class"]] if "class" in tag else Path)(tag["$path"]),
    "$unset": lambda tag: msgspec.UNSET,
}


# ---- Classes -----------------------------------------------------------------------------------


class Record(NamedTuple):
    """How the objects of a class are taken apart into named parts, and put together again."""

    apart: Callable[[Any], dict[str, Any]]
    build: Callable[[dict[str, Any]], Any]
    names: tuple[str, ...] = ()


# An object of one of these is more than its fields.
_NOT_RECORDS = (BaseException, bytearray, bytes, date, dict, float, frozenset, int, list, set, str)


@functools.lru_cache(maxsize=4096)
def record_of(cls: Any) -> Record | None:
    """How to take apart and rebuild the objects of a class, if it is of a kind we know."""
    if issubclass(cls, Enum):
        # A member by name, as its value can be anything; flags by value, as they can be joined.
        if issubclass(cls, Flag):
            return Record(lambda flags: {"of": flags.value}, lambda parts: cls(parts["of"]))
        return Record(lambda member: {"of": member.name}, lambda parts: cls[parts["of"]])
    if issubclass(cls, msgspec.Struct):
        return _struct_record(cls) if cls is not msgspec.Struct else None
    if issubclass(cls, tuple):
        return _named_tuple_record(cls) if hasattr(cls, "_fields") else None
    if issubclass(cls, _NOT_RECORDS):
        return None
    if dataclasses.is_dataclass(cls):
        return _fields_record(cls, _dataclass_fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return _fields_record(cls, _attrs_fields(cls))
    return _pydantic_record(cls) if _is_pydantic(cls) else None


def _struct_record(cls: type[msgspec.Struct]) -> Record:
    names = cls.__struct_fields__

    def apart(value: Any) -> dict[str, Any]:
        _refuse_lost_attribute(value, names)
        return {"of": {name: getattr(value, name) for name in names}}

    def build(parts: dict[str, Any]) -> Any:
        fields = {name: value for name, value in parts["of"].items() if name in names}
        made = cls(**fields)
        # Only its constructor makes a Struct, and that runs __post_init__: undo what it changed.
        for name, value in fields.items():
            structs.force_setattr(made, name, value)
        return made

    return Record(apart, build, names)


def _named_tuple_record(cls: Any) -> Record:
    def build(parts: dict[str, Any]) -> Any:
        fields = {**cls._field_defaults, **parts["of"]}
        return cls._make(fields[name] for name in cls._fields)

    return Record(lambda value: {"of": dict(zip(cls._fields, value, strict=True))}, build)


class _Field(NamedTuple):
    name: str
    # What a field gets that is not in the data, because the class has got it since.
    default: Callable[[], Any] | None
    # A field of init=False may not have been set.
    required: bool


def _dataclass_fields(cls: Any) -> Iterable[_Field]:
    for field in dataclasses.fields(cls):
        default: Any = None
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory
        elif field.default is not dataclasses.MISSING:
            default = _always(field.default)
        yield _Field(field.name, default, field.init)


def _attrs_fields(cls: Any) -> Iterable[_Field]:
    attrs = sys.modules["attr"]  # loaded, or there would be no such class
    for field in cls.__attrs_attrs__:
        default: Any = _always(field.default)
        if isinstance(field.default, attrs.Factory):
            default = None if field.default.takes_self else field.default.factory
        elif field.default is attrs.NOTHING:
            default = None
        yield _Field(field.name, default, field.init)


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _fields_record(cls: Any, fields: Iterable[_Field]) -> Record:
    known = {field.name: field for field in fields}
    put = object.__setattr__
    caches_hash = "_attrs_cached_hash" in getattr(cls, "__slots__", ())

    def apart(value: Any) -> dict[str, Any]:
        _refuse_lost_attribute(value, known)
        return {"of": {name: getattr(value, name) for name in known if hasattr(value, name)}}

    def build(parts: dict[str, Any]) -> Any:
        stored = parts["of"]
        made = object.__new__(cls)
        for name, default, required in known.values():
            if name in stored:
                put(made, name, stored[name])
            elif default is not None:
                put(made, name, default())
            elif required:
                raise LookupError(f"{cls.__name__} has a field {name!r}, and the data has not")
        if caches_hash:
            put(made, "_attrs_cached_hash", None)
        return made

    return Record(apart, build, tuple(known))


def names_of(cls: type) -> tuple[str, ...]:
    """The fields of a class whose objects are made of fields."""
    record = record_of(cls)
    return record.names if record else ()


def _is_pydantic(cls: type) -> bool:
    return hasattr(cls, "model_dump") and hasattr(cls, "model_validate")


def _pydantic_record(cls: Any) -> Record:
    # Not by model_dump and model_validate: they turn a model inside a model into its base class,
    # leave out what is excluded or private, and run validators on what they have made.
    fields = cls.model_fields

    def apart(value: Any) -> dict[str, Any]:
        _refuse_lost_attribute(value, fields)
        held = vars(value)
        parts: dict[str, Any] = {"of": {name: held[name] for name in fields if name in held}}
        state = value.__getstate__()
        if state["__pydantic_fields_set__"] != fields.keys():
            parts["set"] = sorted(state["__pydantic_fields_set__"])
        for part in ("extra", "private"):
            if state.get(f"__pydantic_{part}__") is not None:
                parts[part] = state[f"__pydantic_{part}__"]
        return parts

    def build(parts: dict[str, Any]) -> Any:
        stored = parts["of"]
        for name in fields.keys() - stored.keys():
            if fields[name].is_required():
                raise LookupError(f"{cls.__name__} has a field {name!r}, and the data has not")
        made = cls.__new__(cls)
        made.__setstate__(
            {
                "__dict__": {
                    name: stored[name]
                    if name in stored
                    else field.get_default(call_default_factory=True)
                    for name, field in fields.items()
                },
                "__pydantic_fields_set__": set(parts.get("set", fields)),
                "__pydantic_extra__": parts.get("extra"),
                "__pydantic_private__": parts.get("private"),
            }
        )
        return made

    return Record(apart, build)


def _refuse_lost_attribute(value: Any, names: Iterable[str]) -> None:
    cls = type(value)
    for name in getattr(value, "__dict__", {}).keys() - names:
        if not isinstance(getattr(cls, name, None), functools.cached_property):
            raise Misfit(
                f"the attribute {name!r} of the {cls.__name__}{{at}} is not one of its fields and "
                f"would be lost; make it a field, or leave it out"
            )


# ---- What an annotation declares ---------------------------------------------------------------


class Reached(NamedTuple):
    """What an annotation leads to: the classes it declares, and whether all types are concrete."""

    classes: list[type]
    concrete: bool


def reach(annotation: Any) -> Reached:
    """Follow an annotation through generics, unions and the fields of classes."""
    classes: list[type] = []
    concrete = True
    seen: list[Any] = []
    todo = [annotation]
    while todo:
        this = todo.pop()
        if any(this is that for that in seen):
            continue
        seen.append(this)
        if isinstance(this, str | typing.ForwardRef):
            name = this if isinstance(this, str) else this.__forward_arg__
            raise BadInput(f"the annotation {name!r} is only a name: give the type it stands for")
        if not isinstance(this, type) or typing.get_origin(this) is not None:
            todo.extend(_inner_types(this))
            continue
        if record_of(this) is not None:
            classes.append(this)
        # msgspec reads any Sequence as a list and leaves out an UNSET, whatever the value was.
        if this.__module__ == "collections.abc" or this is msgspec.UnsetType:
            concrete = False
        todo.extend(_field_types(this))
    return Reached(classes, concrete)


def _inner_types(this: Any) -> Iterable[Any]:
    origin = typing.get_origin(this)
    if origin is typing.Annotated:
        return (this.__origin__,)
    if origin is typing.Literal:
        return [type(value) for value in typing.get_args(this)]
    if origin is not None:
        return (origin, *typing.get_args(this))
    if isinstance(this, typing.TypeVar):
        return (*this.__constraints__, *([this.__bound__] if this.__bound__ else []))
    # A NewType, or an alias made with `type X = …`.
    names = ("__supertype__", "__value__")
    return [inner for name in names if (inner := getattr(this, name, None)) is not None]


def _field_types(cls: Any) -> Iterable[Any]:
    if _is_pydantic(cls):
        return [field.annotation for field in cls.model_fields.values()]
    if issubclass(cls, Enum) or (record_of(cls) is None and not typing.is_typeddict(cls)):
        return ()
    for names in (None, {cls.__name__: cls}):  # a class inside a function is in no module
        try:
            return typing.get_type_hints(cls, localns=names, include_extras=True).values()
        except Exception:  # whatever the text of an annotation may raise
            continue
    # A name that only type checkers know. If an object of it comes, it is refused then.
    return ()


def _names(classes: list[type]) -> dict[str, type]:
    """Every name a class may go by in the data; the first one of each is the one to write."""
    found: dict[str, list[type]] = {}
    for spell in (_short, _qualified, _full):
        for cls in classes:
            holders = found.setdefault(spell(cls), [])
            if cls not in holders:
                holders.append(cls)
    names = {name: holders[0] for name, holders in found.items() if len(holders) == 1}
    for cls in classes:
        if cls not in names.values():
            raise BadInput(f"the annotation names two classes {_full(cls)}: rename one of them")
    return names


def _short(cls: type) -> str:
    return cls.__name__


def _qualified(cls: type) -> str:
    return cls.__qualname__


def _full(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


# ---- Closed annotations ------------------------------------------------------------------------

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
        if type(value) in self._bare:
            return _write(value), value
        try:
            data = self._written(value)
            loaded = self._loaded(data)
            if not data.startswith(_TAGGED) and is_same([value], [loaded]):
                return data, loaded
            if wrong := _wrong_type(value, loaded):
                raise wrong
        except Misfit as misfit:
            misfit.why = f"the annotation says {name_of(self._annotation)}: {misfit.why}"
            raise
        except AttributeError:  # a field of init=False that has not been set
            pass
        return self._settle_tagged(value)

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
            hint = " (which is how nan is written)" if "got `null`" in str(error) else ""
            raise Misfit(f"{error}{hint}") from None
        except (ArithmeticError, RecursionError) as error:
            raise Misfit(repr(error)) from None

    def _settle_tagged(self, value: Any) -> tuple[bytes, Any]:
        data = b"%b%b}" % (_TAGGED, self._tagged.dump(value))
        return data, self.load(data)


def _as_builtin(value: Any) -> Any:
    # A float64 of numpy is a float, and a float is what the annotation asked for.
    for base in (str, int, float):
        if isinstance(value, base):
            return getattr(base, f"__{base.__name__}__")(value)
    raise TypeError(f"a value of type {type(value).__name__} can't be stored")


_write = msgspec.json.Encoder(enc_hook=_as_builtin).encode

_KEYS = (about.StrType, about.IntType, about.UUIDType, about.DateType, about.EnumType)
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
        # What is left out because it is the default comes back as the default of that day.
        if isinstance(this, about.StructType) and this.cls.__struct_config__.omit_defaults:
            return False
        names = this.__struct_fields__
        todo.extend(getattr(this, name) for name in names if not name.startswith("default"))
    return True


def is_same(before: list[Any], after: list[Any], depth: int = 1) -> bool:
    """Whether two columns of values are the same, to the type and the time zone.

    By column, because `set(map(type, column))` stays in C, where going from object to object does
    not: all the lists, then all their items, then those field by field. The type of what comes
    back is what the annotation says, so that decides.
    """
    kinds = set(map(type, after))
    if len(kinds) > 1:
        return all(is_same(*_pick(kind, before, after), depth) for kind in kinds)
    if not kinds or depth > MAX_DEPTH:
        return not kinds
    (kind,) = kinds
    if set(map(type, before)) != kinds and not all(_may_become(kind, v) for v in before):
        return False
    if issubclass(kind, list | tuple | dict):
        return _is_same_inside(kind, before, after, depth + 1)
    if kind is datetime or kind is time:
        is_plain_zone = all(not v.fold and (v.tzinfo is None or v.tzinfo is UTC) for v in before)
        return before == after if is_plain_zone else [*map(repr, before)] == [*map(repr, after)]
    names = names_of(kind)
    if not names:
        return before == after
    # An attribute that is not a field would be missing now.
    if kind.__dictoffset__ and [*map(len, map(vars, before))] != [*map(len, map(vars, after))]:
        return False
    gets = map(attrgetter, names)
    return all(is_same([*map(get, before)], [*map(get, after)], depth + 1) for get in gets)


def _pick(kind: type, before: list[Any], after: list[Any]) -> tuple[list[Any], list[Any]]:
    chosen = [index for index, value in enumerate(after) if type(value) is kind]
    return [before[index] for index in chosen], [after[index] for index in chosen]


def _is_same_inside(kind: type, before: list[Any], after: list[Any], depth: int) -> bool:
    if [*map(len, before)] != [*map(len, after)]:
        return False
    if issubclass(kind, dict) and not is_same(
        [*chain.from_iterable(map(dict.values, before))],
        [*chain.from_iterable(map(dict.values, after))],
        depth,
    ):
        return False
    return is_same([*chain.from_iterable(before)], [*chain.from_iterable(after)], depth)


def _may_become(kind: type, value: Any) -> bool:
    """Whether a value may come back as that type, because the annotation says so."""
    if type(value) is kind:
        return True
    if type(value) is bool:
        return False
    if kind is float and isinstance(value, int):
        return abs(value) < 2**1023 and float(value) == value
    return kind in (str, int, float, list, dict, tuple) and isinstance(value, kind)


def _wrong_type(before: Any, after: Any) -> Misfit | None:
    """The first place where what comes back is of another type."""
    kind = type(after)
    if not _may_become(kind, before):
        found = type(before).__name__
        if isinstance(before, float) and not math.isfinite(before):
            return Misfit(f"{before!r}{{at}} is not in JSON; annotate Any to keep it")
        return Misfit(f"expected {name_of(kind)}{{at}}, found {found}")
    parts: Iterable[tuple[str, Any, Any]]
    if issubclass(kind, list | tuple):
        pairs = zip(before, after, strict=False)
        parts = ((f"[{index}]", old, new) for index, (old, new) in enumerate(pairs))
    elif issubclass(kind, dict):
        parts = _entries(before, after)
    else:
        parts = (
            (f".{name}", getattr(before, name), getattr(after, name)) for name in names_of(kind)
        )
    for where, old, new in parts:
        if wrong := _wrong_type(old, new):
            return wrong.under(where)
    return None


def _entries(before: dict[Any, Any], after: dict[Any, Any]) -> Iterable[tuple[str, Any, Any]]:
    if len(before) == len(after):
        for (key, old), (new_key, new) in zip(before.items(), after.items(), strict=True):
            yield ".keys()", key, new_key
            yield label(key), old, new
    for key in before.keys() & after.keys():  # a TypedDict with a key that it does not name
        yield label(key), before[key], after[key]
