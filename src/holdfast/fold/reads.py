"""What the outside world said, and what may have changed there since.

A read may answer for the same read made later, so the state knows the newest of each kind, and
what speaks against it: a tool that changes what was read, from its intent until it has ended; and
a clock that was set back, by which no age can be told. A read has to have *begun* after all that.

Nothing is forgotten when a tool begins. While one is under way no read of its kind is reused, and
its end makes those untrue that began before it: so those from before it, and those made meanwhile.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from holdfast import events as e
from holdfast.fold.waits import place
from holdfast.state import Call, Fact, State, read_key, scope_of


def begun(state: State, event: e.Started) -> None:
    """A read begins, or a tool that makes reads untrue."""
    call = replace(state.calls[event.path], invalidates=event.invalidates)
    if event.external:
        call = replace(call, reads=(event.name,), as_of=event.at)
    state.calls[event.path] = call
    _made_inside(state, call)
    writes(state, call)


def begun_again(state: State, call: Call, at: datetime) -> None:
    """It is tried again. A read counts from now, unless its body finds something in the log that
    an earlier attempt saw."""
    inside = f"{call.path}."
    if call.reads and not any(path.startswith(inside) for path in state.calls):
        state.calls[call.path] = replace(call, as_of=at)
    writes(state, call)


def saw(state: State, call: Call) -> None:
    """A read has ended: it may answer for others, unless there is a younger one.

    One that was begun before the last checkpoint may not: it may have been read from a log that
    begins there, where nobody knows what came in between.
    """
    if state.checkpoints and not call.path.startswith(f"@{state.checkpoints}."):
        return
    key = read_key(call.name, call.args_hash)
    known = state.calls.get(state.reads.get(key, ""))
    if known is None or not _is_older(call, known):
        state.reads[key] = call.path


def _is_older(call: Call, other: Call) -> bool:
    return call.as_of is not None and other.as_of is not None and call.as_of < other.as_of


def reused(state: State, event: e.Reused) -> None:
    seen = state.calls[event.of]
    call = state.calls[event.path] = Call(
        event.path,
        event.name,
        "step",
        "completed",
        event.at,
        seen.args,
        event.args_hash,
        result=seen.result,
        ended_at=event.at,
        seq=event.seq,
        ended_seq=event.seq,
        reads=seen.reads,
        as_of=seen.as_of,
        of=event.of,
    )
    place(state, event.path)
    _made_inside(state, call)


def _made_inside(state: State, inner: Call) -> None:
    # A read may be made of others: then it is as old as the oldest of them, and what makes one of
    # them untrue makes it untrue.
    path = inner.path
    while inner.reads and (path := scope_of(path)):
        outer = state.calls.get(path)
        if outer is not None and outer.reads:
            names = tuple(dict.fromkeys((*outer.reads, *inner.reads)))
            as_of = inner.as_of if _is_older(inner, outer) else outer.as_of
            state.calls[path] = replace(outer, reads=names, as_of=as_of)


def writes(state: State, call: Call) -> None:
    """A tool is about to have its effect, or may have had it."""
    if call.invalidates:
        state.writers[call.path] = call.invalidates


def wrote(state: State, call: Call, seq: int) -> None:
    """A tool has ended, one way or the other. Who failed may have done it all the same."""
    state.writers.pop(call.path, None)
    for name in call.invalidates:
        state.invalidated[name] = seq


def clock_set_back(state: State, seq: int) -> None:
    """By this clock what was read before would seem younger than it is, also what is under way."""
    state.reads = {}
    state.invalidated[""] = seq


def derived(state: State, event: e.Derived) -> None:
    path, name, at = event.path, event.name, event.at
    state.calls[path] = Call(
        path, name, "fact", "completed", at, result=event.value, ended_at=at, as_of=event.as_of
    )
    state.facts.append(Fact(path, name, at, event.value, event.as_of, event.sources))
