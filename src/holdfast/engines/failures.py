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


def retry_after_s(error: BaseException) -> float:
    """How long the one who raised asks to wait before another attempt; 0 if it doesn't."""
    try:
        asked = getattr(error, "retry_after_s", None)
    except Exception:  # an exception of somebody's own, and no reason to lose it
        return 0.0
    if not isinstance(asked, int | float) or isinstance(asked, bool):
        return 0.0
    return float(min(asked, 1e9)) if asked > 0 else 0.0


def _encodable(text: str) -> str:
    # Lone surrogates can't be written as UTF-8, and a failure must always be recordable.
    return text.encode("utf-8", "backslashreplace").decode()
