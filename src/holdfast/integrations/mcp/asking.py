"""From a question of a task to a form that a client shows its user, and from the form back.

A form of MCP is flat: an object whose fields are texts, numbers, booleans, or choices. A question
that asks for such an object is put as it is. A question for a single such value gets a form with
the one field `answer`. Anything deeper is asked for as JSON in a text, with the schema beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core.decoding import Illegible, decode
from holdfast.core.state import Call
from holdfast.errors import BadInput

ANSWER = "answer"
"""The field of a form that asks for one value."""

_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
}
_SIMPLE = {"string", "number", "integer", "boolean"}


class Declined(Exception):
    """The user would not answer, and the question has no answer that says so."""


def key_of(question: Call) -> str:
    """The name of a question for a client. No other question of the task is ever called so, not
    even the same one after a rewind: the event that asked it is part of the name.

    >>> from datetime import datetime
    >>> key_of(Call("2", "ask", "question", "waiting", datetime(2026, 1, 1), key="room", seq=7))
    'room@7'
    """
    return f"{question.key}@{question.seq}"


def request_of(question: Call) -> dict[str, Any]:
    """The question as a request for elicitation."""
    message = question.why
    if question.refused:
        message = f"{message}\n(The last answer did not fit: {question.refused})"
    params = {"mode": "form", "message": message, "requestedSchema": _form(question)}
    return {"method": "elicitation/create", "params": params}


def answer_to(question: Call, response: Any) -> Any:
    """The answer in a client's response. `Declined` if there is none, `BadInput` if it is none."""
    if not isinstance(response, Mapping) or response.get("action") not in _ACTIONS:
        raise BadInput(f"a response to {key_of(question)} is an object with an action: {_WORDS}")
    if response["action"] != "accept":
        if question.expects == "bool":
            return False
        raise Declined(f"the user chose to {response['action']} the question: {question.why:.200}")
    content = response.get("content")
    if not isinstance(content, Mapping):
        raise BadInput(f"the response to {key_of(question)} has no content")
    if _flat(question) is not None:
        return dict(content)
    given = _given(question, content)
    if question.expects in _PLAIN or _single(question) is not None:
        return given
    return _read(question, given)


_ACTIONS = ("accept", "decline", "cancel")
_WORDS = ", ".join(_ACTIONS)


def _given(question: Call, content: Mapping[str, Any]) -> Any:
    """The one value of a form. Clients that make a form of their own may call it otherwise."""
    if ANSWER in content:
        return content[ANSWER]
    fits = [value for value in content.values() if _fits(question.expects, value)]
    if len(fits) != 1:
        raise BadInput(f"the response to {key_of(question)} has no field {ANSWER!r}")
    return fits[0]


def _fits(expects: str, value: Any) -> bool:
    if expects == "bool" or isinstance(value, bool):
        return expects == "bool" and isinstance(value, bool)
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}
    return isinstance(value, kinds.get(expects, ()))


def _read(question: Call, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return decode(given.encode())
    except (Illegible, UnicodeError) as error:
        raise BadInput(
            f"the answer to {key_of(question)} must be the JSON of {question.expects}: {error}"
        ) from None


def _form(question: Call) -> dict[str, Any]:
    if (flat := _flat(question)) is not None:
        return flat
    field = _PLAIN.get(question.expects) or _single(question)
    if field is None:
        told = f"The JSON of {question.expects}"
        schema = _schema(question)
        more = f", by this schema: {msgspec.json.encode(schema).decode()}" if schema else ""
        field = {"type": "string", "description": told + more}
    if question.approves:
        field = {**field, "title": "Approve"}
    return {"type": "object", "properties": {ANSWER: field}, "required": [ANSWER]}


def _schema(question: Call) -> dict[str, Any]:
    """The facts about the type that a question asks for: its schema, if the code recorded it."""
    found = decode(bytes(question.schema)) if isinstance(question.schema, Raw) else {}
    return found if isinstance(found, dict) else {}


def _flat(question: Call) -> dict[str, Any] | None:
    """The schema as a form, if every field of it is simple."""
    schema = _schema(question)
    whole = _named(schema, schema)
    properties = whole.get("properties")
    if whole.get("type") != "object" or not isinstance(properties, dict) or not properties:
        return None
    fields = {name: _simple(each, schema) for name, each in properties.items()}
    if not all(fields.values()):
        return None
    required = [name for name in whole.get("required", []) if name in fields]
    return {"type": "object", "properties": fields, "required": required}


def _single(question: Call) -> dict[str, Any] | None:
    schema = _schema(question)
    return _simple(schema, schema) if schema else None


def _simple(field: Any, root: Mapping[str, Any]) -> dict[str, Any] | None:
    """A field as a form has it; None if a form can't."""
    if not isinstance(field, dict):
        return None
    found = _named(field, root)
    kept = {k: v for k, v in found.items() if k in _KEPT}
    options = found.get("enum")
    if isinstance(options, list) and options and all(isinstance(o, str) for o in options):
        return {**kept, "type": "string", "enum": options}
    if found.get("type") in _SIMPLE and "enum" not in found:
        return kept
    either = [each for each in found.get("anyOf", ()) if each != {"type": "null"}]
    if len(either) == 1:  # it may be left out
        inner = _simple(either[0], root)
        return None if inner is None else {**inner, **{k: v for k, v in kept.items() if v}}
    return None


_KEPT = frozenset(
    {"type", "title", "description", "default", "enum", "format", "pattern"}
    | {"minLength", "maxLength", "minimum", "maximum"}
)


def _named(schema: dict[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """A schema, or the one that it refers to."""
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#/$defs/"):
        inner = root.get("$defs", {}).get(target.removeprefix("#/$defs/"))
        return inner if isinstance(inner, dict) else {}
    return schema
