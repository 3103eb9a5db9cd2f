"""`dump` and `load`: an `AgentState` as bytes, for those who keep it outside of a task.

JSON with a version. What is dumped is read back at once, and refused unless it is the very same: so
nothing is lost silently, whatever stands in the notes or in a message.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from holdfast.agent.state import AgentState
from holdfast.decoding import NONSENSE, Illegible, decoder
from holdfast.errors import Undecodable, Unserializable

VERSION = 1


class _Saved(Struct, frozen=True):
    version: int
    state: AgentState


class _Version(Struct, frozen=True):
    version: int


_load = decoder(_Saved)
_load_version = decoder(_Version)


def dump(state: AgentState) -> bytes:
    """The state as bytes. `Unserializable` if it holds what JSON can't bring back as it was.

    >>> state = AgentState.from_user_input("Where is my order?")
    >>> load(dump(state)) == state
    True
    """
    try:
        data = msgspec.json.encode(_Saved(VERSION, state))
        same = _load(data).state == state
    except (*NONSENSE, Illegible) as error:
        raise Unserializable(f"the agent state {state.session_id!r}: {error}") from None
    if not same:
        raise Unserializable(
            f"the agent state {state.session_id!r} would not come back as it is: notes and the "
            f"meta of messages are plain JSON (no tuples, bytes, NaN or keys that are not text)"
        )
    return data


def load(data: bytes | str) -> AgentState:
    """The state that was dumped. `Undecodable` if it is none, or of a newer version.

    >>> load(b'{"version": 99}')
    Traceback (most recent call last):
    holdfast.errors.Undecodable: an agent state of version 99: this Holdfast knows 1. Upgrade it
    """
    try:
        version = _load_version(data).version
        if version > VERSION:
            raise Undecodable(
                f"an agent state of version {version}: this Holdfast knows {VERSION}. Upgrade it"
            )
        return _load(data).state
    except Illegible as error:
        raise Undecodable(
            f"this is no agent state that dump() made: {error} (it begins with {data[:40]!r})"
        ) from None
