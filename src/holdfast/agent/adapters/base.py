"""The common part of the adapters: one flow for blocking clients and awaited ones.

A flow yields what it wants called. The driver calls it, and awaits the result if the client is an
async one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from inspect import isawaitable
from json import JSONDecodeError
from time import monotonic, sleep
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from msgspec.structs import replace

from holdfast.agent.model import Reply, Request
from holdfast.core.limits import Limit, Limited, must_be_limited
from holdfast.core.scope import scope_var
from holdfast.core.spec import Retry
from holdfast.core.usage import Prices
from holdfast.errors import BadInput, HoldfastError

# How a call of a model fails: for now, or for good.
#
#     ModelFailed
#     ├── ModelBusy        another attempt may go through
#     └── ModelRejected    another attempt would be refused the same
#
# The errors of the clients are told apart by what they carry, not by their classes: no library has
# to be loaded for it, and those of servers that only look like a provider's are told apart as
# well.


_MOST_SHOWN = 1000

_BUSY_STATUSES = (408, 409, 425, 429)

_FINAL_KINDS = {
    *("invalid_request_error", "authentication_error", "permission_error", "not_found_error"),
    *("request_too_large", "billing_error", "insufficient_quota", "invalid_prompt"),
    *("context_length_exceeded", "image_parse_error", "invalid_image", "invalid_base64_image"),
}
"""The name of an error inside of a reply whose status was a good one."""

_FINAL_WHEN_BUSY = {"insufficient_quota", "billing_error"}
"""Errors that claim too many requests, and mean an unpaid bill."""


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


model_retry: Final = Retry(attempts=6, delay_s=1, max_delay_s=60, unless=(ModelRejected,))
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
    wait_s = retry_after_of(headers)
    if wait_s is None and status == 429:
        wait_s = used_up_for(headers) or None
    shown = str(error)[:_MOST_SHOWN] or "(it says nothing)"
    return kind(
        f"{what}: {type(error).__name__}: {shown}",
        status=status,
        retry_after_s=wait_s,
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
    # A body that is no JSON was cut on its way, or came from a server in between.
    return isinstance(error, OSError | JSONDecodeError)


def kinds_in(body: Any) -> set[str]:
    """The name of an error in the body of an answer."""
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
        if (until := _date(given)) is None:
            continue
        return _sane((until - (now or datetime.now(UTC))).total_seconds())
    return None


def _date(given: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(given)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _sane(seconds: float) -> float | None:
    return seconds if 0 <= seconds < float("inf") else None


_LIMITS = (
    ("x-ratelimit-remaining-{}", "x-ratelimit-reset-{}"),
    ("anthropic-ratelimit-{}-remaining", "anthropic-ratelimit-{}-reset"),
)
_LIMITED = ("requests", "tokens", "input-tokens", "output-tokens")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_RESET_S = 86400.0
"""No provider limits by more than a day: a larger number is a time, or is wrong."""


def used_up_for(headers: Mapping[str, str], now: datetime | None = None) -> float:
    """For how long a provider has nothing left for anybody, in seconds; 0 if it does not say so.

    >>> used_up_for({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m30s"})
    90.0
    """
    waits = [0.0]
    for left, reset in _LIMITS:
        for name in _LIMITED:
            if headers.get(left.format(name), "").strip() == "0":
                # The time of the provider's own clock, which ours may be far from.
                now = now or _date(headers.get("date", "")) or datetime.now(UTC)
                waits.append(_until_reset(headers.get(reset.format(name), "").strip(), now))
    return max(waits)


def _until_reset(given: str, now: datetime) -> float:
    """A duration (`1m30s`, `20ms`, `30`) or a time (`2026-01-31T12:00:00Z`), in seconds from now;
    0 if it is neither."""
    try:
        if not _SPAN.sub("", given):
            wait_s = sum(float(number) * _UNITS_S[unit] for number, unit in _SPAN.findall(given))
        elif given.replace(".", "", 1).isdecimal():
            wait_s = float(given)
        else:
            until = datetime.fromisoformat(given)
            until = until if until.tzinfo else until.replace(tzinfo=UTC)
            wait_s = (until - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
    return wait_s if 0 < wait_s <= _LONGEST_RESET_S else 0.0


Wish = Callable[[], Any]
T = TypeVar("T")
Flow = Generator[Wish, Any, T]

OnText = Callable[[str], Any]
"""Told each piece of text as it comes. With an async client it may be async as well."""

_END = object()

_pauses: dict[tuple[str, str], float] = {}
"""Until when a provider asked everybody in this process to wait."""

_LONGEST_PAUSE_S = 60.0
"""How long a call waits for that itself: providers limit by the minute. Where it takes longer, the
call fails, so that its task can wait without anything that runs."""


class BlockingClient(Protocol):
    """A client whose calls return the answer."""

    def __enter__(self) -> Any: ...


class AwaitedClient(Protocol):
    """A client whose calls are awaited."""

    async def __aenter__(self) -> Any: ...


class Pieces(Protocol):
    """A reply that comes in pieces."""

    data: dict[str, Any]
    """The pieces together, as the answer would be that comes whole."""
    is_whole: bool

    def take(self, event: dict[str, Any]) -> str | None:
        """Add one; returns the text in it."""


Client_co = TypeVar("Client_co", bound=BlockingClient | AwaitedClient, covariant=True)


class Adapter(Generic[Client_co]):
    """A client and a model, called with a `Request`. Type checkers know by the client whether the
    reply is awaited."""

    def __init__(
        self,
        client: Client_co,
        model: str,
        *,
        prices: Prices | None = None,
        stream: bool = False,
        on_text: OnText | None = None,
        structured: bool = True,
        limit: Limit | Limited | None = None,
        **options: Any,
    ) -> None:
        if not hasattr(client, "with_options"):
            raise BadInput(
                f"{type(self).__name__} takes a client, such as openai.OpenAI() or "
                f"anthropic.Anthropic(), not {client!r:.60}"
            )
        # Its retries would be recorded nowhere, and go on top of ours.
        self.client: Any = client.with_options(max_retries=0)
        self.model = model
        self.prices = prices
        self.stream: bool = stream or on_text is not None
        self.on_text = on_text
        self.structured = structured
        """Whether the server takes the schema of an answer. If not, an agent with an `output` gives
        the model a tool to answer with."""
        self.limit = limit
        """The limit that its calls share with those of other tasks and workers: agents keep to it,
        and a step of your own has it as `@step(limit=…)`."""
        must_be_limited(f"{self}", limit)
        self.options = options
        self._limited = (str(getattr(client, "base_url", "")), model)
        """The limits of a provider: the calls of one model at one address."""

    @overload
    def __call__(self: Adapter[BlockingClient], request: Request) -> Reply: ...
    @overload
    def __call__(self: Adapter[AwaitedClient], request: Request) -> Awaitable[Reply]: ...
    def __call__(self, request: Request) -> Reply | Awaitable[Reply]:
        """Ask the model. With an async client, to be awaited."""
        flow = self._priced(request)
        return _awaited(flow) if self.is_async else _driven(flow)

    @property
    def is_async(self) -> bool:
        """Whether its replies are awaited: that is up to the client."""
        return hasattr(self.client, "__aenter__")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def _must_be_let_in(self) -> None:
        """Refuse a call that no limit knows of. A waiting call has to be a step of a task."""
        scope = scope_var.get()
        if scope is None or scope.path not in scope.run.admitted:
            raise BadInput(
                f"{self} has a limit, which is kept by the step that calls it: use an agent or "
                f"ModelStep, or call it in a task, in a step with @step(limit=…)"
            )

    def _priced(self, request: Request) -> Flow[Reply]:
        if self.limit is not None:
            self._must_be_let_in()
        yield from self._until_asking_makes_sense()
        try:
            reply = yield from self.flow(request)
        except ModelBusy as error:
            if error.status == 429 and error.retry_after_s:
                _pauses[self._limited] = monotonic() + error.retry_after_s
            raise
        if self.prices is None:
            return reply
        return replace(reply, usage=replace(reply.usage, cost=self.prices.of(reply.usage)))

    def _until_asking_makes_sense(self) -> Flow[None]:
        """Wait as long as another call of this process was told to: it would only be refused.

        The step has not failed by that, and keeps its attempts for what is its own.
        """
        give_up_at = monotonic() + _LONGEST_PAUSE_S
        while (left_s := (until := _pauses.get(self._limited, 0.0)) - monotonic()) > 0:
            if until > give_up_at:
                raise ModelBusy(
                    f"{self}: the provider asked to wait for {left_s:.1f} s", retry_after_s=left_s
                )
            yield partial(asyncio.sleep if self.is_async else sleep, left_s)

    def _heed(self, answer: Any) -> None:
        """Have the next calls wait, if an answer says that nothing is left for them."""
        headers = getattr(answer, "headers", None)
        if isinstance(headers, Mapping) and (wait_s := used_up_for(headers)):
            until = monotonic() + wait_s
            _pauses[self._limited] = max(until, _pauses.get(self._limited, until))

    def flow(self, request: Request) -> Flow[Reply]:
        """How the model is asked."""
        raise NotImplementedError

    def read(self, data: dict[str, Any]) -> Reply:
        """The reply in an answer."""
        raise NotImplementedError

    def exchange(
        self,
        resource: Any,
        asked: dict[str, Any],
        pieces: Pieces,
        request: Request,
        **streamed: Any,
    ) -> Flow[Reply]:
        """Ask, and read the reply: whole, or in pieces with the options `streamed`."""
        if not self.stream:
            return self.reply((yield from self.whole(resource, asked)))
        stream = yield from self.ask(resource.create, {"stream": True} | streamed | asked)
        yield from self.each(stream, pieces.take, request)
        if not pieces.is_whole:
            raise ModelBusy(f"{self}: the stream broke off before the reply was whole")
        return self.reply(pieces.data)

    def reply(self, data: dict[str, Any]) -> Reply:
        """The reply in an answer; an error if it holds none."""
        try:
            return self.read(data)
        except (BadInput, KeyError, TypeError, ValueError, AttributeError) as error:
            if data.get("error"):
                raise failed_inside(data["error"], str(self)) from None
            raise ModelBusy(f"{self}: an answer that is no reply: {error}") from error

    def ask(self, create: Callable[..., Any], options: dict[str, Any]) -> Flow[Any]:
        """Call the client; its errors as ours."""
        try:
            return (yield partial(create, **options))
        except Exception as error:
            # Only options that the client does not know are refused before they are sent.
            otherwise = ModelRejected if isinstance(error, TypeError) else ModelBusy
            raise failed(error, str(self), otherwise) from error

    def whole(self, resource: Any, options: dict[str, Any]) -> Flow[dict[str, Any]]:
        """The client's answer, as plain data."""
        if not hasattr(resource, "with_raw_response"):
            return self.plain((yield from self.ask(resource.create, options)))
        # The answer itself has no headers, and these tell what is left of the provider's limits.
        answer = yield from self.ask(resource.with_raw_response.create, options)
        self._heed(answer)
        return self.plain((yield from self.ask(answer.parse, {})))

    def plain(self, answer: Any) -> dict[str, Any]:
        """The client's object for an answer, as plain data."""
        if not hasattr(answer, "to_dict"):
            raise ModelBusy(f"{self}: an answer that is no reply: {answer!r:.200}")
        # Clients take whatever comes, and warn of it only here.
        found: dict[str, Any] = answer.to_dict(mode="json", warnings=False)
        return found

    def each(
        self, stream: Any, take: Callable[[dict[str, Any]], str | None], request: Request
    ) -> Flow[None]:
        """Take each event of a stream; what `take` returns is the next piece of text."""
        told = [on_text for on_text in (request.on_text, self.on_text) if on_text is not None]
        if not hasattr(stream, "close"):
            raise ModelBusy(f"{self}: an answer that is no stream: {stream!r:.200}")
        self._heed(getattr(stream, "response", None))
        try:
            while True:
                try:
                    event = yield partial(_pull, stream)
                except Exception as error:
                    raise failed(error, f"{self}, in its stream", ModelBusy) from error
                if event is _END:
                    return
                try:
                    piece = take(self.plain(event))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise ModelBusy(f"{self}: an event that makes no sense: {error!r}") from error
                if piece:
                    for on_text in told:
                        yield partial(on_text, piece)
        finally:
            yield stream.close


def _pull(stream: Any) -> Any:
    return anext(stream, _END) if hasattr(stream, "__anext__") else next(stream, _END)


def _driven(flow: Flow[Reply]) -> Reply:
    try:
        wish = next(flow)
        while True:
            try:
                answer = wish()
            except BaseException as error:  # a signal, too, has to leave the stream closed
                wish = flow.throw(error)
            else:
                wish = flow.send(answer)
    except StopIteration as end:
        reply: Reply = end.value
        return reply


async def _awaited(flow: Flow[Reply]) -> Reply:
    try:
        wish = next(flow)
        while True:
            try:
                answer = wish()
                if isawaitable(answer):
                    answer = await answer
            except BaseException as error:
                wish = flow.throw(error)
            else:
                wish = flow.send(answer)
    except StopIteration as end:
        reply: Reply = end.value
        return reply
