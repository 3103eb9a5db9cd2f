"""What an annotation declares: the classes that a value under it may be made of."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from holdfast.codec.classes import is_pydantic, record_of
from holdfast.errors import BadInput
from holdfast.secret import Secret


class Reached(NamedTuple):
    """What an annotation leads to: the classes it declares, whether all types are concrete, and
    whether `Secret` is among them."""

    classes: list[type]
    concrete: bool
    secret: bool


def reach(annotation: Any) -> Reached:
    """Follow an annotation through generics, unions and the fields of classes."""
    classes: list[type] = []
    concrete = True
    seen: dict[int, Any] = {}  # by identity, since not all that stands in one has a hash
    todo = [annotation]
    while todo:
        this = todo.pop()
        if id(this) in seen:
            continue
        seen[id(this)] = this
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
        todo.extend(hints_of(this).values())
    return Reached(classes, concrete, any(this is Secret for this in seen.values()))


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


def hints_of(cls: Any) -> dict[str, Any]:
    """The fields of a class, with their annotations."""
    if is_pydantic(cls):
        return {name: field.annotation for name, field in cls.model_fields.items()}
    if issubclass(cls, Enum) or (record_of(cls) is None and not typing.is_typeddict(cls)):
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
        if cls not in names.values():
            raise BadInput(f"the annotation names two classes {_full(cls)}: rename one of them")
    return names


def _short(cls: type) -> str:
    return cls.__name__


def _qualified(cls: type) -> str:
    return cls.__qualname__


def _full(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
