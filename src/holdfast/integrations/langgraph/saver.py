"""`HoldfastSaver`: the checkpointer. A thread is a session, a checkpoint costs what is new."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.api.app import Holdfast
from holdfast.api.async_forms import away, off_the_loop
from holdfast.errors import BadInput
from holdfast.integrations.langgraph.encoding import Encoding, fingerprint
from holdfast.integrations.langgraph.threads import Place, Thread, Threads, ThreadState
from holdfast.views.sessions import CHANNEL, CHECKPOINT, WRITE, Delta, key_of

_FEWEST_ITEMS = 4
"""A list of fewer items is written whole."""


class HoldfastSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of graphs in a store of Holdfast, sync and async.

    >>> from holdfast import Holdfast
    >>> from langgraph.graph import END, START, MessagesState, StateGraph
    >>> def answer(state: MessagesState) -> dict[str, object]:
    ...     return {"messages": [("assistant", "On its way.")]}
    >>> builder = StateGraph(MessagesState).add_node(answer)
    >>> builder = builder.add_edge(START, "answer").add_edge("answer", END)
    >>> with Holdfast("memory://") as hf:
    ...     graph = builder.compile(checkpointer=HoldfastSaver(hf))
    ...     config = {"configurable": {"thread_id": "chat-1"}}
    ...     _ = graph.invoke({"messages": [("user", "Where is my order?")]}, config)
    ...     [message.content for message in graph.get_state(config).values["messages"]]
    ['Where is my order?', 'On its way.']
    """

    def __init__(self, hf: Holdfast, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self.hf = hf
        self._is_readable = serde is None
        self._threads = Threads(hf)

    def get_next_version(self, current: str | None, channel: None = None) -> str:
        """A version that is greater, and that no fork of the thread has given to something else."""
        number = int(str(current).partition(".")[0]) + 1 if current is not None else 1
        return f"{number:010}.{secrets.token_hex(4)}"

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that is asked for, or the newest one of the thread."""
        thread, ns = self._place(config)
        id = get_checkpoint_id(config)
        return thread.look(lambda state: self._tuple(thread, state, ns, id))  # type: ignore[no-any-return]

    def _tuple(
        self, thread: Thread, state: ThreadState, ns: str, id: str | None
    ) -> CheckpointTuple | None:
        there = state.checkpoints.get(ns, {})
        if id is None:
            id = max(there, default=None)
        if id is None or id not in there:
            return None
        data = thread.data(there[id])
        versions = data["versions"]
        values = {}
        for channel, version in versions.items():
            if (ns, channel, str(version)) in state.channels:
                values[channel] = self._value(thread, state, ns, channel, str(version))
        encoding = self._encoding
        checkpoint = cast("Checkpoint", encoding.load(data["checkpoint"]))
        checkpoint["channel_values"], checkpoint["channel_versions"] = values, versions
        parent = data.get("parent")
        return CheckpointTuple(
            config=_config(thread.id, ns, id),
            checkpoint=checkpoint,
            metadata=encoding.load(data["metadata"]),
            parent_config=_config(thread.id, ns, parent) if parent else None,
            pending_writes=self._writes(thread, state, (ns, id)),
        )

    def _writes(self, thread: Thread, state: ThreadState, place: Place) -> list[PendingWrite]:
        found = []
        for (task, index), kept in state.writes.get(place, {}).items():
            data = thread.data(kept)
            order = writes_sort_key(data.get("path", ""), task, index)
            found.append((order, (task, data["channel"], self._encoding.load(data["value"]))))
        return [write for _, write in sorted(found, key=lambda each: each[0])]

    @property
    def _encoding(self) -> Encoding:
        return Encoding(self.serde, readable=self._is_readable)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints that match, the newest first."""
        places = []
        for thread in [self._place(config)[0]] if config else self._threads.all():
            wanted = config["configurable"].get("checkpoint_ns") if config else None
            spaces = thread.look(
                lambda state: {ns: [*ids] for ns, ids in state.checkpoints.items()}
            )
            for ns, ids in spaces.items():
                if wanted is None or ns == wanted:
                    places += [(id, thread, ns) for id in ids]
        only = get_checkpoint_id(config) if config else None
        upto = get_checkpoint_id(before) if before else None
        left = limit
        for id, thread, ns in sorted(places, key=lambda each: each[0], reverse=True):
            if (only and id != only) or (upto and id >= upto):
                continue
            if left is not None and left <= 0:
                return
            found = self.get_tuple(_config(thread.id, ns, id))
            if found is not None and _matches(found.metadata, filter):
                left = None if left is None else left - 1
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The values that each channel was given since its last snapshot, along the parents."""
        thread, ns = self._place(config)
        id = get_checkpoint_id(config)
        return thread.look(lambda state: self._history(thread, state, ns, id, channels))  # type: ignore[no-any-return]

    def _history(
        self, thread: Thread, state: ThreadState, ns: str, id: str | None, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        there = state.checkpoints.get(ns, {})
        found: dict[str, DeltaChannelHistory] = {each: {"writes": []} for each in channels}
        left = set(channels)
        for ancestor in _ancestors(thread, there, id or max(there, default="")):
            if not left:
                break
            writes = self._writes(thread, state, (ns, ancestor))
            for write in reversed(writes):
                if write[1] in left:
                    found[write[1]]["writes"].append(write)
            versions = thread.data(there[ancestor])["versions"]
            for channel in [*left]:
                place = (ns, channel, str(versions.get(channel, "")))
                if place in state.channels:
                    found[channel]["seed"] = self._value(thread, state, *place)
                    left.discard(channel)
        for each in found.values():
            each["writes"].reverse()
        return found

    # Values of channels: lists by what they have more than before

    def _value(self, thread: Thread, state: ThreadState, *place: str) -> Any:
        ns, channel, version = place
        data = thread.data(state.channels[ns, channel, version])
        if "value" in data:
            return self._encoding.load(data["value"])
        return [each.value() for each in self._items(thread, state, ns, channel, version)]

    def _items(self, thread: Thread, state: ThreadState, *place: str) -> Sequence[_Item]:
        """The items of a list, those of the versions that it goes on from included."""
        ns, channel, version = place
        missing: list[tuple[str, Delta]] = []
        items: list[_Item] = []
        while version:
            known = thread.lists.get((ns, channel, version))
            if known is not None:
                items = known
                break
            delta = msgspec.convert(thread.data(state.channels[ns, channel, version]), Delta)
            missing.append((version, delta))
            version = delta.of
        for _, delta in reversed(missing):
            items = items[: delta.keep] + [_Item(self._encoding, data) for data in delta.items]
        if missing:
            self._keep_list(thread, ns, channel, missing[0][0], items)
        return items

    def _keep_list(
        self, thread: Thread, ns: str, channel: str, version: str, items: Sequence[_Item]
    ) -> None:
        for place in [each for each in thread.lists if each[:2] == (ns, channel)]:
            del thread.lists[place]
        thread.lists[ns, channel, version] = [*items]

    def _stored(
        self,
        thread: Thread,
        state: ThreadState,
        place: tuple[str, str, str],
        before: str,
        value: Any,
    ) -> Any:
        """The value of a channel as it is stored: of a list, what is new since version `before`."""
        ns, channel, version = place
        if type(value) is not list or len(value) < _FEWEST_ITEMS:
            return {"value": self._encoding.dump(value)}
        old: Sequence[_Item] = ()
        base = state.channels.get((ns, channel, before))
        if base is not None and "value" not in thread.data(base):
            old = self._items(thread, state, ns, channel, before)
        items = [*old[: len(value)]]
        keep = len(items)
        for index, item in enumerate(value):
            if index < keep and items[index].is_same(item):
                continue
            if index < keep:
                keep = index
                del items[index:]
            items.append(_Item(self._encoding, self._encoding.dump(item), item))
        self._keep_list(thread, ns, channel, version, items)
        new = [each.data for each in items[keep:]]
        return Delta(new, before, keep) if keep else Delta(new)

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint, durably."""
        thread, ns = self._place(config)
        parent = config["configurable"].get("checkpoint_id")
        rest: dict[str, Any] = {**checkpoint}
        del rest["channel_values"]
        kept = {
            "versions": rest.pop("channel_versions"),
            "checkpoint": self._encoding.dump(rest),
            "metadata": self._encoding.dump(get_checkpoint_metadata(config, metadata)),
        }
        if parent:
            kept["parent"] = parent
        values = checkpoint["channel_values"]

        def stored(state: ThreadState) -> dict[str, Any]:
            found = {}
            before = _versions(thread, state, ns, parent)
            for channel, version in new_versions.items():
                if channel in values:
                    place = (ns, channel, str(version))
                    old = str(before.get(channel, ""))
                    found[key_of(CHANNEL, *place)] = self._stored(
                        thread, state, place, old, values[channel]
                    )
            return found

        changes = thread.look(stored)
        thread.put({**changes, key_of(CHECKPOINT, ns, checkpoint["id"]): kept})
        return _config(thread.id, ns, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what a task of the graph wrote after a checkpoint, durably. Once for each place."""
        thread, ns = self._place(config)
        id = config["configurable"]["checkpoint_id"]
        values, once = {}, []
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            key = key_of(WRITE, ns, id, task_id, str(index))
            values[key] = {"channel": channel, "value": self._encoding.dump(value)}
            if task_path:
                values[key]["path"] = task_path
            if index >= 0:
                once.append(key)
        if values:
            thread.put(values, unless=once)

    # Taking away

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread, with its log."""
        self._threads.of(_text("thread_id", thread_id)).delete()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Take away the checkpoints that these runs made, in every thread."""
        runs = set(run_ids)
        for thread in self._threads.all() if runs else ():
            gone = []
            for ns, id in _places(thread):
                found = self.get_tuple(_config(thread.id, ns, id))
                if found is not None and found.metadata.get("run_id") in runs:
                    gone.append((ns, id))
            self._take_away(thread, gone)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace, or (`"delete"`) none.

        The parts of a delta channel of the newest one stay: without it the channel is lost.
        """
        if strategy not in ("keep_latest", "delete"):
            raise BadInput(f"prune(): strategy={strategy!a:.60} must be 'keep_latest' or 'delete'")
        for thread in [self._threads.of(_text("thread_id", id)) for id in thread_ids]:
            if strategy == "delete":
                thread.delete()
                continue
            kept = {
                place
                for ns in thread.look(lambda state: [*state.checkpoints])
                for place in self._needed(thread, ns)
            }
            self._take_away(thread, [place for place in _places(thread) if place not in kept])

    def _needed(self, thread: Thread, ns: str) -> Iterable[Place]:
        """The newest checkpoint, and its ancestors up to the last snapshots of delta channels."""

        def look(state: ThreadState) -> list[Place]:
            there = state.checkpoints[ns]
            newest = max(there)
            data = thread.data(there[newest])
            versions = data["versions"]
            left = {
                channel
                for channel, version in versions.items()
                if (ns, channel, str(version)) not in state.channels
            }
            needed = [(ns, newest)]
            for ancestor in _ancestors(thread, there, newest):
                then = thread.data(there[ancestor])["versions"]
                written = {
                    thread.data(kept)["channel"]
                    for kept in state.writes.get((ns, ancestor), {}).values()
                }
                is_delta = "counters_since_delta_snapshot" in _plain(data["metadata"])
                if not left or not (is_delta or written & left):
                    break
                needed.append((ns, ancestor))
                left -= {c for c in left if (ns, c, str(then.get(c, ""))) in state.channels}
            return needed

        return thread.look(look)  # type: ignore[no-any-return]

    def _take_away(self, thread: Thread, gone: Sequence[Place]) -> None:
        lost = set(gone)

        def keys(state: ThreadState) -> list[str]:
            used = set[tuple[str, str, str]]()
            for ns, there in state.checkpoints.items():
                for id, kept in there.items():
                    if (ns, id) not in lost:
                        versions = thread.data(kept)["versions"]
                        for channel, version in versions.items():
                            used |= _with_bases(thread, state, ns, channel, str(version))
            found = [key_of(CHECKPOINT, *place) for place in gone]
            for place in gone:
                found += [
                    key_of(WRITE, *place, task, str(index))
                    for task, index in state.writes.get(place, {})
                ]
            return found + [key_of(CHANNEL, *each) for each in state.channels if each not in used]

        if lost:
            thread.drop(thread.look(keys))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy every checkpoint and write of a thread to another."""
        source = self._threads.of(_text("source_thread_id", source_thread_id))
        target = self._threads.of(_text("target_thread_id", target_thread_id))
        if source is target:
            raise BadInput(f"thread {source.id!r} can't be copied to itself")
        kept = source.look(lambda state: {**state.values})
        if kept:
            target.put({key: source.data(each) for key, each in kept.items()})

    def _place(self, config: RunnableConfig) -> tuple[Thread, str]:
        given = config.get("configurable", {})
        if "thread_id" not in given:
            raise BadInput(
                "a graph with a HoldfastSaver needs a thread: "
                'invoke(…, {"configurable": {"thread_id": "…"}})'
            )
        thread = self._threads.of(_text("thread_id", given["thread_id"]))
        return thread, str(given.get("checkpoint_ns") or "")

    # The async form of each

    aget_tuple: Final = off_the_loop(get_tuple)
    aput: Final = off_the_loop(put)
    aput_writes: Final = off_the_loop(put_writes)
    adelete_thread: Final = off_the_loop(delete_thread)
    adelete_for_runs: Final = off_the_loop(delete_for_runs)
    acopy_thread: Final = off_the_loop(copy_thread)
    aprune: Final = off_the_loop(prune)
    aget_delta_channel_history: Final = off_the_loop(get_delta_channel_history)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list` for async code."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await away(next, found, None)) is not None:
            yield each


class _Item:
    """An item of a list: as it is stored, and as the graph had it last."""

    __slots__ = ("_encoding", "_mark", "_object", "data")

    def __init__(self, encoding: Encoding, data: Any, value: Any = None) -> None:
        self.data = data
        self._encoding = encoding
        self._object = value
        self._mark = fingerprint(value)

    def value(self) -> Any:
        """The item, for the caller to keep: what it does to it changes nothing here."""
        if self._mark is not None and fingerprint(self._object) == self._mark:
            return self._object.model_copy()
        found = self._encoding.load(self.data)
        self._object, self._mark = found, fingerprint(found)
        return found if self._mark is None else found.model_copy()

    def is_same(self, value: Any) -> bool:
        """Whether a value is this item still."""
        mark = fingerprint(value)
        if mark is not None and self._mark is not None:
            return bool(mark == self._mark)
        return bool(self._encoding.dump(value) == self.data)


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str | int) or isinstance(given, bool):
        raise BadInput(f"{name}={given!a:.60} must be a text")
    return str(given)


def _plain(data: Any) -> Any:
    return data if isinstance(data, dict) else {}


def _matches(metadata: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    return all(metadata.get(name) == value for name, value in (filter or {}).items())


def _places(thread: Thread) -> list[Place]:
    found: list[Place] = thread.look(
        lambda state: [(ns, id) for ns, there in state.checkpoints.items() for id in there]
    )
    return found


def _ancestors(thread: Thread, there: Mapping[str, Any], id: str) -> Iterator[str]:
    """The parents of a checkpoint, the nearest first."""
    seen = {id}
    parent = thread.data(there[id]).get("parent") if id in there else None
    while parent and parent in there and parent not in seen:
        yield parent
        seen.add(parent)
        parent = thread.data(there[parent]).get("parent")


def _versions(thread: Thread, state: ThreadState, ns: str, id: str | None) -> dict[str, Any]:
    kept = state.checkpoints.get(ns, {}).get(id or "")
    if kept is None:
        return {}
    found: dict[str, Any] = thread.data(kept)["versions"]
    return found


def _with_bases(
    thread: Thread, state: ThreadState, ns: str, channel: str, version: str
) -> set[tuple[str, str, str]]:
    """A version of a channel, and those that it goes on from."""
    found = set()
    while version and (ns, channel, version) in state.channels:
        found.add((ns, channel, version))
        version = thread.data(state.channels[ns, channel, version]).get("of", "")
    return found
