"""The events of a task's workspace: what it is for, and the files that belong to it."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType

from holdfast.events.base import Event


class MissionSet(Event, frozen=True, kw_only=True, tag="mission_set"):
    """What the task is for, in the words of people. The newest counts; older ones stay in the log.

    `diff` is what changed, where somebody edited it.
    """

    text: Raw
    by: str = ""
    diff: str = ""
    post: str = ""


class FileKept(Event, frozen=True, kw_only=True, tag="file_kept"):
    """From here on a file of the task has this content: an artifact. `path` is the call that
    wrote it; by `mark` a replay knows it again.

    `base` is the version that the writer expected to replace, where it said so: 0 for none.
    """

    name: str
    file: Raw
    path: str = ""
    mark: str = ""
    by: str = ""
    base: int | UnsetType = UNSET
    post: str = ""


class FileRemoved(Event, frozen=True, kw_only=True, tag="file_removed"):
    """From here on a file of the task is gone. Its versions stay."""

    name: str
    path: str = ""
    mark: str = ""
    by: str = ""
    base: int | UnsetType = UNSET
    post: str = ""


WorkspaceEvent = MissionSet | FileKept | FileRemoved
