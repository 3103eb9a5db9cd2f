"""From words on a command line to the arguments of a function.

A word is JSON where it can be read as such, else text; and JSON becomes what the parameter's
annotation says, so a datetime, a dataclass or a Path can be given as it would stand in the log.
"""

from __future__ import annotations

import inspect
import shlex
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.cli.text import short, to_json
from holdfast.codec import shape_of
from holdfast.codec.misfit import name_of
from holdfast.decoding import Illegible, decode
from holdfast.errors import BadInput, Undecodable
from holdfast.secret import Secret
from holdfast.spec import Spec
from holdfast.task import RESERVED


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
    if taken := sorted(RESERVED & named.keys()):
        raise BadInput(f"a task has no argument {taken[0]!r}: use the option --{taken[0]}")
    signature = inspect.signature(spec.fn)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    unknown = [name for name in named if name not in signature.parameters]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise BadInput(f"{spec.name} has no argument {unknown[0]!r}. It is {_shown(spec)}")
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
        return shape.load(msgspec.json.encode(value))
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
        shape_of(hint).load(msgspec.json.encode(word))
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
    """What must be JSON, or `BadInput`.

    >>> json_of('["a"]')
    ['a']
    """
    try:
        return decode(word.encode())
    except (Illegible, UnicodeError) as error:
        raise BadInput(
            f"{word!r} is not JSON ({error}): a text needs quotes inside quotes, '\"like this\"'"
        ) from None
