"""The actions of people on the page: answer, approve, resolve, retry, fork, rewind and the rest.

Each is the method of `Holdfast` that the command line calls too, with the same refusals, and is
recorded with the name of the person who asked. A task goes on by itself where a worker runs; where
this server was given the code (`--app`) it can drive tasks too, in a thread of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from holdfast.codec import from_outside
from holdfast.core.decoding import Illegible, decode
from holdfast.core.spec import registry
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.engines.routing import driven_by
from holdfast.errors import (
    BadInput,
    CodeMissing,
    HoldfastError,
    Signal,
    Unserializable,
)
from holdfast.history.forks import EFFECTS
from holdfast.views.task import TaskView, at_work, view_task
from holdfast.web.asked import Failing, PageRequest, Site
from holdfast.web.logs import view_at
from holdfast.web.past import effect_data
from holdfast.web.shapes import plain_value

Data = dict[str, Any]
MOST_AT_ONCE = 500
_driven: set[tuple[str, str]] = set()
_driving = threading.Lock()


def _done(site: Site, id: str, words: str, command: str = "", **more: Any) -> Data:
    view = view_at(site.hf.store, id)
    return {
        "ok": True,
        "words": words,
        "task": {"id": id, "status": view.status, "seq": view.seq},
        "next": _goes_on(site, view),
        "command": command,
        **more,
    }


def _goes_on(site: Site, view: TaskView) -> str:
    if view.status in FINISHED:
        return ""
    if engine := driven_by(view.state):
        return f"A worker of {engine} goes on with it."
    if holder := at_work(site.hf.store, view):
        return f"{holder} is at work on it."
    return f"To go on: {site.hints.go_on(view.state)}"


def _read(word: str) -> Any:
    """JSON where it can be read as such, else the text itself, as on the command line."""
    try:
        return decode(word.encode())
    except (Illegible, UnicodeError):
        return word


class _Answer(Struct, forbid_unknown_fields=True):
    question: str
    answer: Any = UNSET
    text: str | UnsetType = UNSET


def answer(site: Site, asked: PageRequest) -> Data:
    """Answer a question."""
    given = asked.body(_Answer)
    if (given.answer is UNSET) == (given.text is UNSET):
        raise BadInput("give either answer or text")
    value = _read(given.text) if isinstance(given.text, str) else given.answer
    return _answered(site, asked, given.question, value)


def _answered(site: Site, asked: PageRequest, question: str, value: Any) -> Data:
    id, view = asked.id, view_at(site.hf.store, asked.id)
    try:
        site.hf.answer(id, value, question=question, by=asked.user)
    except Unserializable as error:
        expects = next((c.expects for c in view.questions if question in (c.key, c.path)), "")
        told = f"question {question} expects {expects}" if expects else str(error)
        raise BadInput(told) from None
    _drive_on(site, id)
    return _done(site, id, f"answered: question {question}")


class _Approval(Struct, forbid_unknown_fields=True):
    question: str
    approved: bool


def approve(site: Site, asked: PageRequest) -> Data:
    """Say whether a call may be made."""
    given = asked.body(_Approval)
    return _answered(site, asked, given.question, given.approved)


class _Settling(Struct, forbid_unknown_fields=True):
    path: str
    happened: bool
    result: Any = UNSET
    result_text: str | UnsetType = UNSET
    because: str = ""
    unchecked: bool = False


def resolve(site: Site, asked: PageRequest) -> Data:
    """Settle a call in doubt."""
    given, id = asked.body(_Settling), asked.id
    result = given.result
    if isinstance(given.result_text, str):
        try:
            result = decode(given.result_text.encode())
        except (Illegible, UnicodeError) as error:
            raise BadInput(f"the result is no JSON ({error}): a text needs quotes") from None
    if given.happened and result is UNSET:
        raise BadInput("say what the call returned: null if it returns nothing")
    view = view_at(site.hf.store, id)
    if given.happened and not given.unchecked:
        _must_be_checkable(site, view, given.path)
    site.hf.resolve(
        id,
        given.path,
        happened=given.happened,
        result=None if result is UNSET else from_outside(result),
        because=given.because,
        by=asked.user,
        unchecked=given.unchecked,
    )
    verdict = "happened" if given.happened else "did not happen"
    _drive_on(site, id)
    return _done(site, id, f"settled: call {given.path} {verdict}")


def _must_be_checkable(site: Site, view: TaskView, path: str) -> None:
    call = view.state.calls.get(path)
    if call is None or call.kind != "tool" or registry.is_foreign(call.name):
        return  # settling it says what is wrong
    try:
        registry.call(call.name)
    except CodeMissing as error:
        command = site.hints.command(
            "resolve", view.id, path, options=["--happened", "--result", "JSON"], code=True
        )
        message = (
            f"the result can't be checked: {error}. Or take it unchecked: a result that does not "
            f"fit then stops the task until the call is settled again"
        )
        raise Failing(409, "needs_code", message, command) from None


# Driving tasks, where there is code.


def _has_code(site: Site, state: State) -> bool:
    try:
        registry.task(state.task)
    except CodeMissing:
        return False
    return bool(site.app)


def _drive(site: Site, id: str, go: Callable[[], Any]) -> None:
    """Drive a task in a thread of its own, once at a time. The outcome is in its log."""
    url = site.hf.store.url

    def run() -> None:
        try:
            go()
        except (HoldfastError, Signal):  # it waits, or it failed: the log says so
            pass
        finally:
            with _driving:
                _driven.discard((url, id))

    with _driving:
        if (url, id) in _driven:
            return
        _driven.add((url, id))
    threading.Thread(target=run, name=f"holdfast ui {id}", daemon=True).start()


def _drive_on(site: Site, id: str) -> None:
    """Go on with a task that was told what it waited for, if we have its code and nobody else
    is at work on it."""
    state = view_at(site.hf.store, id).state
    idle = site.hf.store.holder(f"tasks/{id}") is None
    if idle and not driven_by(state) and _has_code(site, state):
        _drive(site, id, lambda: site.hf.resume(id))


def retry(site: Site, asked: PageRequest) -> Data:
    """Try a failed task again."""
    return _going(site, asked, "retry", lambda: site.hf.retry(asked.id))


def resume(site: Site, asked: PageRequest) -> Data:
    """Go on with a task: here if there is code, else a paused one is left to a worker."""
    view = view_at(site.hf.store, asked.id)
    if view.status in HALTED and not _has_code(site, view.state):
        site.hf.unpause(asked.id, by=asked.user)
        return _done(site, asked.id, "goes on, left to a worker")
    return _going(site, asked, "resume", lambda: site.hf.resume(asked.id))


def check(site: Site, asked: PageRequest) -> Data:
    """Go on with a task whose call was interrupted: its policy asks the check."""
    return _going(site, asked, "resume", lambda: site.hf.resume(asked.id))


def _going(site: Site, asked: PageRequest, command: str, go: Callable[[], Any]) -> Data:
    id, view = asked.id, view_at(site.hf.store, asked.id)
    wanted = ("failed",) if command == "retry" else ()
    if wanted and view.status not in wanted:
        raise BadInput(f"task {id!r} is {view.status}: only a failed task is tried again")
    if not wanted and view.status in FINISHED:
        raise BadInput(f"task {id!r} is {view.status}: there is nothing to go on with")
    told = site.hints.go_on(view.state, command)
    if not _has_code(site, view.state):
        message = f"the code of {view.type} is not loaded here: start holdfast ui --app MODULE, or"
        raise Failing(409, "needs_code", f"{message} run: {told}", told)
    if (holder := at_work(site.hf.store, view)) is not None:
        raise Failing(409, "busy", f"{holder} is at work on it")
    _drive(site, id, go)
    words = "tried again here" if command == "retry" else "goes on here"
    return _done(site, id, words, told)


class _Reason(Struct, forbid_unknown_fields=True):
    because: str = ""


def pause(site: Site, asked: PageRequest) -> Data:
    """Stop a task at its next step."""
    return _paused(site, asked.id, asked.body(_Reason).because, asked.user)


def _paused(site: Site, id: str, because: str, by: str) -> Data:
    site.hf.pause(id, because=because, by=by)
    view = view_at(site.hf.store, id)
    holder = at_work(site.hf.store, view)
    if view.status != "paused":
        words = f"asked to pause: {holder or 'its holder'} has yet to hear of it"
    else:
        words = "paused" if not holder else f"paused: {holder} finishes the step in hand"
    return _done(site, id, words, site.hints.command("pause", id))


def cancel(site: Site, asked: PageRequest) -> Data:
    """End a task at its next step, for good."""
    return _cancelled(site, asked.id, asked.body(_Reason).because, asked.user)


def _cancelled(site: Site, id: str, because: str, by: str) -> Data:
    view_at(site.hf.store, id)
    site.hf.cancel(id, because=because, by=by)
    view = view_at(site.hf.store, id)
    if view.status in FINISHED and view.status != "cancelled":
        raise BadInput(f"task {id!r} is {view.status}: it has ended before it could be told")
    holder = at_work(site.hf.store, view) or driven_by(view.state) or None
    if view.status == "cancelled":
        outcome, words = "ended", "cancelled: it has ended"
    elif holder:
        outcome, words = "will_end", f"asked to end: it will at its next step ({holder})"
    else:
        outcome, words = (
            "to_be_driven",
            "asked to end: a worker, or resume, does what is left first",
        )
        _drive_on(site, id)
    return _done(site, id, words, site.hints.command("cancel", id), outcome=outcome)


class _Sending(Struct, forbid_unknown_fields=True):
    name: str
    value: Any = UNSET
    text: str = ""
    id: str = ""


def send(site: Site, asked: PageRequest) -> Data:
    """Send a message to a task."""
    given, id = asked.body(_Sending), asked.id
    value = _read(given.text) if given.value is UNSET else given.value
    is_new = site.hf.send(id, given.name, value, id=given.id, by=asked.user)
    said = f"sent: message {given.name}" if is_new else f"message {given.name} was sent before"
    _drive_on(site, id)
    return _done(site, id, said)


# Another way, and back.


class _Forking(Struct, forbid_unknown_fields=True):
    effects: Literal["live", "reuse", "stub"]
    at: str | None = None
    when: Literal["before", "after"] | None = None
    seq: int | None = None
    results: dict[str, Any] = {}
    input: dict[str, Any] = {}
    arguments: dict[str, dict[str, Any]] = {}
    stubs: dict[str, Any] = {}
    state: Any = UNSET
    task: str | None = None
    new_id: str | None = None
    because: str = ""
    run: bool = False


def fork(site: Site, asked: PageRequest) -> Data:
    """Make a task that shares the past of this one, and goes its own way."""
    given = asked.body(_Forking)
    named = {n: getattr(given, n) for n in given.__struct_fields__ if n != "run"}
    named |= {n: _each(named[n]) for n in ("results", "input", "stubs")}
    named["arguments"] = {name: _each(changed) for name, changed in given.arguments.items()}
    named["state"] = from_outside(given.state)
    made = site.hf.fork(asked.id, by=asked.user, **named)
    origin = made.state.fork
    of, seq = (origin.of, origin.seq) if origin is not None else (asked.id, 0)
    if given.run:
        _drive_on(site, made.id)
    words = f"task {made.id} shares {seq:,} events with {of}"
    told = {
        "id": made.id,
        "of": of,
        "seq": seq,
        "effects": given.effects,
        "words": f"effects {given.effects}: {EFFECTS[given.effects]}",
    }
    return _done(site, made.id, words, site.hints.go_on(made.state), fork=told)


def _each(given: dict[str, Any]) -> dict[str, Any]:
    return {name: from_outside(value) for name, value in given.items()}


class _Rewinding(Struct, forbid_unknown_fields=True):
    to: str | None = None
    when: Literal["before", "after"] | None = None
    seq: int | None = None
    undo: bool = False
    effects: Literal["live", "reuse", "stub"] = "reuse"
    because: str = ""


def rewind(site: Site, asked: PageRequest) -> Data:
    """Rewind a task: state, conversation and files as one."""
    given, id = asked.body(_Rewinding), asked.id
    state = view_at(site.hf.store, id).state
    if given.undo and not _has_code(site, state):
        command = site.hints.command("rewind", id, options=["--undo"], code=True)
        raise Failing(409, "needs_code", "to undo what was done, its code is needed", command)
    done = site.hf.rewind(
        id,
        to=given.to,
        when=given.when,
        seq=given.seq,
        undo=given.undo,
        effects=given.effects,
        by=asked.user,
        because=given.because,
    )
    back = site.hints.command("rewind", id, options=["--event", str(done.task.seq - 1)])
    words = f"task {id} was rewound, and is {done.task.status}"
    return _done(site, id, words, back, effects=[effect_data(each) for each in done.effects])


class _Replaying(Struct, forbid_unknown_fields=True):
    start: str | None = None
    to: str | None = None
    stubs: dict[str, Any] = {}


def replay(site: Site, asked: PageRequest) -> Data:
    """Run the code that is loaded over the log, with no effect."""
    given, id = asked.body(_Replaying), asked.id
    view = view_task(site.hf.store, id)
    command = site.hints.command("replay", id, code=True)
    if not _has_code(site, view.state):
        message = f"the code of {view.type} is not loaded here: start holdfast ui --app MODULE"
        raise Failing(409, "needs_code", message, command)
    done = site.hf.replay(id, start=given.start, to=given.to, stubs=_each(given.stubs))
    first = done.divergence
    words = "the code does what it did" if done.same else "the code goes another way"
    return {
        "same": done.same,
        "outcome": done.outcome,
        "recorded": done.recorded,
        "words": words,
        "answered": done.answered,
        "stopped_at": done.stopped_at,
        "result": plain_value(done.result, ""),
        "problem": done.failure or (str(first) if first is not None else ""),
        "first": None if first is None else {"words": str(first)},
        "command": command,
    }


def compensate(site: Site, asked: PageRequest) -> Data:
    """Undo what a task did that ended badly."""
    id, view = asked.id, view_at(site.hf.store, asked.id)
    if not _has_code(site, view.state):
        command = site.hints.command("compensate", id, code=True)
        raise Failing(409, "needs_code", "to undo what was done, its code is needed", command)
    if view.status not in ("failed", "cancelled"):
        raise BadInput(f"task {id!r} is {view.status}: only what failed or was cancelled is undone")
    _drive(site, id, lambda: site.hf.compensate(id))
    return _done(site, id, "what it did is being undone here")


# Many at once.


class _Bulk(Struct, forbid_unknown_fields=True):
    do: Literal["pause", "cancel", "retry", "resume"]
    ids: list[str]
    because: str = ""


def bulk(site: Site, asked: PageRequest) -> Data:
    """The same with many tasks; each is told what came of it."""
    given = asked.body(_Bulk)
    if not 1 <= len(given.ids) <= MOST_AT_ONCE:
        raise BadInput(f"give 1 to {MOST_AT_ONCE} tasks, not {len(given.ids)}")
    return {"done": [_one(site, asked, given, id) for id in dict.fromkeys(given.ids)]}


def _one(site: Site, asked: PageRequest, given: _Bulk, id: str) -> Data:
    single = PageRequest({"id": id}, (), b"{}", asked.user)
    try:
        match given.do:
            case "pause":
                done = _paused(site, id, given.because, asked.user)
            case "cancel":
                done = _cancelled(site, id, given.because, asked.user)
            case "retry":
                done = retry(site, single)
            case _:
                done = resume(site, single)
    except (HoldfastError, Failing) as error:
        return {"id": id, "ok": False, "words": "", "error": str(error)}
    return {"id": id, "ok": True, "words": done["words"], "error": None}


class _Saying(Struct, forbid_unknown_fields=True):
    text: str


def say(site: Site, asked: PageRequest) -> Data:
    """Add what the user says to a session."""
    from holdfast.agent.sessions import open_session

    text = asked.body(_Saying).text
    if not text.strip():
        raise BadInput("there is nothing to say")
    open_session(site.hf.store, asked.id)
    (message,) = site.hf.session(asked.id).say(text)
    return {"ok": True, "words": f"message {message.number:,} of session {asked.id}"}
