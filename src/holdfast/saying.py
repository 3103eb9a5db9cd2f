"""What a task says beside its calls: how it gets into the log."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.codec import shape_of
from holdfast.decoding import is_too_deep
from holdfast.errors import BadInput, HoldfastError
from holdfast.log import Appended
from holdfast.scope import Scope

_any = shape_of(Any)


def record(scope: Scope, event: Appended) -> None:
    """Append what a task said, and wait until it is durable. A rehearsal leaves it out."""
    if scope.run.is_rehearsal:
        return
    append(scope, event)
    scope.run.sync()


def append(scope: Scope, event: Appended) -> None:
    """Append it, and let the next sync make it durable."""
    try:
        scope.run.log.append(event, scope)
    except BadInput:
        raise  # the caller's mistake, and nothing was written
    except HoldfastError as error:
        scope.run.halt(error)


def plain(value: Any) -> bytes:
    """Options and data, which are for people and views: classes are shown as their fields."""
    try:
        return _any.dump(value)
    except HoldfastError:
        try:
            data = msgspec.json.encode(value, enc_hook=repr)
            if is_too_deep(data):
                raise RecursionError
            return data
        except RecursionError:
            raise BadInput(f"a {type(value).__name__} is nested too deep to be recorded") from None
        except (UnicodeError, ValueError) as error:
            raise BadInput(f"{value!a:.60} can't be recorded: {error}") from None
