"""The one decoder of everything that is read from outside: logs, and files derived from them.

msgspec says of bytes that are no JSON of a kind that they are not (`MsgspecError`). It raises other
errors too, which its pages don't name: `RecursionError` at about 1,000 levels, `TypeError` where
the name of a type is an object, `UnicodeDecodeError`, `OverflowError` and `ValueError` in numbers
and times. A line with a right sum, a lock file or an archive may hold any of that. So a
reader has one error to think of, `Illegible`. It is damage by itself. A caller that knows where the
bytes came from adds that, and a reader of derived data goes to the log instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar, cast, overload

import msgspec
from msgspec import Raw

from holdfast.errors import LogDamaged

T = TypeVar("T")
Data = bytes | bytearray | memoryview | str | Raw

NONSENSE = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
    msgspec.MsgspecError,
)  # fmt: skip
"""Errors that well-formed but senseless data raises, far from any decoder."""

MOST_LEVELS = 400
"""How deeply what is written may be nested: less than any Python can read, and more than a value
of 100 levels takes with all its tags. Where fewer are too many, the stack is to blame."""

_PIECE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|([\[{])|[\]}]')


class Illegible(LogDamaged):
    """Bytes that are no JSON of the kind that was expected. `what` says why not."""

    def __init__(self, what: str) -> None:
        super().__init__("", 0, what)
        self.args: tuple[Any, ...] = (what,)


def decoder(kind: type[T]) -> Callable[[Data], T]:
    """A function that makes a value of that type from JSON, or raises `Illegible`.

    >>> decoder(list[int])(b"[1, 2]")
    [1, 2]
    >>> decoder(object)(b"[" * 20_000)
    Traceback (most recent call last):
    holdfast.core.decoding.Illegible: it is nested too deeply
    """
    made: Callable[[Data], T] = _decoder(cast(Any, kind))
    return made


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> Callable[[Data], Any]:
    read: Callable[[Data], Any] | None = None

    def decoded(data: Data) -> Any:
        nonlocal read
        if read is None:  # not before: together these take a tenth of an import
            read = msgspec.json.Decoder(kind).decode
        try:
            return read(data)
        except NONSENSE as error:
            if isinstance(error, RecursionError) and not is_too_deep(data):
                raise  # it is the caller who has gone too deep
            raise Illegible(_why(error)) from None

    return decoded


@overload
def decode(data: Data) -> Any: ...
@overload
def decode(data: Data, kind: type[T]) -> T: ...
def decode(data: Data, kind: Any = object) -> Any:
    """The same at once.

    >>> decode(b'{"a":1}')
    {'a': 1}
    """
    return _decoder(kind)(data)


@contextmanager
def damage_in(stream: str, seq: int = 0) -> Iterator[None]:
    """Say whose damage it is where events of one log are read that make no sense together, or
    values of it."""
    try:
        yield
    except LogDamaged as error:
        raise placed(error, stream, seq) from error.__cause__
    except NONSENSE as error:
        what = f"its events make no sense together ({shown(error)})"
        raise LogDamaged(stream, seq, what) from error


def placed(error: LogDamaged, stream: str, seq: int = 0) -> LogDamaged:
    """An error of somebody who did not know in which log it is."""
    if isinstance(error, Illegible):
        return LogDamaged(stream, seq, error.what)
    if error.stream.startswith("blobs/"):
        return LogDamaged(stream, seq, f"it has a value in {error.stream}, and {error.what}")
    return error


def shown(error: BaseException) -> str:
    """An error as it is told: in short, for it may quote what was read."""
    text = repr(error)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error) if isinstance(error, msgspec.MsgspecError) else shown(error)
    return text if len(text) <= 200 else f"{text[:200]}…"


def is_too_deep(data: Data) -> bool:
    """Whether JSON has more levels than may be written.

    >>> (
    ...     is_too_deep(b"[" * 400 + b"]" * 400),
    ...     is_too_deep(b"[" * 401),
    ...     is_too_deep(b'"%b"' % (b"[" * 999)),
    ... )
    (False, True, False)
    """
    text = data.encode() if isinstance(data, str) else bytes(data)
    if text.count(b"[") + text.count(b"{") <= MOST_LEVELS:
        return False
    level = 0
    for found in _PIECE.finditer(text):
        if found[1]:
            level += 1
            if level > MOST_LEVELS:
                return True
        elif found[0] in b"]}":
            level -= 1
    return False
