"""A conversation as a page of Markdown: for people, and to send to others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.agent.messages import Message
from holdfast.agent.sessions import Session
from holdfast.cli.spoken import origin, said_in


def conversation_md(session: Session, messages: Iterable[Message]) -> str:
    """The page. What was said stands in quotes, so that nothing in it can pass for a heading.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     chat = hf.session("chat-md", user="ada")
    ...     _ = chat.say("# Hello")
    ...     page = conversation_md(chat, chat.messages())
    >>> page.splitlines()[0], page.splitlines()[-1]
    ('# Session chat-md', '> # Hello')
    """
    return "\n".join(_lines(session, messages))


def _lines(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    state = session.state
    yield f"# Session {_one_line(state.id)}"
    yield ""
    of = f" of {_one_line(state.user)}" if state.user else ""
    yield f"A session{of}, {state.status}, begun {state.created_at:%Y-%m-%d %H:%M} UTC."
    if state.summary is not None:
        yield ""
        yield f"## Summary up to message {state.summary.upto}"
        yield ""
        yield _quoted(session.summary)
    for message in messages:
        pinned = ", pinned" if message.number in state.pinned else ""
        yield ""
        yield f"## {message.number} {message.role}{pinned}"
        yield ""
        yield f"*{_one_line(', '.join(origin(message)))}*"
        yield ""
        yield _quoted("\n\n".join(said_in(message)))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _one_line(text: str) -> str:
    return " ".join(text.split())
