"""The support agent, against a real provider if there is a key, or against a scripted one.

    python -m examples.support                         # with a key in the environment, or without
    python -m examples.support --provider anthropic --model claude-sonnet-4-5

Stop it at any time, with Ctrl-C or kill -9, and run it again: it goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.support.agent import REQUESTS, SESSION, converse, make_agent, work_for
from examples.support.script import script
from examples.support.shop import Shop
from examples.trip.client import start_world
from holdfast import Holdfast, TaskFailed
from holdfast.agent import Session, transcript
from holdfast.agent.adapters import AnthropicMessages, OpenAIChat
from holdfast.agent.model import Model, Request
from holdfast.testing.scripted import ScriptedModel

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
MODELS = {"openai": "gpt-4.1-mini", "anthropic": "claude-sonnet-4-5", "scripted": "scripted"}


def show(piece: str) -> None:
    """A piece of what the model says, as it comes."""
    print(piece, end="", flush=True)


def shown(model: Model) -> Model:
    """The same model; what it says ends with a line."""

    def ask(request: Request) -> Any:
        reply: Any = model(request)
        if reply.message.text:
            print()
        return reply

    return ask


@contextmanager
def model_of(provider: str, name: str) -> Iterator[Model]:
    """The model of a provider, with the provider's own client."""
    if provider == "anthropic":
        from anthropic import Anthropic

        yield shown(AnthropicMessages(Anthropic(), name, max_tokens=1024, on_text=show))
        return
    from openai import OpenAI

    if provider == "openai":
        yield shown(OpenAIChat(OpenAI(), name, on_text=show))
        return
    with ScriptedModel(script) as server:
        client = OpenAI(api_key="none is needed", base_url=server.url)
        yield shown(OpenAIChat(client, name, on_text=show))


def answer(question: str) -> str:
    """The user's answer; without a terminal there is nobody to ask."""
    print(f"the agent asks: {question}")
    if sys.stdin.isatty():
        return input("your answer: ")
    print("(nobody is at the terminal: the answer is yes)")
    return "Yes, please."


def show_all(session: Session, url: str) -> None:
    print(f"\n--- The conversation of session {session.id} ---\n")
    print(transcript(session.messages()))
    if session.summary:
        print(f"\nOlder turns in short, as the model sees them now: {session.summary}")
    first, *_, last = REQUESTS
    print(
        f"\n--- Look for yourself ---\n\n"
        f"holdfast --url {url} session {SESSION}\n"
        f"holdfast --url {url} show {first}\n"
        f"holdfast --url {url} context {last}"
    )


def main() -> None:
    options = parsed()
    folder: Path = options.workspace
    folder.mkdir(parents=True, exist_ok=True)
    provider = options.provider
    print(f"The model: {options.model}, of {provider}.")
    if provider == "scripted":
        print(
            f"Its replies are a script, served on this machine: there is no key. Set "
            f"{' or '.join(KEYS.values())} to have a real one."
        )
    store = folder / "agent"
    with (
        start_world(folder / "shop.db") as (_, url),
        model_of(provider, options.model) as model,
        Holdfast(store) as hf,
    ):
        work_for(Shop(url))
        agent = make_agent(model, budget_tokens=options.budget_tokens)
        try:
            for id, result in converse(hf, agent, answer):
                print(f"[{id}: {hf.task(id).position}, {result.usage.tokens:,} tokens]")
        except TaskFailed as failed:
            raise SystemExit(f"{failed}\nRun it again for another try.") from None
        show_all(hf.session(SESSION), str(store))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.support", description=__doc__)
    parser.add_argument("--provider", choices=[*MODELS], help="default: the one with a key set")
    parser.add_argument("--model", help="the name of the model, as the provider knows it")
    parser.add_argument("--workspace", type=Path, default=Path("support-workspace"))
    parser.add_argument("--budget-tokens", type=int, default=1800, help="what a context may be")
    options = parser.parse_args()
    if options.provider is None:
        with_key = [name for name, key in KEYS.items() if os.environ.get(key)]
        options.provider = with_key[0] if with_key else "scripted"
    elif (key := KEYS.get(options.provider)) and not os.environ.get(key):
        parser.error(f"--provider {options.provider} needs its key in {key}")
    options.model = options.model or MODELS[options.provider]
    return options


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; run it again, and it goes on here") from None
