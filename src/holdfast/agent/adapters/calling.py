"""What the adapters share: one flow for clients that block and clients that are awaited.

A flow yields what it wants called. The driver calls it, and awaits the result if the client is an
async one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from inspect import isawaitable
from typing import Any, TypeVar

from msgspec.structs import replace

from holdfast.agent.adapters.errors import ModelBusy, ModelRejected, failed
from holdfast.agent.model import Reply, Request
from holdfast.errors import BadInput
from holdfast.usage import Prices

Wish = Callable[[], Any]
T = TypeVar("T")
Flow = Generator[Wish, Any, T]

OnText = Callable[[str], Any]
"""Told each piece of text as it comes. With an async client it may be async as well."""

_END = object()


class Adapter:
    """A client and a model, called with a `Request`."""

    def __init__(
        self,
        client: Any,
        model: str,
        *,
        prices: Prices | None = None,
        stream: bool = False,
        on_text: OnText | None = None,
        **options: Any,
    ) -> None:
        if not hasattr(client, "with_options"):
            raise BadInput(
                f"{type(self).__name__} takes a client, such as openai.OpenAI() or "
                f"anthropic.Anthropic(), not {client!r:.60}"
            )
        # Its retries would be recorded nowhere, and go on top of ours.
        self.client = client.with_options(max_retries=0)
        self.model = model
        self.prices = prices
        self.stream = stream or on_text is not None
        self.on_text = on_text
        self.options = options

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

    def _priced(self, request: Request) -> Flow[Reply]:
        reply = yield from self.flow(request)
        if self.prices is None:
            return reply
        return replace(reply, usage=replace(reply.usage, cost=self.prices.of(reply.usage)))

    def flow(self, request: Request) -> Flow[Reply]:
        """How the model is asked."""
        raise NotImplementedError

    def ask(self, create: Callable[..., Any], options: dict[str, Any]) -> Flow[Any]:
        """Call the client; its errors as ours."""
        try:
            return (yield partial(create, **options))
        except Exception as error:
            raise failed(error, str(self), ModelRejected) from error

    def whole(self, create: Callable[..., Any], options: dict[str, Any]) -> Flow[dict[str, Any]]:
        """What the client answers, as plain data."""
        return self.plain((yield from self.ask(create, options)))

    def plain(self, answer: Any) -> dict[str, Any]:
        """What a client made of an answer, as plain data."""
        if not hasattr(answer, "to_dict"):
            raise ModelBusy(f"{self}: an answer that is no reply: {answer!r:.200}")
        # Clients take whatever comes, and warn of it only here.
        found: dict[str, Any] = answer.to_dict(mode="json", warnings=False)
        return found

    def each(self, stream: Any, take: Callable[[dict[str, Any]], str | None]) -> Flow[None]:
        """Take each event of a stream; what `take` returns is the next piece of text."""
        if not hasattr(stream, "close"):
            raise ModelBusy(f"{self}: an answer that is no stream: {stream!r:.200}")
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
                if piece and self.on_text is not None:
                    yield partial(self.on_text, piece)
        finally:
            yield stream.close

    def broken_off(self) -> ModelBusy:
        """What a stream without an end is."""
        return ModelBusy(f"{self}: the stream broke off before the reply was whole")


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
