"""Objects taken apart into their fields, and put together again without their constructor.

The JSON Schema of a type is made here too, from the same fields.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date
from enum import Enum, Flag
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from holdfast.codec import pydantic_types
from holdfast.codec.pydantic_types import PydanticAdapter, adapter_of
from holdfast.codec.scalars import TEXTS, Misfit, label, name_of
from holdfast.codec.secret import Secret
from holdfast.errors import BadInput

Made = TypeVar("Made")


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
    if pydantic_types.is_model(cls):
        return Record(*pydantic_types.model_record(cls))
    if pydantic_types.is_leaf(cls) and not pydantic_types.is_secret(cls):
        return _leaf_record(cls)
    return None


def _leaf_record(cls: Any) -> Record:
    """For a class that comes with pydantic, such as `HttpUrl`: JSON is all there is to it."""
    write, read = pydantic_types.adapter_of(cls).write, pydantic_types.adapter_of(cls).read
    return Record(
        lambda value: {"of": msgspec.json.decode(write(value))},
        lambda parts: read(msgspec.json.encode(parts["of"])),
    )


def _struct_record(cls: type[msgspec.Struct]) -> Record:
    names = cls.__struct_fields__

    def apart(value: Any) -> dict[str, Any]:
        _refuse_lost_attributes(value, names)
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
        _refuse_lost_attributes(value, known)
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
                raise Misfit(f"{cls.__name__} has a field {name!r}, and the data has not")
        if caches_hash:
            put(made, "_attrs_cached_hash", None)
        return made

    return Record(apart, build, tuple(known))


def names_of(cls: Any) -> tuple[str, ...]:
    """The fields of a class whose objects are made of fields."""
    record = record_of(cls)
    return record.names if record else ()


def lost_attributes(value: Any, names: Collection[str]) -> list[str]:
    """The attributes of an object that are no fields, and would not come back."""
    held = getattr(value, "__dict__", None)
    if not held or (len(held) == len(names) and all(map(held.__contains__, names))):
        return []
    cls = type(value)
    return [
        name
        for name in held.keys() - names
        if name != "__orig_class__"  # a note that typing leaves on objects of generic classes
        and not isinstance(getattr(cls, name, None), functools.cached_property)
    ]


def _refuse_lost_attributes(value: Any, names: Collection[str]) -> None:
    if lost := lost_attributes(value, names):
        raise Misfit(
            f"the {type(value).__name__}{{at}} has an attribute {lost[0]!r} that is not one of its "
            f"fields and would be lost; make it a field, or leave it out"
        )


# Each annotation is worked out once.


def made_once(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """A function of an annotation that remembers what it made.

    Python says that `A | B` and `B | A` are equal. They are two here: data that fits both classes
    becomes the first.
    """

    @functools.lru_cache(maxsize=4096)
    def known(annotation: Any, order: Any) -> Made:
        return make(annotation)

    @functools.wraps(make)
    def made(annotation: Any) -> Made:
        try:
            if isinstance(annotation, type):
                return known(annotation, None)
            return known(annotation, _order_in(annotation))
        except TypeError:  # not hashable: Annotated[int, []]
            return make(annotation)

    return made


def _order_in(annotation: Any) -> Any:
    """The parts of an annotation as they stand in it."""
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return tuple(map(_order_in, parts)) or annotation


# The classes that an annotation declares: a value under it may be made of them.


class Declared(NamedTuple):
    """The types that an annotation leads to."""

    classes: list[type]
    """Those whose objects are taken apart into their fields."""
    concrete: bool
    """Whether msgspec reads each type as itself."""
    loose: bool
    """Whether it leaves a type open other than in the field of a class."""
    secret: bool
    """Whether it leads to a `Secret`."""
    pydantic: bool
    """Whether it leads to a model, or anything else of pydantic's."""
    hides: bool
    """Whether a value may hold a secret of ours or of pydantic's."""


_BARE = (object, list, tuple, dict, set, frozenset)


def reach(annotation: Any) -> Declared:
    """Follow an annotation through generics, unions and the fields of classes."""
    classes: list[type] = []
    concrete, loose, pydantic, hides = True, False, False, False
    seen: dict[int, Any] = {}  # by identity, since not all that stands in one has a hash
    todo = [(annotation, False)]
    while todo:
        this, is_inside = todo.pop()
        if not is_inside and (this is Any or this in _BARE):
            loose = True
        if id(this) in seen:
            continue
        seen[id(this)] = this
        if isinstance(this, str | typing.ForwardRef):
            name = this if isinstance(this, str) else this.__forward_arg__
            raise BadInput(f"the annotation {name!r} is only a name: give the type it stands for")
        if not isinstance(this, type) or typing.get_origin(this) is not None:
            pydantic = pydantic or any(map(pydantic_types.is_pydantics, _metadata(this)))
            # The origin is no type that was left open: `list[int]` is a list of something.
            origin = typing.get_origin(this)
            todo.extend((part, is_inside or part is origin) for part in _inner_types(this))
            continue
        if pydantic_types.is_model(this) and this.__module__ == "pydantic.main":
            raise BadInput("the annotation BaseModel names no fields: give the model that it is")
        if pydantic_types.is_model(this) and not this.__pydantic_complete__:  # type: ignore[attr-defined]
            this.model_rebuild(raise_errors=False)  # type: ignore[attr-defined]
        pydantic = pydantic or pydantic_types.is_pydantics(this)
        hides = hides or this is Secret or pydantic_types.is_secret(this)
        if record_of(this) is not None:
            classes.append(this)
        # msgspec reads any Sequence as a list and leaves out an UNSET, whatever the value was.
        if this.__module__ == "collections.abc" or this is msgspec.UnsetType:
            concrete = False
        todo.extend((hint, True) for hint in hints_of(this).values())
    secret = any(this is Secret for this in seen.values())
    return Declared(classes, concrete, loose, secret, pydantic, hides)


def _metadata(this: Any) -> tuple[Any, ...]:
    return this.__metadata__ if typing.get_origin(this) is typing.Annotated else ()


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


def is_typed_dict(cls: Any) -> bool:
    """Whether a class is a `TypedDict`, of `typing` or of `typing_extensions`, which pydantic asks
    for on older Pythons."""
    return typing.is_typeddict(cls) or (
        isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")
    )


def required_keys(cls: Any) -> set[str]:
    """The keys that a dict of a `TypedDict` must have. The class itself takes `NotRequired` for a
    part of the type where annotations are texts, as `from __future__ import annotations` makes
    them."""
    marks = {name: typing.get_origin(hint) for name, hint in hints_of(cls).items()}
    optional = {name for name, mark in marks.items() if mark is typing.NotRequired}
    required = {name for name, mark in marks.items() if mark is typing.Required}
    return {*cls.__required_keys__} - optional | required


def hints_of(cls: Any) -> dict[str, Any]:
    """The fields of a class, with their annotations."""
    if pydantic_types.is_model(cls):
        return {name: field.annotation for name, field in cls.model_fields.items()}
    if issubclass(cls, Enum) or (record_of(cls) is None and not is_typed_dict(cls)):
        return {}
    for names in (None, {cls.__name__: cls}):  # a class inside a function is in no module
        try:
            return typing.get_type_hints(cls, localns=names, include_extras=True)
        except Exception:  # whatever the text of an annotation may raise
            continue
    # A name that only type checkers know. If an object of it comes, it is refused then.
    return {}


def names_for(classes: list[type]) -> dict[str, type]:
    """Every name a class may go by in the data; the first one of each is the one to write."""
    found: dict[str, list[type]] = {}
    for spell in (_short, _qualified, _full):
        for cls in classes:
            holders = found.setdefault(spell(cls), [])
            if cls not in holders:
                holders.append(cls)
    names = {name: holders[0] for name, holders in found.items() if len(holders) == 1}
    for cls in classes:
        # Pydantic makes a class anew for each `Box[Annotated[int, Field(gt=0)]]`. Such a one has no
        # tag, and none is needed for natural JSON.
        if cls not in names.values() and not pydantic_types.is_parametrized(cls):
            raise BadInput(f"the annotation names two classes {_full(cls)}: rename one of them")
    return names


def _short(cls: type) -> str:
    return cls.__name__


def _qualified(cls: type) -> str:
    return cls.__qualname__


def _full(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


_AROUND = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


def resolved(annotation: Any) -> Any:
    """The type behind an alias, a NewType or something around a type."""
    while not isinstance(annotation, type):
        if typing.get_origin(annotation) in _AROUND:
            annotation = typing.get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        else:
            break
    return annotation


def must_fit(annotation: Any, value: Any) -> None:
    """Raise `Misfit` for a value that is of none of the classes that an annotation names."""
    annotation = resolved(annotation)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    kind = origin or annotation
    if origin in (typing.Union, types.UnionType):
        _must_fit_one(annotation, value)
    elif is_typed_dict(kind):
        _must_be(dict, kind, value)
        if missing := sorted(required_keys(kind) - value.keys()):
            raise Misfit(f"{kind.__name__}{{at}} has a key {missing[0]!r}, and the value has not")
        for name, hint in hints_of(kind).items():
            if name in value:
                _must_fit_at(label(name), hint, value[name])
    elif isinstance(kind, type):
        _must_be((int, float) if kind is float else kind, kind, value)
        if isinstance(value, Mapping) and len(inner) == 2:
            for key, item in value.items():
                _must_fit_at(label(key), inner[1], item)
        elif inner and isinstance(value, list | tuple | set | frozenset):
            is_fixed = kind is tuple and inner[-1] is not Ellipsis
            for index, item in enumerate(value):
                place = min(index, len(inner) - 1) if is_fixed else 0
                _must_fit_at(f"[{index}]", inner[place], item)
        elif not pydantic_types.is_pydantics(
            kind
        ):  # a model was held to its fields when it was made
            for name, hint in hints_of(kind).items():
                if hasattr(value, name):
                    _must_fit_at(f".{name}", hint, getattr(value, name))


def _must_be(kinds: Any, named: Any, value: Any) -> None:
    if pydantic_types.is_leaf(named):  # values of `EmailStr` are texts
        pydantic_types.adapter_of(named).enter(value)
    elif kinds is not object and not isinstance(value, kinds):
        raise Misfit(f"expected {name_of(named)}{{at}}, found {type(value).__name__}")


def _must_fit_one(annotation: Any, value: Any) -> None:
    members = [each for each in typing.get_args(annotation) if each is not type(None)]
    if value is None and len(members) < len(typing.get_args(annotation)):
        return
    refused = []
    for member in members:
        try:
            return must_fit(member, value)
        except Misfit as misfit:
            refused.append(misfit)
    if len(refused) == 1:
        raise refused[0]
    raise Misfit(f"expected {name_of(annotation)}{{at}}, found {type(value).__name__}")


def _must_fit_at(where: str, annotation: Any, value: Any) -> None:
    try:
        must_fit(annotation, value)
    except Misfit as misfit:
        raise misfit.under(where) from None


# The JSON Schema of a type: it tells models what a tool takes, and people what to answer.


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type: by pydantic if it leads to a type of its own, else by msgspec. Empty
    for a type that has none.

    >>> schema_of(list[int])
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    inner: dict[str, Any] = {}

    def hook(cls: Any) -> dict[str, Any]:
        if cls in TEXTS:
            return {"type": "string"}
        schema = adapter_of(cls).schema()
        inner.update(schema.pop("$defs", {}))
        return schema

    try:
        declared = reach(kind)
        if declared.pydantic and not declared.loose:
            adapter = PydanticAdapter.of(kind, hides=False)
            if adapter is not None:
                return adapter.schema()
        (found,), definitions = msgspec.json.schema_components(
            [kind], schema_hook=hook, ref_template="#/$defs/{name}"
        )
        return {**found, **({"$defs": all_} if (all_ := definitions | inner) else {})}
    # There are many ways to say that a type has no schema.
    except Exception:
        return _schema_by_parts(kind)


def _schema_by_parts(kind: Any) -> dict[str, Any]:
    """The schema of a type that msgspec has none for as a whole: a union of two dataclasses.
    Where none is known, a model may put what it likes."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    definitions: dict[str, Any] = {}
    parts = [taken_apart(schema_of(part), definitions) for part in inner if part is not ...]
    if origin in (typing.Union, types.UnionType):
        found: dict[str, Any] = {"anyOf": parts}
    elif origin in (list, set, frozenset) or (origin is tuple and inner[-1] is ...):
        found = {"type": "array", "items": parts[0]}
    elif origin in (dict, Mapping):
        found = {"type": "object", "additionalProperties": parts[1]}
    else:
        return {}
    return {**found, **({"$defs": definitions} if definitions else {})}


def taken_apart(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema whose definitions stand at the root, where they are looked for: under a name that
    nothing else of another content has."""
    inner = schema.pop("$defs", {})
    names = {name: _free_name(name, each, definitions) for name, each in inner.items()}
    definitions |= {names[name]: _renamed(each, names) for name, each in inner.items()}
    renamed: dict[str, Any] = _renamed(schema, names)
    return renamed


def _free_name(name: str, schema: Any, definitions: Mapping[str, Any]) -> str:
    free, number = name, 1
    while free in definitions and definitions[free] != schema:
        number += 1
        free = f"{name}_{number}"
    return free


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    if isinstance(schema, list):
        return [_renamed(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    done = {key: _renamed(value, names) for key, value in schema.items()}
    target = done.get("$ref")
    if isinstance(target, str) and (name := target.removeprefix("#/$defs/")) in names:
        done["$ref"] = f"#/$defs/{names[name]}"
    return done
