"""Exceptions as facts that can be written down."""

from __future__ import annotations

import traceback
from collections.abc import Iterable

from holdfast.events import Failure
from holdfast.redact import Redact


def failure_of(
    error: BaseException, redact: Redact, *, timed_out: bool = False, also: Iterable[str] = ()
) -> Failure:
    """An exception as a fact that can be written down, without the secrets in it.

    What is recorded is what the task sees, on the first run as well. `also` are texts that are
    secret just here.
    """
    kind = type(error)
    try:
        message = str(error)
    except Exception as broken:
        message = f"(its message can't be shown: {type(broken).__name__})"
    found = Failure(
        str(kind.__qualname__),
        _encodable(message),
        _encodable("".join(traceback.format_exception(error))),
        str(kind.__module__),
        timed_out,
    )
    return redact.failure(found, also)


def _encodable(text: str) -> str:
    # Lone surrogates can't be written as UTF-8, and a failure must always be recordable.
    return text.encode("utf-8", "backslashreplace").decode()
