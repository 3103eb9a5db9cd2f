"""Looking after the tasks of a remote engine: what it was never told of, it is told now.

A task is in the store before its engine knows of it, and so is every message. Whoever wrote them
may have died before he told the engine, may have none, or may not have reached it. So each worker
of an engine makes a pass over its tasks now and then, about once a second:

    a message still in the inbox    the engine is told of it (again, ever more rarely)
    a task it does not drive        it is started, unless somebody stopped it there

A pass in which nothing is to be done asks the store two questions, whatever the number of tasks. A
task is looked at (its log read, its engine asked) when it is first seen, and once in a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from holdfast.engines.elsewhere import driven_by, is_to_end, job_for, let_know
from holdfast.engines.handing import hand_over
from holdfast.engines.port import Engine, NotServed
from holdfast.errors import EngineConflict, EngineError, StoreError, TaskBusy
from holdfast.facts import BY_ENGINE
from holdfast.listing import read_facts
from holdfast.reading import read_state
from holdfast.state import State
from holdfast.store import Post, Store

_TASKS = "tasks/"
_AGAIN_S = 60.0
"""After how long a task is looked at again."""
_MOST_LOOKS = 200
"""How many tasks one pass looks at, at most: the next one goes on."""
_SOONEST_S, _LATEST_S = 1.0, 60.0
"""After how long the engine is told again of a message that stays in the inbox."""


class Swept(Struct, frozen=True):
    """What a pass did."""

    started: tuple[str, ...] = ()
    """The ids of the tasks that the engine did not drive."""
    told: tuple[tuple[str, str], ...] = ()
    """The messages that the engine was told of: of which task, and their names."""
    trouble: tuple[str, ...] = ()
    """What stood in the way; it is tried again."""
    unserved: str = ""
    """A type of task that the engine knows of nobody to drive."""


class Memory(Struct):
    """What is remembered from one pass to the next. May be lost: the next pass asks more then."""

    look_at: dict[str, float] = field(default_factory=dict)
    """By stream, when to look at it next."""
    tell_at: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """By stream and message, when to tell of it next, and how long to wait after that."""


def sweep(store: Store, engine: Engine, memory: Memory, now_s: float) -> Swept:
    """Make one pass over the tasks of an engine. `now_s` is the time of any clock that only goes
    forward."""
    started: list[str] = []
    told: list[tuple[str, str]] = []
    trouble: list[str] = []
    unserved = ""
    try:
        streams = list(_driven_remotely(store))
        posts = _due(memory, store.inbox(streams) if streams else (), now_s)
        memory.look_at = {each: memory.look_at.get(each, now_s) for each in streams}
        due = [each for each in streams if memory.look_at[each] <= now_s][:_MOST_LOOKS]
        for stream in dict.fromkeys([*(post.stream for post in posts), *due]):
            its_posts = [post for post in posts if post.stream == stream]
            try:
                state = read_state(store, stream)
                if driven_by(state) != engine.name:
                    memory.look_at[stream] = now_s + _AGAIN_S
                    continue
                if _start(store, engine, stream, state, its_posts):
                    started.append(state.id)
                    state = read_state(store, stream)  # which may have a new run since
                memory.look_at[stream] = now_s + _AGAIN_S
                told += _tell(engine, state, its_posts, memory, now_s)
            except TaskBusy:  # a worker has not let go of it yet, though its run is over
                memory.look_at[stream] = now_s + _SOONEST_S
                for post in its_posts:
                    _put_off(post, memory, now_s)
            except (EngineError, StoreError) as error:
                memory.look_at[stream] = now_s + _AGAIN_S
                for post in its_posts:
                    _put_off(post, memory, now_s)
                if not isinstance(error, EngineConflict | Stopped | StoreError):
                    # Perhaps it is this task alone: the next pass begins with the others.
                    memory.look_at[stream] = now_s + _SOONEST_S
                    raise
                trouble.append(f"{stream.removeprefix(_TASKS)}: {error}")
    except (EngineError, StoreError) as error:  # it can't be reached: neither can the others be
        trouble.append(str(error))
        unserved = error.task if isinstance(error, NotServed) else ""
    return Swept(tuple(started), tuple(told), tuple(trouble), unserved)


def _driven_remotely(store: Store) -> Iterator[str]:
    for stream, facts in store.due(_TASKS, BY_ENGINE):
        found = facts
        if found is None:
            try:
                found = read_facts(store, stream)
            except StoreError:
                continue  # whoever reads it is told
        if found is not None and found.wake_at == BY_ENGINE:
            yield stream


def _due(memory: Memory, posts: Sequence[Post], now_s: float) -> list[Post]:
    """The messages that the engine is to be told of now. Those that are gone are forgotten."""
    there = {(post.stream, post.name): post for post in posts}
    memory.tell_at = {key: at for key, at in memory.tell_at.items() if key in there}
    return [post for key, post in there.items() if memory.tell_at.get(key, (now_s, 0))[0] <= now_s]


class Stopped(EngineError):
    """Somebody ended a task by the means of its engine."""


def _start(store: Store, engine: Engine, stream: str, state: State, posts: Sequence[Post]) -> bool:
    """Start a task that the engine does not drive."""
    job = job_for(state)
    known = engine.query(job)
    if known is not None and known.status == "running":
        return False
    # One that is to end has to be started too: it may have something to undo.
    if (
        known is not None
        and known.status == "stopped"
        and not any(is_to_end(p.name) for p in posts)
    ):
        raise Stopped(
            f"somebody ended it on {engine.name} ({known.detail}), and it is left so. To go on "
            f"with it: hf.resume({state.id!r}); to end it for good, and undo what it did: "
            f"hf.cancel({state.id!r})"
        )
    newest = read_state(store, stream)  # it may have ended since
    if driven_by(newest) != engine.name or job_for(newest) != job:
        return False
    hand_over(store, engine, newest, by=f"a worker of {engine.name}")
    return True


def _tell(
    engine: Engine, state: State, posts: list[Post], memory: Memory, now_s: float
) -> Iterator[tuple[str, str]]:
    for post in posts:
        let_know(engine, state, post.name)
        _put_off(post, memory, now_s)
        yield state.id, post.name


def _put_off(post: Post, memory: Memory, now_s: float) -> None:
    key = (post.stream, post.name)
    pause_s = memory.tell_at.get(key, (0.0, _SOONEST_S))[1]
    memory.tell_at[key] = (now_s + pause_s, min(2 * pause_s, _LATEST_S))
