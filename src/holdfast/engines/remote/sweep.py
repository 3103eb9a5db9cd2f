"""Looking after the tasks of a remote engine: the sweep tells it what it was never told.

A task is in the store before its engine knows of it, and so is every message. Their writer
may have died before it told the engine, may have none, or may not have reached it. So each worker
of an engine makes a pass over its tasks now and then, about once a second:

    a message still in the inbox    the engine is told of it (again, ever more rarely)
    a task it does not drive        it is started, unless somebody stopped it there

A pass in which nothing is to be done asks the store two questions, whatever the number of tasks. A
task is looked at (its log read, its engine asked) once in a while, and first in the next pass after
it was seen: its maker is just about to tell the engine. The first pass of a worker
waits for nobody. A task that the engine fails for is looked at again soon, after all the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from holdfast.core.facts import BY_ENGINE
from holdfast.core.kinds import id_of
from holdfast.core.state import State
from holdfast.engines.port import Engine, NotServed
from holdfast.engines.routing import driven_by, hand_over, is_to_end, job_for, let_know
from holdfast.errors import EngineConflict, EngineError, StoreError, TaskBusy
from holdfast.log.states import load, read_facts
from holdfast.log.store_calls import due_in, inbox_of
from holdfast.stores.port import Post, Store

_TASKS = "tasks/"
_AGAIN_S, _LOOKS_PER_S = 60.0, 2.0
"""After how long a task is looked at again; and how many are, if they are many: each look reads a
log and asks the engine, and hardly ever finds anything."""
_MOST_LOOKS = 200
"""How many tasks one pass looks at, at most: the next one goes on."""
_MOST_FAILURES = 3
"""After how many tasks in a row that the engine fails for a pass ends: it can't be reached then,
and to go on would be a time-out for each of the others."""
_SOONEST_S, _LATEST_S = 1.0, 60.0
"""After how long the engine is told again of a message that stays in the inbox."""


class SweepResult(Struct, frozen=True):
    """The outcome of a pass."""

    started: tuple[str, ...] = ()
    """The ids of the tasks that the engine did not drive."""
    told: tuple[tuple[str, str], ...] = ()
    """The messages that the engine was told of: of which task, and their names."""
    trouble: tuple[str, ...] = ()
    """The obstacles; it is tried again."""
    unserved: str = ""
    """A type of task that the engine knows of nobody to drive."""


class SweepMemory(Struct):
    """The memory from one pass to the next. May be lost: the next pass asks more then."""

    look_at: dict[str, float] = field(default_factory=dict)
    """By stream, when to look at it next."""
    tell_at: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """By stream and message, when to tell of it next, and how long to wait after that."""
    trouble: dict[str, str] = field(default_factory=dict)
    """By stream, what stood in its way when it was last looked at."""
    is_first: bool = True
    """Whether no pass was made yet."""


def sweep(store: Store, engine: Engine, memory: SweepMemory, now_s: float) -> SweepResult:
    """Make one pass over the tasks of an engine. `now_s` is the time of any clock that only goes
    forward."""
    return _Pass(store, engine, memory, now_s).make()


class _Pass:
    """One pass: what it goes by, and what it has done so far."""

    def __init__(self, store: Store, engine: Engine, memory: SweepMemory, now_s: float) -> None:
        self._store, self._engine, self._memory, self._now_s = store, engine, memory, now_s
        self._started: list[str] = []
        self._told: list[tuple[str, str]] = []
        self._trouble: list[str] = []
        self._unserved = ""
        self._failures = 0
        """How many tasks in a row the engine failed for."""

    def make(self) -> SweepResult:
        try:
            posts = self._survey()
        except StoreError as error:
            self._trouble.append(str(error))
        else:
            for stream in self._in_turn(posts):
                self._look_at(stream, [post for post in posts if post.stream == stream])
                if self._failures == _MOST_FAILURES:
                    break
        trouble = tuple(dict.fromkeys(self._trouble))
        return SweepResult(tuple(self._started), tuple(self._told), trouble, self._unserved)

    def _survey(self) -> list[Post]:
        """See which tasks there are; returns the messages that the engine is to be told of now."""
        memory, now_s = self._memory, self._now_s
        streams = list(_driven_remotely(self._store))
        posts = _due(memory, inbox_of(self._store, streams) if streams else (), now_s)
        if memory.is_first:
            new, look_at_new = set[str](), now_s
        else:
            new, look_at_new = set(streams) - set(memory.look_at), now_s + _SOONEST_S
        memory.look_at = {each: memory.look_at.get(each, look_at_new) for each in streams}
        memory.trouble = {each: memory.trouble[each] for each in streams if each in memory.trouble}
        memory.is_first = False
        return [post for post in posts if post.stream not in new]

    def _in_turn(self, posts: Sequence[Post]) -> list[str]:
        """The tasks to look at. Those in trouble come last: nobody is to wait for them."""
        at = self._memory.look_at
        due = sorted((each for each in at if at[each] <= self._now_s), key=lambda each: at[each])
        streams = dict.fromkeys([*(post.stream for post in posts), *due])
        healthy = [each for each in streams if each not in self._memory.trouble]
        troubled = [each for each in streams if each in self._memory.trouble]
        return [*healthy[:_MOST_LOOKS], *troubled[:_MOST_LOOKS]]

    def _look_at(self, stream: str, posts: Sequence[Post]) -> None:
        """Do what is to be done for a task, or take note of what stands in the way."""
        again_s = max(_AGAIN_S, len(self._memory.look_at) / _LOOKS_PER_S)
        self._memory.look_at[stream] = self._now_s + again_s
        try:
            self._look_after(stream, posts)
        except TaskBusy:  # a worker has not released it yet, though its run is over
            self._memory.look_at[stream] = self._now_s + _SOONEST_S
            self._put_off(posts)
        except NotServed as error:
            self._failures = 0  # the engine can be reached
            self._unserved = error.task
            self._hinder(stream, posts, str(error))
            self._memory.look_at[stream] = self._now_s + _SOONEST_S
        except (EngineConflict, StoppedByEngine, StoreError) as error:
            self._failures = 0
            self._hinder(stream, posts, f"{stream.removeprefix(_TASKS)}: {error}")
        except EngineError as error:
            # It may be this task alone, or the engine can't be reached: the next ones will tell.
            self._failures += 1
            self._hinder(stream, posts, str(error))
            self._memory.look_at[stream] = self._now_s + _SOONEST_S
        else:
            self._memory.trouble.pop(stream, None)

    def _look_after(self, stream: str, posts: Sequence[Post]) -> None:
        state = load(self._store, id_of(stream), missing_ok=True)
        if driven_by(state) != self._engine.name:
            return
        if _start(self._store, self._engine, stream, state, posts):
            self._started.append(state.id)
            state = load(
                self._store, id_of(stream), missing_ok=True
            )  # which may have a new run since
        self._failures = 0
        for post in posts:
            let_know(self._engine, state, post.name)
            _put_off(post, self._memory, self._now_s)
            self._told.append((state.id, post.name))

    def _hinder(self, stream: str, posts: Sequence[Post], trouble: str) -> None:
        self._trouble.append(trouble)
        self._memory.trouble[stream] = trouble
        self._put_off(posts)

    def _put_off(self, posts: Sequence[Post]) -> None:
        for post in posts:
            _put_off(post, self._memory, self._now_s)


def _driven_remotely(store: Store) -> Iterator[str]:
    for stream, facts in due_in(store, _TASKS, BY_ENGINE):
        found = facts
        if found is None:
            try:
                found = read_facts(store, stream)
            except StoreError:
                continue  # its reader is told
        if found is not None and found.wake_at == BY_ENGINE:
            yield stream


def _due(memory: SweepMemory, posts: Sequence[Post], now_s: float) -> list[Post]:
    """The messages that the engine is to be told of now. Messages that are gone are forgotten."""
    there = {(post.stream, post.name): post for post in posts}
    memory.tell_at = {key: at for key, at in memory.tell_at.items() if key in there}
    return [post for key, post in there.items() if memory.tell_at.get(key, (now_s, 0))[0] <= now_s]


class StoppedByEngine(EngineError):
    """Somebody ended a task by the means of its engine."""


def _start(store: Store, engine: Engine, stream: str, state: State, posts: Sequence[Post]) -> bool:
    """Start a task that the engine does not drive."""
    job = job_for(state)
    known = engine.query(job)
    if known is not None and known.status == "running":
        return False
    # A task that is to end has to be started too: it may have something to undo.
    if (
        known is not None
        and known.status == "stopped"
        and not any(is_to_end(p.name) for p in posts)
    ):
        raise StoppedByEngine(
            f"somebody ended it on {engine.name} ({known.detail}), and it is left so. To go on "
            f"with it: hf.resume({state.id!r}); to end it for good, and undo what it did: "
            f"hf.cancel({state.id!r})"
        )
    newest = load(store, id_of(stream), missing_ok=True)  # it may have ended since
    if driven_by(newest) != engine.name or job_for(newest) != job:
        return False
    hand_over(store, engine, newest, by=f"a worker of {engine.name}")
    return True


def _put_off(post: Post, memory: SweepMemory, now_s: float) -> None:
    key = (post.stream, post.name)
    pause_s = memory.tell_at.get(key, (0.0, _SOONEST_S))[1]
    memory.tell_at[key] = (now_s + pause_s, min(2 * pause_s, _LATEST_S))
