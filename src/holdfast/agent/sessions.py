"""Sessions: one stretch of a user's engagement, with its conversation and its tasks.

A session is a log of its own, beside those of tasks and with the same promises. Many may write to
it: the user's words come from one process, a task's answers from another. A task's words
is said once, however often the task is resumed, because each thing said has a key made of the task
and its place in it; and a message that asks for calls is kept together with their results, so
there is never one without the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Raw, Struct

from holdfast.agent.book import Book, BookMeans, book_of
from holdfast.agent.flow import Flow, drive, once
from holdfast.codec import args_hash
from holdfast.core.events import Said as SaidEvent
from holdfast.core.scope import Scope, inside, scope_var
from holdfast.core.words import checked_id, must_be_texts
from holdfast.errors import BadInput, CodeChanged, WrongArguments
from holdfast.log.messages import Message, Turn, stored_form, turns, user

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast
    from holdfast.api.handle import Handle, Options
    from holdfast.core.conversation import Conversation
    from holdfast.engines.holder import Holding
    from holdfast.stores.port import Store
    from holdfast.views.task import Tasks

R = TypeVar("R")

Form = tuple[bytes, str, int]
"""A turn as it is stored, the role of its first message, and how many it has."""


class Spoken(Struct, frozen=True):
    """The record, in the log of a task, of something that it said: the events of the session."""

    session: str
    seqs: tuple[int, ...]
    digests: tuple[str, ...]


class SaidMessages(tuple[Message, ...]):
    """The messages that were said. In an async task they are awaited, and so they may be anywhere.

    >>> SaidMessages([user("hi")])[0].text
    'hi'
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, SaidMessages]:
        yield from ()
        return self


class Session:
    """One stretch of a user's engagement. Made by `hf.session(…)`; in a task by `session()`.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     chat = hf.session("chat-1", user="ada")
    ...     _ = chat.say("Where is my order?")
    ...     [(message.number, message.role, message.text) for message in chat.messages()]
    [(1, 'user', 'Where is my order?')]
    """

    def __init__(self, book: Book, hf: Holdfast | None = None) -> None:
        self.book = book
        self._hf = hf

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def id(self) -> str:
        """The session's id."""
        return self.book.id

    @property
    def user(self) -> str:
        """The user of the session."""
        return self.state.user

    @property
    def state(self) -> Conversation:
        """Everything that is known of it, with what others have added by now. For reading only."""
        return self.book.refresh()

    # The conversation

    def say(self, *messages: str | Message, key: str = "") -> SaidMessages:
        """Add messages to the conversation; a plain text is the user's. Then they are durable.

        Calls come together with their results: `say(reply, *results)`. In a task it is said once,
        however often the task is resumed; in an async task: `await session.say(…)`. Outside of a
        task, `key` does the same for callers that may repeat a request: what was said under a key
        is there once.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     chat = hf.session("chat-2")
        ...     _ = chat.say("Hello", key="request-7")
        ...     _ = chat.say("Hello", key="request-7")
        ...     len(list(chat.messages()))
        1
        """
        scope = scope_var.get()
        if key and scope is not None:
            raise BadInput("say(key=…): in a task what is said has a key already; leave it out")
        must_be_texts("say()", key=key)
        # Made where it is said, which in an async task is off the loop: files may be large.
        forms = cache(partial(self._forms, _turns_of(messages)))
        spoken = once("say", lambda own, path: self._say(forms(), own or key, scope, path), Spoken)
        if isinstance(spoken, Awaitable):
            return cast("SaidMessages", self._awaited(spoken, forms))
        return self._heard(spoken, forms())

    def _forms(self, given: Sequence[Turn]) -> list[Form]:
        return [(stored_form(self.book.store, turn), turn[0].role, len(turn)) for turn in given]

    def _say(self, forms: list[Form], key: str, scope: Scope | None, path: str) -> Spoken:
        digests = tuple(args_hash(form) for form, _, _ in forms)
        task = "" if scope is None else scope.run.task_id
        if scope is not None and not scope.run.driver.writes:
            return Spoken(self.id, (), digests)
        if scope is not None and scope.run.log.has_to_be_synced():
            # A message may follow from what the task's log has, and must not outlive it: after a
            # power cut the task would draw another random number, and say something else.
            scope.run.sync()
        seqs = []
        for index, (form, role, count) in enumerate(forms):
            said = SaidEvent(
                messages=Raw(b"[]"), count=count, role=role, digest=digests[index],
                key=f"{key}/{index}" if key and index else key, task=task,
                step=_step_of(scope, path),
            )  # fmt: skip
            seqs.append(self.book.say(form, said))
        return Spoken(self.id, tuple(seqs), digests)

    def _heard(self, spoken: Spoken, forms: list[Form]) -> SaidMessages:
        """The message as it is in the conversation. The code must say what it said before."""
        same = tuple(args_hash(form) for form, _, _ in forms) == spoken.digests
        if not same or not self._is_of(spoken.session):
            run = inside("say()").run
            recorded = f"something else, said to session {spoken.session!r}"
            asked = f"says {forms[0][0][:60].decode(errors='replace')} to session {self.id!r}"
            run.halt(CodeChanged(run.task_id, "say", recorded, asked))
        found = (self.book.turn_at(seq) for seq in spoken.seqs)
        return SaidMessages(message for turn in found for message in turn)

    def _is_of(self, session: str) -> bool:
        """Whether it is the session of that id, or a fork of it."""
        return session == self.id or session in self.book.refresh().origins

    async def _awaited(
        self, spoken: Awaitable[Spoken], forms: Callable[[], list[Form]]
    ) -> SaidMessages:
        return self._heard(await spoken, forms())

    def messages(self, first: int = 1, last: int | None = None) -> Iterator[Message]:
        """The messages by number, those that were summarized too: nothing is ever deleted.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     chat = hf.session("chat-3")
        ...     _ = chat.say("one", "two", "three")
        ...     [message.text for message in chat.messages(2)]
        ['two', 'three']
        """
        self.book.refresh()
        return self.book.messages(first, last)

    @property
    def summary(self) -> str:
        """The newest summary; empty while there is none."""
        newest = self.state.summary
        return "" if newest is None else self.book.summary_text(newest)

    def pin(self, number: int, *, pinned: bool = True) -> None:
        """Keep a message in every context from here on, or (`pinned=False`) no longer.

        In an async task: `await session.pin(…)`.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     chat = hf.session("chat-4")
        ...     (message,) = chat.say("I am allergic to nuts.")
        ...     chat.pin(message.number)
        ...     list(chat.state.pinned)
        [1]
        """
        return once(
            "pin", lambda key, path: self._change(lambda: self.book.pin(number, pinned, key)), None
        )

    # Its tasks

    def run(
        self,
        fn: Callable[..., R],
        /,
        *args: Any,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> R:
        """`hf.run` for a task in the session, and of its user.

        >>> from holdfast import Holdfast, task
        >>> @task
        ... def answer_in_session() -> str:
        ...     session().say(Message("assistant", "On its way."))
        ...     return "answered"
        >>> with Holdfast("memory://") as hf:
        ...     chat = hf.session("chat-5", user="ada")
        ...     chat.run(answer_in_session, id="answer-1"), next(chat.messages()).task
        ('answered', 'answer-1')
        """
        return self._options("run", id, labels).run(fn, *args, **kwargs)

    async def arun(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """`run` for async code."""
        return await self._options("arun", id, labels).arun(fn, *args, **kwargs)

    def start(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> Handle[Any]:
        """`hf.start` for a task in the session, and of its user: it is left to a worker."""
        return self._options("start", id, labels).start(fn, *args, **kwargs)

    def tasks(self) -> Tasks:
        """The views of its tasks, oldest first."""
        return self._app("tasks").tasks(session=self.id)

    def _options(self, what: str, id: str | None, labels: Mapping[str, str] | None) -> Options:
        return self._app(what).options(id=id, user=self.user, session=self.id, labels=labels)

    def _app(self, what: str) -> Holdfast:
        if self._hf is None:
            raise BadInput(
                f"session.{what}() is for the outside of tasks: in a task, start others with "
                f"holdfast.start(…), which belong to its session"
            )
        return self._hf

    def end(self, because: str = "", *, remember: bool | str = False) -> None:
        """Say that the user's engagement is over. The next message begins it again.

        With `remember` its newest summary (or the text that is given) is handed to the long-term
        memory, where later sessions find it. In an async task: `await session.end(…)`.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     chat = hf.session("chat-13", user="ada")
        ...     _ = chat.say("I only ever take the train.")
        ...     chat.end(remember="Ada travels by train.")
        ...     hf.memory.search("train", user="ada")[0].entry.session
        'chat-13'
        """
        must_be_texts("end()", because=because)
        return drive(self._end(because, remember))

    def _end(self, because: str, remember: bool | str) -> Flow[None]:
        if remember:
            text = self.summary if remember is True else remember
            if not text:
                raise BadInput(
                    f"session {self.id!r} has no summary to remember: compact() it first, or give "
                    f"a text: end(remember=…)"
                )
            yield lambda: self._remember(text)
        yield lambda: once(
            "end", lambda key, path: self._change(lambda: self.book.end(because)), None
        )

    def _remember(self, text: str) -> Any:
        from holdfast.agent.memories import open_memory

        means = self.book.means
        memory = open_memory(means.store, means.owner, means.clock, means.redact)
        # Under an id of its own: a session that ends again says the same, or something newer.
        return memory.remember(
            text,
            user=self.user,
            session=self.id,
            labels={"kind": "summary"},
            id=f"end of {self.id}",
        )

    def _change(self, change: Callable[[], None]) -> None:
        scope = scope_var.get()
        if scope is None or scope.run.driver.writes:
            change()


def _turns_of(messages: Sequence[str | Message]) -> list[Turn]:
    given = [user(each) if isinstance(each, str) else each for each in messages]
    if not given:
        raise BadInput("say(): there is nothing to say: give a text, or messages")
    for each in given:
        if not isinstance(each, Message):
            raise BadInput(f"say() takes texts and messages, not {type(each).__name__}")
    return list(turns(given))


def begin_session(
    hf: Holdfast,
    held: Holding,
    id: str | None,
    user: str | None,
    labels: Mapping[str, str] | None,
) -> Session:
    """The session of that id, begun if there is none: see `Holdfast.session`."""
    wanted = dict(labels or {})
    must_be_texts("session()", user=user or "", **{f"label {k!r}": v for k, v in wanted.items()})
    means = BookMeans(held.store, held.owner, held.clock, held.redact, held.max_value_bytes)
    book = book_of(means, checked_id(uuid.uuid4().hex if id is None else id))
    found = book.begin(user or "", wanted)
    if user is not None and found.user != user:
        raise WrongArguments(
            f"session {book.id!r} is one of user {found.user!r}, not of {user!r}: give another "
            f"id, or leave the user out"
        )
    if labels is not None and found.labels != wanted:
        raise BadInput(f"session {book.id!r} was begun with other labels: {found.labels!r:.200}")
    return Session(book, hf)


def session() -> Session:
    """The session that the running task belongs to.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def whose_session() -> str:
    ...     return session().user
    >>> with Holdfast("memory://") as hf:
    ...     hf.session("chat-6", user="ada").run(whose_session)
    'ada'
    """
    run = inside("session()").run
    if not run.log.state.session:
        raise BadInput(
            f"task {run.task_id!r} belongs to no session: start it with session.run(…), or "
            f"hf.run(…, session=ID)"
        )
    book = book_of(means_in_task(), run.log.state.session)
    if run.driver.writes:
        book.begin(run.log.state.user, {})
    return Session(book)


def must_be_session(what: str, given: object) -> None:
    """Raise `BadInput` if something else was given where a session is wanted, such as its id."""
    if not isinstance(given, Session):
        raise BadInput(f"{what} takes a session, from hf.session(…), not {given!r:.60}")


def means_in_task() -> BookMeans:
    """The means to write to sessions from inside of a task."""
    log = inside("this").run.log
    return BookMeans(log.store, log.lease.owner, log.clock, log.redact, log.max_value_bytes)


def _step_of(scope: Scope | None, path: str) -> str:
    """The step that something was said in: that of the call around it, or its own place."""
    if scope is None:
        return ""
    return scope.call.path if scope.call is not None else path


def open_session(store: Store, id: str) -> Session:
    """A session that exists, for reading; `SessionNotFound` if there is none.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.session("chat-9").say("Hello")
    ...     next(open_session(hf.store, "chat-9").messages()).text
    'Hello'
    """
    book = Book(BookMeans(store, "a reader", _no_clock), checked_id(id))
    book.refresh()
    return Session(book)


def _no_clock() -> datetime:
    raise BadInput("the session was opened for reading: use hf.session(…) to write to it")
