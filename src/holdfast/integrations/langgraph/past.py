"""Bring the threads along that another checkpointer of LangGraph has kept.

Any checkpointer will do as the source: `SqliteSaver`, `PostgresSaver`, one of your own. Checkpoints
keep their ids, parents, metadata and writes. The sessions they become are marked as imported, and a
second import adds what is new.
"""

from __future__ import annotations

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from msgspec import Struct

from holdfast.api.app import Holdfast
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.past import IMPORTED
from holdfast.log.reading import session_stream


class ImportedThreads(Struct, frozen=True):
    """The result of an import."""

    threads: tuple[str, ...]
    checkpoints: int
    """How many were new."""


def import_threads(
    hf: Holdfast, source: BaseCheckpointSaver[str], thread_id: str | None = None
) -> ImportedThreads:
    """Copy the threads of another checkpointer into a store of Holdfast: all, or one.

    >>> from holdfast import Holdfast
    >>> from langgraph.checkpoint.memory import InMemorySaver
    >>> with Holdfast("memory://") as hf:
    ...     import_threads(hf, InMemorySaver())
    ImportedThreads(threads=(), checkpoints=0)
    """
    target = HoldfastSaver(hf)
    config = {"configurable": {"thread_id": thread_id}} if thread_id is not None else None
    found = sorted(source.list(config), key=lambda each: each.checkpoint["id"])  # type: ignore[arg-type]
    threads, new = [], 0
    for each in found:
        thread = each.config["configurable"]["thread_id"]
        if thread not in threads:
            threads.append(thread)
            hf.session(
                thread, labels=None if _is_there(target, thread) else {IMPORTED: "langgraph"}
            )
        new += _bring(target, each)
    return ImportedThreads(tuple(threads), new)


def _is_there(target: HoldfastSaver, thread: str) -> bool:
    return next(target.hf.store.read(session_stream(thread)), None) is not None


def _bring(target: HoldfastSaver, each: CheckpointTuple) -> int:
    if target.get_tuple(each.config) is not None:
        return 0
    checkpoint = each.checkpoint
    given = each.config["configurable"]
    place = {"thread_id": given["thread_id"], "checkpoint_ns": given.get("checkpoint_ns", "")}
    parent = each.parent_config
    if parent is not None:
        place["checkpoint_id"] = parent["configurable"]["checkpoint_id"]
    known = target.get_tuple({"configurable": place}) if parent is not None else None
    old = known.checkpoint["channel_versions"] if known is not None else {}
    new = {
        channel: version
        for channel, version in checkpoint["channel_versions"].items()
        if old.get(channel) != version
    }
    kept = target.put({"configurable": place}, checkpoint, each.metadata, new)
    by_task: dict[str, list[tuple[str, object]]] = {}
    for task, channel, value in each.pending_writes or ():
        by_task.setdefault(task, []).append((channel, value))
    for task, writes in by_task.items():
        target.put_writes(kept, writes, task)
    return 1
