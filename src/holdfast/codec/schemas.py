"""The JSON Schema of a type: it tells models what a tool takes, and people what to answer."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.codec.classes import reach
from holdfast.codec.pydantic_types import PydanticAdapter, adapter_of
from holdfast.codec.scalars import TEXTS


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
