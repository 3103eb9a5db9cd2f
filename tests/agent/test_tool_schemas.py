"""What a model is told of a tool: a schema that holds by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic

from holdfast import tool
from holdfast.agent.tooling import info_of


class Item(pydantic.BaseModel):
    count: int


class Order(pydantic.BaseModel):
    items: list[Item]


def other_order() -> Any:
    class Item(pydantic.BaseModel):
        name: str

    class Order(pydantic.BaseModel):
        items: list[Item]

    return Order


Other = other_order()


@dataclass
class Address:
    street: str


@tool
def move_order(old: Order, new: Other, to: Address) -> None:  # type: ignore[valid-type]
    """Move what was ordered."""


def resolved(schema: Any, root: dict[str, Any]) -> Any:
    """A schema with what it refers to in its place; a `KeyError` where that is nowhere."""
    if isinstance(schema, list):
        return [resolved(each, root) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolved(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    return {key: resolved(each, root) for key, each in schema.items()}


def test_what_a_schema_refers_to_is_found_at_its_root():
    parameters = info_of(move_order).parameters
    found = resolved(parameters["properties"], parameters)
    assert list(found["old"]["properties"]["items"]["items"]["properties"]) == ["count"]
    assert list(found["new"]["properties"]["items"]["items"]["properties"]) == ["name"]
    assert list(found["to"]["properties"]) == ["street"]
