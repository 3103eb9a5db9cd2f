"""The kinds of logs that a store keeps, and how the streams of each are named.

    tasks/<id>        copies/<id>            a task, and one that is being copied here
    sessions/<id>     session-copies/<id>    a session
    memories/<id>     memory-copies/<id>     a memory

The part before the first slash is the kind, whatever slashes an id has: no id of a task can name a
session. Where people read a plain id it is one of a task; of the others they read the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

KindName = Literal["task", "session", "memory"]


class Kind(Struct, frozen=True):
    """One kind of log."""

    name: KindName
    plural: str
    prefix: str
    drafts: str
    """How the names of those begin that are being copied here."""

    def stream(self, id: str) -> str:
        """The stream of the log with this id."""
        return f"{self.prefix}{id}"

    def draft(self, id: str) -> str:
        """The stream in which its copy is written, before it gets its name."""
        return f"{self.drafts}{id}"

    def shown(self, id: str) -> str:
        """The log as it is named in reports, beside its kind: a task by its id alone.

        >>> TASK.shown("trip-42"), SESSION.shown("s-1")
        ('trip-42', 'sessions/s-1')
        """
        return id if self is TASK else self.stream(id)

    def id_shown(self, shown: str) -> str:
        """The id again; what is not shown like that is taken for an id."""
        return shown if self is TASK else shown.removeprefix(self.prefix)


TASK = Kind("task", "tasks", "tasks/", "copies/")
SESSION = Kind("session", "sessions", "sessions/", "session-copies/")
MEMORY = Kind("memory", "memories", "memories/", "memory-copies/")
KINDS = (TASK, SESSION, MEMORY)

_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_PREFIX = {kind.prefix: kind for kind in KINDS}
_BY_DRAFTS = {kind.drafts: kind for kind in KINDS}


def named(name: KindName) -> Kind:
    """The kind of that name."""
    return _BY_NAME[name]


def kind_of(stream: str) -> Kind:
    """The kind of a log, by the name of its stream; that of a draft included.

    >>> kind_of("sessions/s-1").name, kind_of("tasks/sessions/s-1").name
    ('session', 'task')
    """
    before = _before_id(stream)
    return _BY_PREFIX.get(before) or _BY_DRAFTS.get(before) or TASK


def id_of(stream: str) -> str:
    """The id of the log in a stream."""
    return stream.partition("/")[2]


def final_name(stream: str) -> str:
    """The name that a stream has, or will have: that of a draft is the one it is written for.

    >>> final_name("session-copies/s-1"), final_name("tasks/copies/s-1")
    ('sessions/s-1', 'tasks/copies/s-1')
    """
    kind = _BY_DRAFTS.get(_before_id(stream))
    return stream if kind is None else kind.stream(id_of(stream))


def prefixes() -> Iterator[str]:
    """How the names of all streams begin that may name a blob.

    Drafts come first: so who walks through them in this order misses none that gets its name.
    """
    for kind in KINDS:
        yield kind.drafts
        yield kind.prefix


def for_people(shown: str, kind: KindName) -> str:
    """A name from a report, for a text without its kind: a task is named in full if its id looks
    like the name of another log.

    >>> for_people("trip-42", "task"), for_people("sessions/x", "session")
    ('trip-42', 'sessions/x')
    >>> for_people("sessions/x", "task")
    'tasks/sessions/x'
    """
    if kind == "task" and kind_of(shown) is not TASK:
        return TASK.stream(shown)
    return shown


def _before_id(stream: str) -> str:
    before, slash, _ = stream.partition("/")
    return before + slash
