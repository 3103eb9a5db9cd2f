"""The view of a session: its moments, one after the other, and what it holds at each.

A moment of a conversation is a message. A thread of LangGraph is a session whose log holds
checkpoints, and then each checkpoint is a moment. Everything of a thread stands under keys:

    checkpoint/<ns>/<id>                the checkpoint without the values of its channels
    channel/<ns>/<channel>/<version>    the value of a channel, where a checkpoint made a new one
    write/<ns>/<id>/<task>/<index>      what a task of the graph wrote after a checkpoint

A list is written as what it has more than an earlier version of the same channel (`of`, `keep`).
It is all read here without LangGraph: a message is JSON, and what LangGraph's serializer wrote is
shown as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from holdfast.core.conversation import Conversation
from holdfast.core.decoding import damage_in, decode
from holdfast.core.memories import KeptValue
from holdfast.history.alignment import Made, RanTask
from holdfast.log.messages import Message
from holdfast.log.reading import session_stream
from holdfast.log.values import fetch
from holdfast.stores.port import Store

CHECKPOINT, CHANNEL, WRITE = "checkpoint", "channel", "write"

_OWN = ("__", "branch:")
"""How the channels begin that LangGraph has for itself."""


class Delta(Struct, frozen=True, omit_defaults=True):
    """A list as what it has more than an earlier version of the channel."""

    items: list[Any]
    of: str = ""
    keep: int = 0


def key_of(kind: str, *parts: str) -> str:
    """A key of a thread.

    >>> key_of(CHECKPOINT, "a|b", "1f"), key_of(CHANNEL, "", "a/b", "1")
    ('checkpoint/a|b/1f', 'channel//a%2Fb/1')
    """
    return "/".join((kind, *(quote(part, safe="|: ") for part in parts)))


def parts_of_key(key: str) -> list[str]:
    """The parts of a key of a thread, the kind first.

    >>> parts_of_key("channel//a%2Fb/1")
    ['channel', '', 'a/b', '1']
    """
    return [unquote(part) for part in key.split("/")]


class SessionMoment(Struct, frozen=True, omit_defaults=True):
    """A message of a session, or a checkpoint of a thread."""

    number: int
    """From 1."""
    name: str
    """The role of a message; of a checkpoint the nodes that ran before it, or where it is from."""
    new: Any
    """The words that were said, or the values of the channels that are new."""
    id: str = ""
    """LangGraph's id of a checkpoint."""
    step: int | None = None
    at: str = ""


class SessionView:
    """A session as it is now. `messages` are those of its conversation."""

    def __init__(self, store: Store, state: Conversation, messages: Iterable[Message]) -> None:
        self.id: str = state.id
        self._store = store
        self._values = state.values
        self._messages = [_said(message) for message in messages]
        kept = {}
        for key, value in state.values.items():
            match parts_of_key(key):
                case ["checkpoint", "", id]:  # a namespace is that of a graph inside a graph
                    kept[id] = self._data(value)
        self._checkpoints: Mapping[str, Any] = dict(sorted(kept.items()))
        self.is_thread: bool = bool(kept)
        self.moments: Sequence[SessionMoment] = (
            [self._checkpoint(n, id) for n, id in enumerate(self._checkpoints, 1)]
            if kept
            else [SessionMoment(n, each["role"], each) for n, each in enumerate(self._messages, 1)]
        )

    def content(self, number: int | None = None) -> dict[str, Any]:
        """The content after a moment, or now: plain data, for people and for a diff."""
        if not self.is_thread:
            return {"conversation": self._messages[:number]}
        if not self.moments or number == 0:
            return {"values": {}}
        moment = self.moments[-1 if number is None else number - 1]
        versions = self._checkpoints[moment.id]["versions"]
        found = {}
        for channel, version in sorted(versions.items()):
            if not channel.startswith(_OWN):
                found[channel] = self._value(moment.id, channel, str(version))
        return {"values": found}

    def number(self, place: str) -> int | None:
        """The number of the moment that a word names: its number, or the id of a checkpoint. None
        if there is none."""
        if place.isdecimal() and 0 <= int(place) <= len(self.moments):
            return int(place)
        return next((each.number for each in self.moments if each.id == place), None)

    def as_ran(self) -> RanTask:
        """Its moments as the calls of a task, to hold beside those of another session."""
        made = (Made(str(each.number), each.name, output=each.new) for each in self.moments)
        return RanTask(self.id, tuple(made), status="in_progress")

    def _data(self, kept: KeptValue) -> Any:
        with damage_in(session_stream(self.id)):
            return _unnamed(decode(fetch(self._store, kept.value, {}, dict)))

    def _checkpoint(self, number: int, id: str) -> SessionMoment:
        data = self._checkpoints[id]
        inner, about = _dict(data.get("checkpoint")), _dict(data.get("metadata"))
        before = self._checkpoints.get(data.get("parent", ""), {})
        seen = _dict(inner.get("versions_seen"))
        had = _dict(_dict(before.get("checkpoint")).get("versions_seen"))
        nodes = [name for name in seen if not name.startswith("__") and seen[name] != had.get(name)]
        was = before.get("versions", {})
        new = {}
        for channel, version in sorted(data["versions"].items()):
            if version != was.get(channel) and not channel.startswith(_OWN):
                stored = self._stored(channel, str(version))
                new[channel] = stored.get("value", stored.get("items"))
        name = ", ".join(sorted(nodes)) or str(about.get("source", ""))
        return SessionMoment(number, name, new, id, about.get("step"), str(inner.get("ts", "")))

    def _stored(self, channel: str, version: str) -> dict[str, Any]:
        kept = self._values.get(key_of(CHANNEL, "", channel, version))
        return {} if kept is None else _dict(self._data(kept))

    def _value(self, id: str, channel: str, version: str) -> Any:
        stored = self._stored(channel, version)
        if "value" in stored:
            return stored["value"]
        if not stored:  # a delta channel: what was written since its last snapshot
            return self._written(id, channel)
        deltas: list[Delta] = []
        while version:
            deltas.append(msgspec.convert(self._stored(channel, version), Delta))
            version = deltas[-1].of
        items: list[Any] = []
        for delta in reversed(deltas):
            items = [*items[: delta.keep], *delta.items]
        return items

    def _written(self, id: str, channel: str) -> dict[str, Any]:
        written: list[Any] = []
        parent = self._checkpoints[id].get("parent", "")
        while parent in self._checkpoints:
            written[:0] = self._writes_after(parent, channel)
            version = str(self._checkpoints[parent]["versions"].get(channel, ""))
            if self._stored(channel, version):
                return {"of": self._value(parent, channel, version), "written": written}
            parent = self._checkpoints[parent].get("parent", "")
        return {"written": written}

    def _writes_after(self, id: str, channel: str) -> list[Any]:
        prefix = key_of(WRITE, "", id) + "/"
        found = (self._data(kept) for key, kept in self._values.items() if key.startswith(prefix))
        ordered = sorted(found, key=lambda each: str(each.get("path", "")))
        return [each["value"] for each in ordered if each["channel"] == channel]


def _said(message: Message) -> dict[str, Any]:
    """A message without its place, which differs between sessions where nothing else does."""
    data = msgspec.to_builtins(message)
    return {name: data[name] for name in ("role", "name", "content") if name in data}


def _unnamed(value: Any) -> Any:
    """A value without the ids of the messages in it: LangGraph draws them."""
    if isinstance(value, list):
        return [_unnamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    is_message = "lc:message" in value
    return {key: _unnamed(v) for key, v in value.items() if not (is_message and key == "id")}


def _dict(value: Any) -> dict[str, Any]:
    """A value that a serializer of the user's own may have written as something else."""
    return value if isinstance(value, dict) else {}
