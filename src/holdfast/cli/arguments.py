"""From words on a command line to the arguments of a function.

A word is JSON where it can be read as such, else text; and JSON becomes what the parameter's
annotation says, so a datetime, a dataclass or a Path can be given as it would stand in the log.
"""

from __future__ import annotations

import inspect
import re
import shlex
import typing
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec

from holdfast.cli.text import short, to_json
from holdfast.codec import shape_of
from holdfast.codec.scalars import name_of
from holdfast.codec.secret import Secret
from holdfast.core.decoding import Illegible, decode
from holdfast.core.spec import Spec
from holdfast.errors import BadInput, Undecodable

_OPTIONS = ("id", "user", "session", "label")


def arguments_of(
    spec: Spec, words: Sequence[str], named: Mapping[str, str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments to call a task's function with, or `BadInput` that says what does not fit."""
    bound = _bound(spec, words, named)
    hints = typing.get_type_hints(spec.fn, include_extras=True)
    for name, given in bound.arguments.items():
        hint = hints.get(name, Any)
        match bound.signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_fitting(name, hint, word) for word in given)
            case inspect.Parameter.VAR_KEYWORD:
                fitting = {key: _fitting(key, hint, word) for key, word in given.items()}
                bound.arguments[name] = fitting
            case _:
                bound.arguments[name] = _fitting(name, hint, given)
    return bound.args, bound.kwargs


def _bound(spec: Spec, words: Sequence[str], named: Mapping[str, str]) -> inspect.BoundArguments:
    signature = inspect.signature(spec.fn)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    unknown = [name for name in named if name not in signature.parameters]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        meant = f": use the option --{unknown[0]}" if unknown[0] in _OPTIONS else ""
        raise BadInput(f"{spec.name} has no argument {unknown[0]!r}{meant}. It is {_shown(spec)}")
    try:
        return signature.bind(*words, **named)
    except TypeError as error:
        raise BadInput(f"{spec.name}: {error}. It is {_shown(spec)}") from None


def _shown(spec: Spec) -> str:
    try:
        signature = inspect.signature(spec.fn, eval_str=True)
    except Exception:  # whatever the text of an annotation may raise
        signature = inspect.signature(spec.fn)
    return f"{spec.name}{signature}"


def _fitting(name: str, hint: Any, word: str) -> Any:
    value, shape = value_of(word), shape_of(hint)
    if Secret in (hint, *typing.get_args(hint)) and isinstance(value, str):
        raise BadInput(
            f"argument {name}: a secret is given by its name, which is looked up where the task "
            f'runs: \'{{"$secret": "OPENAI_API_KEY"}}\''
        )
    try:
        return shape.accept(msgspec.json.encode(value))
    except UnicodeEncodeError:
        raise BadInput(f"argument {name}: {word!a:.60} is not UTF-8") from None
    except Undecodable as error:
        why = str(error.__cause__ or error)
        within = "" if why.startswith("Expected") and " - at " not in why else f" ({why})"
        raise BadInput(
            f"argument {name}: expected {name_of(hint)}, got {short(value)}{within}"
            f"{_as_text(word, value, hint)}"
        ) from None


def _as_text(word: str, value: Any, hint: Any) -> str:
    """Advice to quote the word, where it would fit as a text."""
    if isinstance(value, str):
        return ""
    try:
        shape_of(hint).accept(msgspec.json.encode(word))
    except Undecodable:
        return ""
    return f". For the text {word} write {quoted(word)}, with both pairs of quotes"


def quoted(word: str) -> str:
    """A text as JSON, for a shell.

    >>> print(quoted("3"))
    '"3"'
    """
    return shlex.quote(to_json(word))


def value_of(word: str) -> Any:
    """JSON where it can be read as such, else the text itself.

    >>> value_of("3"), value_of("Oslo"), value_of('"3"')
    (3, 'Oslo', '3')
    """
    try:
        return decode(word.encode())
    except (Illegible, UnicodeError):
        return word


def json_of(word: str) -> Any:
    """An argument that must be JSON, or `BadInput`.

    >>> json_of('["a"]')
    ['a']
    """
    try:
        return decode(word.encode())
    except (Illegible, UnicodeError) as error:
        raise BadInput(
            f"{word!r} is not JSON ({error}): a text needs quotes inside quotes, '\"like this\"'"
        ) from None


# Times and sizes as people write them: `30d`, `10GB`.


_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.ASCII)


def _amount(text: str, units: dict[str, int]) -> float | None:
    found = _AMOUNT.fullmatch(text.lower())
    if found is None or found[2] not in units:
        return None
    return float(found[1]) * units[found[2]]


class AgeParam(click.ParamType[timedelta]):
    """A length of time."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """
        >>> AgeParam().convert("36h", None, None)
        datetime.timedelta(days=1, seconds=43200)
        """
        if isinstance(value, timedelta):
            return value
        seconds = _amount(value, _SECONDS)
        try:
            if seconds is not None:
                return timedelta(seconds=seconds)
        except OverflowError:
            pass
        self.fail(f"{value!r} is no length of time: give 30d, 12h, 45m, 2w or 90s", param, ctx)


class Size(click.ParamType[int]):
    """A number of bytes."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """
        >>> Size().convert("1.5 GB", None, None), Size().convert("2MiB", None, None)
        (1500000000, 2097152)
        """
        if isinstance(value, int):
            return value
        size = _amount(value, _BYTES)
        if size is None:
            self.fail(f"{value!r} is no size: give 500MB, 10GB, 2GiB or bytes", param, ctx)
        return int(size)


def bytes_text(size: int) -> str:
    """A number of bytes, for people.

    >>> bytes_text(999), bytes_text(1_234_567)
    ('999 bytes', '1.2 MB')
    """
    for unit, least in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} byte{'' if size == 1 else 's'}"


# Times on the command line: how long ago, or a date.


_AGO = re.compile(r"(\d{1,9})\s*([smhdw])")
_AGO_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def time_of(text: str, now: datetime) -> datetime | None:
    """The time that is meant; None if none is. A date without a zone is one where we are.

    >>> noon = datetime(2026, 5, 8, 12, tzinfo=UTC)
    >>> print(time_of("7d", noon), time_of("2026-05-01T10:00Z", noon), time_of("soon", noon))
    2026-05-01 12:00:00+00:00 2026-05-01 10:00:00+00:00 None
    """
    try:
        if ago := _AGO.fullmatch(text.strip()):
            return now - timedelta(seconds=int(ago[1]) * _AGO_SECONDS[ago[2]])
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def when(ctx: click.Context, param: click.Parameter, given: str | None) -> datetime | None:
    """An option that is a time."""
    if given is None:
        return None
    found = time_of(given, datetime.now(UTC))
    if found is None:
        raise click.BadParameter(
            f"{given!r} is no time: give how long ago (30m, 12h, 7d, 2w), or a date such as "
            f"2026-01-31 or 2026-01-31T18:00",
            ctx,
            param,
        )
    return found
