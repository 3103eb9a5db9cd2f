"""The support agent of the examples, to be killed everywhere: with the clients of both providers.

Its three tasks share one session. The shop and the model are servers in processes of their own, so
they outlive it; there is a boundary on either side of each effect, and of each call of the model.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

import msgspec
from anthropic import Anthropic
from msgspec.structs import replace
from openai import AsyncOpenAI, OpenAI

from examples.support.agent import (
    REQUESTS,
    SESSION,
    USER,
    converse,
    find_order,
    make_agent,
    work_for,
)
from examples.support.shop import Json, Shop
from holdfast import Holdfast, Unanswered
from holdfast.agent import Message, Reply, Request, Session, user
from holdfast.agent.adapters import AnthropicMessages, OpenAIChat
from holdfast.agent.book import Book
from holdfast.agent.tooling import info_of
from holdfast.testing.crash import boundary
from tests.crash.agents import world
from tests.crash.support_model import start_model


class PerilousShop(Shop):
    """The shop, with a place to die on either side of everything that is done to it."""

    def refund(self, number: int, *, key: str) -> Json:
        boundary("before an effect")
        done = super().refund(number, key=key)
        boundary("after an effect")
        return done

    def email(self, to: str, subject: str, text: str, *, reference: str) -> Json:
        boundary("before an effect")
        done = super().email(to, subject, text, reference=reference)
        boundary("after an effect")
        return done


class LingeringShop(PerilousShop):
    """Takes its time after an effect: the moment can't be missed if something else is written."""

    def email(self, to: str, subject: str, text: str, *, reference: str) -> Json:
        done = super().email(to, subject, text, reference=reference)
        for _ in range(5):
            boundary("after an effect")
        return done


def perilous(model: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """A model, with a place to die on either side of its calls."""

    def ask(request: Request) -> Reply:
        boundary("before a model call")
        reply: Reply = model(request)
        boundary("after a model call")
        return reply

    async def aask(request: Request) -> Reply:
        boundary("before a model call")
        reply: Reply = await model(request)
        boundary("after a model call")
        return reply

    return aask if getattr(model, "is_async", False) else ask


@cache
def model_url() -> str:
    """Where the scripted model is."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(start_model())


ONE = Request((user(REQUESTS["where-is-it"]),), (info_of(find_order),))
"""Asked once before anything is forked, by a client that is thrown away: what clients make at
their first call is then made for all."""


class Support:
    """Three requests in one session, to the end; the result is the whole conversation."""

    def __init__(self, model: Callable[[Request], Any], *only: str) -> None:
        self.requests = {id: REQUESTS[id] for id in only or REQUESTS}
        self.world = world()
        work_for(PerilousShop(self.world.base_url))
        self.agent = make_agent(perilous(model))

    def reset(self) -> None:
        self.world.reset()

    def run(self, hf: Holdfast) -> Any:
        answered = converse(hf, self.agent, lambda question: "Yes, please.", self.requests)
        return self.outcome(hf, list(answered))

    def outcome(self, hf: Holdfast, results: Any) -> Any:
        session = hf.session(SESSION)
        return {
            "conversation": [bare(message) for message in session.messages()],
            "summary": session.summary,
            "tasks": results,
        }

    def effects(self) -> Any:
        kept = ("kind", "reference", "to", "amount", "subject", "text", "key")
        return [{name: row.get(name) for name in kept} for row in self.world.rows()]


def bare(message: Message) -> str:
    """All of a message but when it was said, as it is written."""
    return msgspec.json.encode(replace(message, at=None)).decode()


class AsyncSupport(Support):
    """The same on one event loop, as an async client needs it."""

    def run(self, hf: Holdfast) -> Any:
        return self.outcome(hf, asyncio.run(self.converse(hf)))

    async def converse(self, hf: Holdfast) -> list[Any]:
        session = hf.session(SESSION, user=USER)
        return [await self.attend(hf, session, text, id) for id, text in self.requests.items()]

    async def attend(self, hf: Holdfast, session: Session, text: str, id: str) -> Any:
        while True:
            try:
                return await self.agent.arun(session, text, id=id)
            except Unanswered as asked:
                hf.answer(asked.task_id, "Yes, please.", question=asked.id, by=USER)


def openai_support(*only: str) -> Support:
    options: Any = {"api_key": "any", "base_url": model_url()}
    with OpenAI(**options) as first:
        OpenAIChat(first, "scripted")(ONE)
    return Support(OpenAIChat(OpenAI(**options), "scripted"), *only)


def anthropic_support() -> Support:
    options: Any = {"api_key": "any", "base_url": model_url()}
    with Anthropic(**options) as first:
        AnthropicMessages(first, "scripted", stream=True)(ONE)
    return Support(AnthropicMessages(Anthropic(**options), "scripted", stream=True))


def async_support() -> Support:
    return AsyncSupport(OpenAIChat(AsyncOpenAI(api_key="any", base_url=model_url()), "scripted"))


def one_email() -> Support:
    """The last request alone: small enough to be run on broken builds as well."""
    support = openai_support("confirm-it")
    work_for(LingeringShop(support.world.base_url))
    return support


def keyless_email() -> Support:
    """The same, broken on purpose: what is said in a task has no key, so nothing knows a repeat."""
    say = Book.say
    setattr(Book, "say", lambda self, form, said: say(self, form, replace(said, key="")))
    return one_email()
