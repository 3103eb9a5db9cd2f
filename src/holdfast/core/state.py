"""The state of a task: everything its events come to. Made by `fold`, and by nothing else."""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from datetime import datetime
from typing import Any, Literal, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.events import (
    NEVER,
    AnyEvent,
    Completed,
    Effects,
    Failure,
    Fork,
    Kind,
    ListGrew,
    OnCancel,
    PlanItem,
    QueueTicket,
    Started,
    Stepped,
    Unread,
)

Status = Literal[
    "pending",
    "in_progress",
    "awaiting_user",
    "paused",
    "stuck",
    "completed",
    "failed",
    "cancelled",
]
CallStatus = Literal[
    "running", "backing_off", "in_doubt", "retrying", "waiting", "completed", "failed"
]

FINISHED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})
"""The statuses in which nothing drives a task any more."""

HALTED: frozenset[str] = frozenset({"paused", "stuck"})
"""The statuses in which a task goes on only when somebody says so."""

UNDO = "undo"
"""The scope of the calls that undo others."""


class Attempt(Struct, frozen=True, omit_defaults=True, gc=False):
    """One try of a call."""

    number: int
    at: datetime
    ended_at: datetime | None = None
    failure: Failure | None = None


class Call(Struct, frozen=True, omit_defaults=True, gc=False):
    """Everything the log knows of one call: a node of the task's tree."""

    path: str
    name: str
    kind: Kind
    status: CallStatus
    at: datetime
    args: Raw | UnsetType = UNSET
    args_hash: str = ""
    key: str = ""
    attempts: tuple[Attempt, ...] = ()
    failures: int = 0
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None
    retry_at: datetime | None = None
    until: datetime | None = None
    """For what waits: when it wakes, or gives up waiting."""
    default: Raw | UnsetType = UNSET
    expects: str = ""
    schema: Raw | UnsetType = UNSET
    """For a question: the JSON Schema of its answer, if the name of the type does not say all."""
    exhausted: bool = False
    unmade: bool = False
    """Whether it is known that no attempt so far had its effect."""
    doubt: bool = False
    why: str = ""
    settled_by: str = ""
    ended_at: datetime | None = None
    seq: int = 0
    """The event that began it."""
    failed_seq: int = 0
    """The event by which it failed for good."""
    ended_seq: int = 0
    """The event by which it was completed."""
    undo: bool = False
    """Whether it can be undone."""
    child: str = ""
    """For a child: the id of its task."""
    on_cancel: OnCancel = "cancel"
    refused: str = ""
    """For a question: why the last answer did not fit."""
    approves: str = ""
    """For an approval, or a wait for a limit: the path of the call it is about."""
    parts: Raw | UnsetType = UNSET
    """For a step that streams and failed: what it had yielded."""
    reads: tuple[str, ...] = ()
    """For a read of the outside world: its name, and the names of those it is made of."""
    as_of: datetime | None = None
    """For such a read: since when the world may have changed without its knowing."""
    of: str = ""
    """For such a read that was answered by an earlier one: the path of that."""
    invalidates: tuple[str, ...] = ()
    """For a tool: the reads that it makes untrue."""
    adopted: str = ""
    """For a call that was not made: how it came by its outcome."""
    adopted_of: tuple[str, str] | None = None
    """For such a call: the task and the path of the call that was."""


class Decision(Struct, frozen=True, omit_defaults=True):
    """The choice at a branch point: what, from which options, and why."""

    path: str
    name: str
    at: datetime
    choice: Raw
    options: Raw | UnsetType = UNSET
    because: str = ""
    supersedes: str = ""


class PlanVersion(Struct, frozen=True, omit_defaults=True):
    """The plan as it was from a time on. `marked` is the item that changed; '' for a new plan."""

    seq: int
    at: datetime
    items: tuple[PlanItem, ...]
    marked: str = ""
    because: str = ""
    by: str = ""
    """The person who changed it, if it was not the task."""


class Note(Struct, frozen=True, omit_defaults=True):
    """Something the agent wanted to remember."""

    scope: str
    text: str
    at: datetime
    data: Raw | UnsetType = UNSET


class Fact(Struct, frozen=True, omit_defaults=True):
    """Something made of what the outside world said, and of when it said so."""

    path: str
    name: str
    at: datetime
    value: Raw
    as_of: datetime
    sources: tuple[str, ...] = ()


class Progress(Struct, frozen=True, omit_defaults=True):
    """How far a strand of the task said it is, the last time it did."""

    at: datetime
    number: int
    text: str = ""
    done: float | None = None
    total: float | None = None


class KeptFile(Struct, frozen=True, omit_defaults=True):
    """A version of a file of the task: its content, and when, by which call and by whom it came
    to be. The event that kept it is its number."""

    name: str
    file: Raw
    at: datetime
    seq: int
    path: str = ""
    by: str = ""


class Age(Struct, frozen=True):
    """A stretch of a task's past that it left, by a fork or a rewind."""

    name: str
    """The text that keys and seeds are made of."""
    last: dict[str, str]
    """The newest call of each scope at its end."""


class Death(Struct, frozen=True, omit_defaults=True):
    """When a driver of the task last died: who, during which call, and how often by then."""

    at: datetime
    owner: str
    path: str = ""
    name: str = ""
    count: int = 1


class Hindrance(Struct, frozen=True, omit_defaults=True):
    """Why the task could not go on when somebody last tried, and since when."""

    at: datetime
    error: str
    why: str
    by: str = ""


class State(Struct):
    """Everything a task knows after the event `seq`."""

    id: str = ""
    task: str = ""
    status: Status = "pending"
    seq: int = 0
    created_at: datetime = NEVER
    updated_at: datetime = NEVER
    user: str = ""
    session: str = ""
    labels: dict[str, str] = {}
    args: Raw | UnsetType = UNSET
    args_hash: str = ""
    epoch: int = 0
    owner: str = ""
    engine: str = ""
    """The kind of its newest writer."""
    driver: str = ""
    """The engine that is to drive it; '' for any process that has the code and looks for work."""
    driven_since: int = 1
    """The event that the engine drives it from."""
    taken_at: int = 0
    """The event by which it was taken from an engine that was not asked; 0 if it never was."""
    format: int = 0
    claims: int = 0
    process: str = ""
    """The process of its newest writer."""
    is_held: bool = False
    """Whether its newest writer has not recorded that it released the task."""
    deaths: dict[str, int] = {}
    """How often drivers died during a call that has not ended, by its path; '' for none."""
    death: Death | None = None
    """The newest of these deaths."""
    hindrance: Hindrance | None = None
    """Why it does not move, where somebody tried and could not go on."""
    plan: tuple[PlanItem, ...] = ()
    plans: list[PlanVersion] = []
    """Every version of the plan: a replay sees each as it was."""
    checkpoint_plan: tuple[PlanItem, ...] = ()
    """The plan as of the newest checkpoint."""
    calls: dict[str, Call] = {}
    last: dict[str, str] = {}
    """The newest call of each scope, by the path of the scope."""
    inner: set[str] = set()
    """The paths under which calls stand that are deeper in the tree."""
    decisions: list[Decision] = []
    notes: list[Note] = []
    facts: list[Fact] = []
    marks: dict[str, int] = {}
    """Which note or plan is which, by its mark: so that a replay does not say it again."""
    mission: Raw | UnsetType = UNSET
    """Its purpose, if a person gave one."""
    files: dict[str, KeptFile] = {}
    """Its files as they are now, by name."""
    kept: list[KeptFile] = []
    """Every version of them: a replay finds what it wrote."""
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None
    causes: tuple[str, ...] = ()
    version: int = 0
    parent: str = ""
    parent_path: str = ""
    timeout_s: float | None = None
    until: datetime | None = None
    """When the task's time is up."""
    parked: bool = False
    """Whether its last writer released it because it waits."""
    wake_at: datetime | None = None
    """When a parked task goes on by itself."""
    ticket: QueueTicket | None = None
    """For a task of a queue: in which, and where in it."""
    in_line: bool = False
    """Whether it waits there for a place."""
    not_before: datetime | None = None
    """When a task that nobody drove yet may begin at the earliest."""
    cancelling: bool = False
    because: str = ""
    """Why it was paused or cancelled."""
    ending: Literal["", "failed", "cancelled"] = ""
    """How it will end once what it did is undone."""
    compensated: bool = False
    undoable: bool = False
    """Whether it has called anything that can be undone."""
    checkpoints: int = 0
    checkpoint: Raw | UnsetType = UNSET
    """The newest whole checkpoint, and what changed since."""
    changes: list[Raw] = []
    checkpoint_version: int = 0
    lists: dict[str, ListGrew] = {}
    """The long lists that values name, by their digests: what each has beyond another."""
    reads: dict[str, str] = {}
    """The newest read of each kind since the last checkpoint: its path, by `read_key`."""
    invalidated: dict[str, int] = {}
    """By the name of a read: the last event that made those untrue which began before it. Under
    '' stands one that did so to all of them."""
    writers: dict[str, tuple[str, ...]] = {}
    """The tools that have not ended, by path, and which reads they make untrue."""
    progress: dict[str, Progress] = {}
    posts: tuple[str, ...] = ()
    mail: tuple[Unread, ...] = ()
    """The messages that no call has taken yet, the oldest first."""
    """The messages of its inbox that it has taken, by name."""
    began_at: datetime = NEVER
    """When its function first began: that of a fork has run for as long as its original's."""
    fork: Fork | None = None
    """Whose past it shares, if it is a fork."""
    name: str = ""
    """The base of children's ids and unique ids: its id, and how often it was rewound."""
    rewinds: int = 0
    effects: Effects = "live"
    """The policy for the tools that it calls."""
    ages: tuple[Age, ...] = ()
    """The stretches of its past, oldest first, without the present one."""
    left_at: int = 0
    """The last event of the past that it was rewound from, if it was."""
    sessions_to_rewind: dict[str, int] = {}
    trail: list[AnyEvent] = []
    """The events that it was made of, so that it can be rewound; see `Reread`."""


class Reread(list[AnyEvent]):
    """The trail of a state that is read from a log, where it can be read again.

    A long task has hundreds of thousands of starts and results of calls, and only a rewind needs
    them. So they are left out once there are many.
    """

    __slots__ = ("is_whole", "upto")

    def __init__(
        self, upto: Callable[[int], Iterable[AnyEvent]], kept: Iterable[AnyEvent] = ()
    ) -> None:
        super().__init__(kept)
        self.upto: Callable[[int], Iterable[AnyEvent]] = upto
        """Reads every event up to one."""
        self.is_whole: bool = True

    def thin(self) -> None:
        """Leave out what can be read again, from now on."""
        self[:] = [event for event in self if type(event) not in READ_AGAIN]
        self.is_whole = False

    def copy(self) -> Reread:
        """Another one of the same log."""
        found = Reread(self.upto, self)
        found.is_whole = self.is_whole
        return found


READ_AGAIN = (Started, Completed, Stepped)
"""Most events of a log are these."""


def read_key(name: str, args_hash: str) -> str:
    """The key that two reads of the outside world share when they ask for the same.

    >>> read_key("prices", "99a8fa9e4312f0bf")
    'prices:99a8fa9e4312f0bf'
    """
    return f"{name}:{args_hash}"


def scope_of(path: str) -> str:
    """The path of the scope a call was made in: '' for the task's body.

    >>> scope_of("6.2.1"), scope_of("6")
    ('6.2', '')
    """
    return path.rpartition(".")[0]


# Dicts of a state that know what was changed in them, and those whose values are made later.
#
# A state that is read back from waypoints has tens of thousands of calls, and its reader
# looks at a few. So its calls are had by their place in what was stored, and made when they are
# first looked at. To its users, such a dict is a dict.


V = TypeVar("V")

_NOTHING: Any = object()


class KeyChanges:
    """Which keys of a dict were set and removed, in that order, since somebody last looked."""

    __slots__ = ("anew", "dropped", "put")

    def __init__(self) -> None:
        self.put: dict[str, None] = {}
        self.dropped: dict[str, None] = {}
        self.anew: bool = False
        """Whether nothing is left of what it was before."""

    def drop(self, key: str) -> None:
        """The key is there no more, and what comes under it again comes at the end."""
        self.put.pop(key, None)
        self.dropped[key] = None

    def add(self, newer: KeyChanges) -> None:
        """Take in what was changed after these.

        >>> first, second = KeyChanges(), KeyChanges()
        >>> first.put = {"a": None, "b": None}
        >>> second.drop("a")
        >>> first.add(second)
        >>> list(first.put), list(first.dropped)
        (['b'], ['a'])
        """
        if newer.anew:
            self.put, self.dropped, self.anew = dict(newer.put), dict(newer.dropped), True
            return
        for key in newer.dropped:
            self.drop(key)
        self.put.update(newer.put)


class Tracked(dict[str, V]):
    """A dict that notes its changes.

    >>> known = Tracked({"a": 1})
    >>> known["b"] = 2
    >>> known.pop("a")
    1
    >>> changes = known.taken()
    >>> list(changes.put), list(changes.dropped)
    (['b'], ['a'])
    """

    __slots__ = ("changes",)

    def __init__(self, given: Mapping[str, V] | None = None) -> None:
        super().__init__(given or {})
        self.changes: KeyChanges = KeyChanges()

    def taken(self) -> KeyChanges:
        """The changes since the last time this was asked."""
        found, self.changes = self.changes, KeyChanges()
        return found

    def __setitem__(self, key: str, value: V) -> None:
        self.changes.put[key] = None
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        dict.__delitem__(self, key)
        self.changes.drop(key)

    def pop(self, key: str, default: Any = _NOTHING) -> Any:
        if key not in self and default is not _NOTHING:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, V]:
        key = next(reversed(self))
        return key, self.pop(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *given: Any, **named: Any) -> None:
        for key, value in dict(*given, **named).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def clear(self) -> None:
        for key in list(self):
            del self[key]


Load = Callable[[Sequence[int]], Sequence[V]]
"""Makes the values that stand at places."""


class Later(Tracked[V]):
    """A dict whose values are made when they are looked at: until then it holds their places.

    >>> squares = Later({"two": 2, "three": 3}, lambda places: [f"{n * n}" for n in places])
    >>> squares["three"], len(squares), list(squares), dict(squares)
    ('9', 2, ['two', 'three'], {'two': '4', 'three': '9'})
    """

    __slots__ = ("_load", "_open")

    def __init__(self, places: Mapping[str, int], load: Load[V], open: Sequence[str] = ()) -> None:
        super().__init__()
        dict.update(self, places)
        self._load = load
        self._open = open
        """The keys of those that somebody said are worth a look."""

    def unended(self) -> Iterator[V]:
        """The values that were made already, and those under the keys that are worth a look."""
        yield from [value for value in dict.values(self) if type(value) is not int]
        for key in self._open:
            if type(dict.get(self, key)) is int:
                yield self[key]

    def __getitem__(self, key: str) -> V:
        value: Any = dict.__getitem__(self, key)
        if type(value) is int:
            (value,) = self._load([value])
            dict.__setitem__(self, key, value)
        return value  # type: ignore[no-any-return]

    def get(self, key: str, default: Any = None) -> Any:
        value = dict.get(self, key, default)
        return self[key] if type(value) is int and key in self else value

    def some(self, keys: Sequence[str]) -> list[V]:
        """The values of these keys, made at once.

        >>> Later({"two": 2, "three": 3}, lambda places: [n * n for n in places]).some(["two"])
        [4]
        """
        places: list[Any] = [(key, dict.__getitem__(self, key)) for key in keys]
        left = [(key, place) for key, place in places if type(place) is int]
        for (key, _), value in zip(left, self._load([at for _, at in left]), strict=True):
            dict.__setitem__(self, key, value)
        return [dict.__getitem__(self, key) for key in keys]

    # A reader that asks for all of them gets them made at once.

    def values(self) -> ValuesView[V]:  # type: ignore[override]
        return dict.values(self._made())

    def items(self) -> ItemsView[str, V]:  # type: ignore[override]
        return dict.items(self._made())

    def _made(self) -> dict[str, V]:
        left: list[Any] = [(key, place) for key, place in dict.items(self) if type(place) is int]
        if left:
            values = self._load([place for _, place in left])
            for (key, _), value in zip(left, values, strict=True):
                dict.__setitem__(self, key, value)
        return self

    def copy(self) -> Later[V]:
        """Another one, without making any value."""
        found: Later[V] = Later({}, self._load, self._open)
        dict.update(found, dict.items(self))
        return found

    # Being there, this keeps `dict(later)` and `{**later}` from taking places for values.
    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self)

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == (dict(other.items()) if isinstance(other, Later) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: Any) -> Any:
        return dict(self.items()) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self.items())

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class Packed(Later[V]):
    """A dict that keeps values as bytes once they are settled: for hundreds of thousands.

    >>> def pack(values):
    ...     return ",".join(values).encode()
    >>> def unpack(data):
    ...     return data.decode().split(",")
    >>> known = Packed({"a": "one", "b": "two"}, pack, unpack, lambda value: value != "two")
    >>> known.settle()
    >>> known["c"] = "three"
    >>> known["a"], list(known.values()), [*known.unended()]
    ('one', ['one', 'two', 'three'], ['two', 'three'])
    """

    __slots__ = ("_fresh", "_is_settled", "_notes", "_pack", "_packs", "_unpack", "_unpacked")

    def __init__(
        self,
        given: dict[str, V],
        pack: Callable[[Sequence[V]], bytes],
        unpack: Callable[[bytes], Sequence[V]],
        is_settled: Callable[[V], bool],
    ) -> None:
        super().__init__({}, _no_places)
        dict.update(self, given)
        self._pack, self._unpack, self._is_settled = pack, unpack, is_settled
        self._fresh = dict.fromkeys(given)
        """The keys of values that are not packed."""
        self._packs: list[bytes] = []
        self._unpacked: dict[int, Sequence[V]] = {}
        """The packs that were looked into last."""
        self._notes = isinstance(given, Tracked)
        """Whether somebody follows its changes."""
        if isinstance(given, Tracked):
            self.changes: KeyChanges = given.changes

    def settle(self, leave: int = 0) -> None:
        """Pack the values that are settled, but for so many of the newest."""
        keys = list(self._fresh)
        older = keys[: max(len(keys) - leave, 0)]
        found = [(key, dict.__getitem__(self, key)) for key in older]
        settled = [(key, value) for key, value in found if self._is_settled(value)]
        for start in range(0, len(settled), _PACK):
            some = settled[start : start + _PACK]
            first = len(self._packs) * _PACK
            self._packs.append(self._pack([value for _, value in some]))
            places: Any = {key: first + index for index, (key, _) in enumerate(some)}
            dict.update(self, places)
            for key in places:
                del self._fresh[key]

    def unended(self) -> Iterator[V]:
        return iter([dict.__getitem__(self, key) for key in self._fresh])

    def _one(self, place: int) -> V:
        number, index = divmod(place, _PACK)
        values = self._unpacked.get(number)
        if values is None:
            values = self._unpack(self._packs[number])
            # Replaced, never changed: the threads of a task look at its calls at once.
            others = list(self._unpacked.items())[1 - _MOST_UNPACKED :]
            self._unpacked = dict([*others, (number, values)])
        return values[index]

    def __getitem__(self, key: str) -> V:
        value: Any = dict.__getitem__(self, key)
        return self._one(value) if type(value) is int else value

    def get(self, key: str, default: Any = None) -> Any:
        value: Any = dict.get(self, key)
        return default if value is None else self._one(value) if type(value) is int else value

    def __setitem__(self, key: str, value: V) -> None:
        self._fresh[key] = None
        if self._notes:
            self.changes.put[key] = None
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        dict.__delitem__(self, key)
        self._fresh.pop(key, None)
        if self._notes:
            self.changes.drop(key)

    def some(self, keys: Sequence[str]) -> list[V]:
        return [self[key] for key in keys]

    # They are unpacked as they are looked at, and not kept.

    def values(self) -> ValuesView[V]:  # type: ignore[override]
        return _UnpackedValues(self)

    def items(self) -> ItemsView[str, V]:  # type: ignore[override]
        return _UnpackedItems(self)

    def copy(self) -> Packed[V]:
        found: Packed[V] = Packed({}, self._pack, self._unpack, self._is_settled)
        dict.update(found, dict.items(self))
        found._fresh, found._packs = dict(self._fresh), list(self._packs)
        return found


class _UnpackedValues(ValuesView[V]):
    _mapping: Packed[V]

    def __reversed__(self) -> Iterator[V]:
        return (self._mapping[key] for key in reversed(self._mapping))


class _UnpackedItems(ItemsView[str, V]):
    _mapping: Packed[V]

    def __reversed__(self) -> Iterator[tuple[str, V]]:
        return ((key, self._mapping[key]) for key in reversed(self._mapping))


def _no_places(places: Sequence[int]) -> list[Any]:
    # A method would be a circle, and keep the packs until the next collection.
    raise NotImplementedError


_PACK = 512
_MOST_UNPACKED = 4
