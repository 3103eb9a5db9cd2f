"""From words on a command line to the arguments of a function.

A word is JSON where it can be read as such, else text; and JSON becomes what the parameter's
annotation says, so a datetime, a dataclass or a Path can be given as it would stand in the log.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import BadInput, Undecodable
from holdfast.spec import Spec
from holdfast.task import RESERVED


def arguments_of(
    spec: Spec, words: Sequence[str], named: Mapping[str, str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments to call a task's function with, or `BadInput` that says what does not fit."""
    if taken := sorted(RESERVED & named.keys()):
        raise BadInput(f"a task has no argument {taken[0]!r}: use the option --{taken[0]}")
    values = [value_of(word) for word in words]
    by_name = {name: value_of(word) for name, word in named.items()}
    try:
        given = inspect.signature(spec.fn).bind(*values, **by_name).arguments
        return spec.signature.load(msgspec.json.encode(given))
    except TypeError as error:
        raise BadInput(f"{spec.name}: {error}") from None
    except Undecodable as error:
        raise BadInput(
            f"{error}. Arguments are read as JSON where they can be: "
            f"for the text 3 write '\"3\"', with both pairs of quotes"
        ) from None


def value_of(word: str) -> Any:
    """JSON where it can be read as such, else the text itself.

    >>> value_of("3"), value_of("Oslo"), value_of('"3"')
    (3, 'Oslo', '3')
    """
    try:
        return msgspec.json.decode(word.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return word


def json_of(word: str) -> Any:
    """What must be JSON, or `BadInput`.

    >>> json_of('["a"]')
    ['a']
    """
    try:
        return msgspec.json.decode(word.encode())
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadInput(
            f"{word!r} is not JSON ({error}): a text needs quotes inside quotes, '\"like this\"'"
        ) from None
