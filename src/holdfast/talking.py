"""What `Holdfast` has for conversations: sessions, and what is remembered beyond them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

from holdfast.above import door
from holdfast.engines.holding import Holding
from holdfast.listing import SessionFilters, SessionPage, page_of_sessions

if TYPE_CHECKING:
    from holdfast.agent.memories import Memory
    from holdfast.agent.sessions import Session


class Talking:
    """The part of `Holdfast` that has to do with users and what they say."""

    _holding: Holding

    def session(
        self,
        id: str | None = None,
        *,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Session:
        """A session: begun if there is none of that id, else the one that is there.

        It owns a conversation and starts tasks. Without an `id` it gets one of its own; the `user`
        of a session that exists may be left out, and must be right if it is given.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.session("chat-7", user="ada").say("Hello")
        ...     [message.text for message in hf.session("chat-7").messages()]
        ['Hello']
        """
        found: Session = door("sessions").begin_session(self, self._holding, id, user, labels)
        return found

    def sessions(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[SessionFilters]
    ) -> SessionPage:
        """A page of the sessions that match, the newest first. No log is read for it.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     for name in ("ada", "bob", "ada"):
        ...         _ = hf.session(user=name).say("Hello")
        ...     page = hf.sessions(user="ada", limit=10)
        >>> [session.user for session in page.sessions], page.next
        (['ada', 'ada'], None)
        """
        return page_of_sessions(self._holding.store, filters, limit, cursor)

    @cached_property
    def memory(self) -> Memory:
        """The long-term memory: short entries that outlive sessions, found by what they say.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.memory.remember("Ada wants a quiet room", user="ada")
        ...     hf.memory.search("which rooms are quiet?")[0].entry.text
        'Ada wants a quiet room'
        """
        held = self._holding
        opened: Memory = door("memories").open_memory(
            held.store, held.owner, held.clock, held.redact
        )
        return opened
