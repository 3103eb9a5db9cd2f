"""Secrets in values: a name is written, a value never is.

A named secret is a tag like any other, `{"$secret": "OPENAI_API_KEY"}`. A value can also
be part of a call's arguments, which the task hands over anew on every run: the bytes hold its
number, `{"$secret": 0}`, and the secret itself goes beside them in memory. Anywhere else it is
refused, because nobody could read it back.

Arguments that are hidden by the name of their parameter are replaced after they were encoded:
what the function gets is decoded from the whole bytes, what is written are the others.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import msgspec
from msgspec import Raw

from holdfast.codec.classes import hints_of, is_typed_dict, resolved
from holdfast.codec.scalars import Misfit, label
from holdfast.codec.secret import Secret, by_name, know

HIDDEN = b'{"$redacted":true}'
"""The placeholder in the log for a hidden argument."""

_MISSING = re.compile(rb'\{"\$redacted":true\}|\{"\$secret":\d')
_NAMED = re.compile(rb'\{"\$secret":"(?:[^"\\]|\\.)*"\}')
_SHOWN = (b"null", b"true", b"false", HIDDEN)


_kept: ContextVar[list[Any] | None] = ContextVar("holdfast_kept", default=None)


class Arguments(bytes):
    """Encoded arguments, and the secrets that they have only the numbers of."""

    secrets: list[Any]


def with_secrets(data: bytes, secrets: list[Any]) -> bytes:
    """The same bytes, with the secrets beside them."""
    kept_with: Any = data if type(data) is not bytes else Arguments(data)
    kept_with.secrets = secrets
    return cast("bytes", kept_with)


class Unkept(Misfit):
    """A secret that is its value, where there is nobody to keep it."""


@contextmanager
def keeping(secrets: list[Any]) -> Iterator[list[Any]]:
    """Keep the secrets of what is written in the list; find those of what is read there."""
    token = _kept.set(secrets)
    try:
        yield secrets
    finally:
        _kept.reset(token)


def write_secret(secret: Any, depth: int) -> Any:
    """A secret, ours or pydantic's, as a tag; or `Unkept`."""
    if type(secret) is Secret:
        if secret.name:
            return {"$secret": secret.name}
    else:
        know(str(secret.get_secret_value()))
    kept_here = _kept.get()
    if kept_here is None:
        raise Unkept(
            f"a {type(secret).__name__}{{at}} can't be stored: its value must not reach the log, "
            f"and a replay could not read it back. Refer to it by name, Secret.named(…), or read "
            f"it where it is used"
        )
    kept_here.append(secret)
    return {"$secret": len(kept_here) - 1}


def read_secret(tag: dict[str, Any]) -> Any:
    """The secret of a tag, by its name or by its number."""
    of = tag["$secret"]
    if type(of) is str and of:
        return by_name(of)
    kept_here = _kept.get()
    if kept_here is None or type(of) is not int or not 0 <= of < len(kept_here):
        raise Misfit("it holds a Secret, and the value of that was left out of the log")
    return kept_here[of]


def kept() -> int:
    """How many secrets were written by number so far."""
    return len(_kept.get() or ())


def is_whole(data: bytes) -> bool:
    """Whether arguments from a log are all there: a call can be made with them."""
    return _MISSING.search(data) is None


def is_complete(data: bytes) -> bool:
    """Whether the bytes of arguments say all of them: none is a secret that stands beside them."""
    return not getattr(data, "secrets", None) and is_whole(data)


# Hiding arguments by the names of their parameters

_split = msgspec.json.Decoder(dict[str, Raw]).decode


def without(
    data: bytes, hides: Callable[[str], bool], entries: str, is_open: Callable[[str], bool]
) -> tuple[bytes, tuple[str, ...]]:
    """Arguments with those left out whose parameter `hides` names; and what they were, if texts.

    `entries` is the parameter that takes what no other does (`**options`): it is looked into.
    What `is_open` may be the tag of a named secret, which gives nothing away, and is left.
    """
    given = _split(data)
    texts: list[str] = []

    def hide(found: dict[str, Raw], shape: Callable[[str], bool]) -> None:
        for name, raw in found.items():
            value = bytes(raw)
            if not hides(name) or value in _SHOWN or (shape(name) and _NAMED.fullmatch(value)):
                continue
            if value.startswith(b'"'):
                texts.append(msgspec.json.decode(value))
            found[name] = Raw(HIDDEN)

    hide(given, is_open)
    if entries in given and bytes(given[entries]) != HIDDEN:
        inner = _split(given[entries])
        hide(inner, lambda name: is_open(entries))
        given[entries] = Raw(msgspec.json.encode(inner))
    return msgspec.json.encode(given), tuple(texts)


def with_hidden(data: bytes, names: Iterable[str]) -> bytes:
    """Arguments with a mark for those of some names, whatever they are."""
    return msgspec.json.encode(_split(data) | dict.fromkeys(names, Raw(HIDDEN)))


def hidden_in(data: bytes, entries: str) -> frozenset[str]:
    """The names of the arguments that were left out of what a log holds."""
    given = _split(data)
    if entries in given and bytes(given[entries]) != HIDDEN:
        given |= _split(given[entries])
    return frozenset(name for name, raw in given.items() if bytes(raw) == HIDDEN)


# Where the annotation says Secret, nothing else will do


def must_be_secret(annotation: Any, value: Any) -> None:
    """Raise `Misfit` for a plain value where the annotation says `Secret`: it would be written."""
    annotation = resolved(annotation)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Secret:
        if type(value) is not Secret:
            kind = type(value).__name__
            raise Misfit(f"expected a Secret{{at}}, found {kind}: use Secret.named(…) or Secret(…)")
    elif origin in (typing.Union, types.UnionType):
        _must_be_one_of(inner, value)
    elif isinstance(value, Mapping) and not is_typed_dict(annotation):
        key_type, item_type = inner if len(inner) == 2 else (Any, Any)
        for key, item in value.items():
            _at(".keys()", key_type, key)
            _at(label(key), item_type, item)
    elif isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        is_fixed = origin is tuple and inner[-1:] != (...,)
        for index, item in enumerate(value):
            place = index if is_fixed else 0
            _at(f"[{index}]", inner[place] if place < len(inner) else Any, item)
    else:
        _check_fields(annotation if is_typed_dict(annotation) else type(value), value)


def _must_be_one_of(members: tuple[Any, ...], value: Any) -> None:
    misfit: Misfit | None = None
    for member in members:
        try:
            kind = typing.get_origin(resolved(member)) or resolved(member)
            if kind is Secret or isinstance(value, kind):
                return must_be_secret(member, value)
        except Misfit as error:
            misfit = error
        except TypeError:  # of a type that no value can be tested for, such as Any or a TypedDict
            return
    if misfit is not None:
        raise misfit


def _check_fields(cls: Any, value: Any) -> None:
    for name, hint in hints_of(cls).items():
        if isinstance(value, dict):
            if name in value:
                _at(label(name), hint, value[name])
        elif hasattr(value, name):
            _at(f".{name}", hint, getattr(value, name))


def _at(where: str, annotation: Any, value: Any) -> None:
    try:
        must_be_secret(annotation, value)
    except Misfit as misfit:
        raise misfit.under(where) from None
