"""How a call of a model fails: for now, or for good.

    ModelFailed
    ├── ModelBusy        another attempt may go through
    └── ModelRejected    another attempt would be refused the same

The errors of the clients are told apart by what they carry, not by their classes: no library has to
be loaded for it, and those of servers that only look like a provider's are told apart as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.spec import Retry

_MOST_SHOWN = 1000

_BUSY_STATUSES = (408, 409, 425, 429)

_FINAL_KINDS = {
    *("invalid_request_error", "authentication_error", "permission_error", "not_found_error"),
    *("request_too_large", "billing_error", "insufficient_quota", "invalid_prompt"),
    *("context_length_exceeded", "image_parse_error", "invalid_image", "invalid_base64_image"),
}
"""What an error is called that comes inside of a reply, where the status was a good one."""

_FINAL_WHEN_BUSY = {"insufficient_quota", "billing_error"}
"""What is called too many requests, and is a bill to be paid."""


class ModelFailed(HoldfastError):
    """A call of a model that brought no reply.

    `status` is the HTTP status, if there was one, `retry_after_s` what the provider asked for. It
    is no failure that a model refuses, says nothing or is cut off: those are replies.

    >>> issubclass(ModelBusy, ModelFailed) and issubclass(ModelRejected, ModelFailed)
    True
    """

    retryable = False

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class ModelBusy(ModelFailed):
    """It may go through later: too many requests, an overloaded server, a broken connection.

    >>> ModelBusy("429: too many requests", status=429, retry_after_s=2.0).retryable
    True
    """

    retryable = True


class ModelRejected(ModelFailed):
    """It would be refused again: a wrong key, an unknown model, a request that makes no sense.

    >>> ModelRejected("401: wrong key", status=401).retryable
    False
    """


model_retry = Retry(attempts=6, delay_s=1, max_delay_s=60, unless=(ModelRejected,))
"""How a step that calls a model is well retried: `@step(retry=model_retry)`."""


def failed(error: Exception, what: str, otherwise: type[ModelFailed]) -> ModelFailed:
    """An exception of a client as one of ours. `otherwise`: what one is that says nothing."""
    if isinstance(error, ModelFailed):
        return error
    status = getattr(error, "status_code", None)
    status = status if isinstance(status, int) else None
    headers = getattr(getattr(error, "response", None), "headers", None)
    headers = headers if isinstance(headers, Mapping) else {}
    body = getattr(error, "body", None)
    kind = _kind_of_failure(error, status, headers, kinds_in(body)) or otherwise
    shown = str(error)[:_MOST_SHOWN] or "(it says nothing)"
    return kind(
        f"{what}: {type(error).__name__}: {shown}",
        status=status,
        retry_after_s=retry_after_of(headers),
    )


def failed_inside(error: Any, what: str) -> ModelFailed:
    """An error that came as a reply."""
    kind = ModelRejected if kinds_in(error) & _FINAL_KINDS else ModelBusy
    return kind(f"{what}: {error!s:.{_MOST_SHOWN}}")


def _kind_of_failure(
    error: Exception, status: int | None, headers: Mapping[str, str], kinds: set[str]
) -> type[ModelFailed] | None:
    if headers.get("x-should-retry") in ("true", "false"):
        return ModelBusy if headers["x-should-retry"] == "true" else ModelRejected
    if status is not None and status >= 400:
        is_busy = status in _BUSY_STATUSES or status >= 500
        return ModelRejected if not is_busy or kinds & _FINAL_WHEN_BUSY else ModelBusy
    if _is_of_the_connection(error):
        return ModelBusy
    if kinds:
        return ModelRejected if kinds & _FINAL_KINDS else ModelBusy
    return None


def _is_of_the_connection(error: Exception) -> bool:
    for kind in type(error).__mro__:
        if kind.__name__ in ("APIConnectionError", "APIResponseValidationError", "TransportError"):
            return True
    # What is no JSON was cut on its way, or said by a server in between.
    return isinstance(error, OSError | JSONDecodeError)


def kinds_in(body: Any) -> set[str]:
    """What an error is called in the body of an answer."""
    found: set[str] = set()
    for place in (body, body.get("error") if isinstance(body, dict) else None):
        if isinstance(place, dict):
            named = (place.get("type"), place.get("code"))
            found |= {name for name in named if isinstance(name, str)}
    return found - {"error"}


def retry_after_of(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """How long a provider asks to wait, in seconds.

    >>> retry_after_of({"retry-after-ms": "1500", "retry-after": "2"}), retry_after_of({})
    (1.5, None)
    """
    for name, parts in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        if (given := headers.get(name)) is None:
            continue
        try:
            return _sane(float(given) / parts)
        except ValueError:
            pass
        try:
            until = parsedate_to_datetime(given)
        except ValueError:
            continue
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return _sane((until - (now or datetime.now(UTC))).total_seconds())
    return None


def _sane(seconds: float) -> float | None:
    return seconds if 0 <= seconds < float("inf") else None
