"""One task: its header, its calls, its events, its timeline, and each call in full."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from holdfast.core.plan import WORKED_OFF, place_in
from holdfast.core.state import FINISHED, Call, State, scope_of
from holdfast.core.words import cut
from holdfast.errors import BadInput
from holdfast.history.differences import diff
from holdfast.history.known import chains
from holdfast.log.places import ended_at_seq, left_at, newest_rewind, rewound_to
from holdfast.log.states import load
from holdfast.stores.listing import forks_of
from holdfast.views.task import MANY, TaskView, position_of
from holdfast.web.asked import Download, Failing, PageRequest, Site
from holdfast.web.logs import (
    Scan,
    calls_from,
    event_at,
    event_rows,
    head_of,
    row_at,
    search,
    spent_by,
    state_at,
    view_at,
)
from holdfast.web.needs import Needs
from holdfast.web.past import known_at
from holdfast.web.shapes import (
    IN_LISTS,
    ShownValues,
    address,
    attempts_of,
    call_row,
    call_words,
    changes_of,
    failure_of,
    text_value,
    usage_data,
    usage_of,
)

Data = dict[str, Any]
_MOST_CHILDREN, _MOST_FORKS = 200, 20


def at_of(asked: PageRequest) -> int | None:
    """The event that the page is as of; None for the newest."""
    return asked.number("at", None, least=0)


def _view(site: Site, asked: PageRequest) -> TaskView:
    return view_at(site.hf.store, asked.id, at_of(asked))


def header(site: Site, asked: PageRequest) -> Data:
    """The head of a task: what it is, its status, and what to do."""
    at, store = at_of(asked), site.hf.store
    view = view_at(store, asked.id, at)
    state, needs = view.state, Needs(site, view)
    head = head_of(store, view.id)
    is_now = at is None or at >= head
    values = ShownValues(store, state, at)
    tokens, cost = spent_by(view)
    told = needs.all() if is_now else []
    return {
        **{name: getattr(view, name) for name in ("id", "type", "status", "user", "seq")},
        **{
            name: getattr(state, name)
            for name in ("session", "labels", "parent", "parent_path", "created_at", "updated_at")
        },
        "origin": state.fork.of if state.fork is not None else "",
        "head": max(head, state.seq),
        "damage": "" if at is not None or state.seq == head else _damage(view, head),
        "position": _position(view),
        "duration_s": _duration(state),
        "processes": state.claims,
        "tokens": tokens,
        "cost_usd": cost,
        "at_work": needs.holder,
        **{name: getattr(state, name) for name in ("owner", "epoch", "because")},
        "engine": state.driver or state.engine or "local",
        "deadline": state.until,
        "wake_at": state.wake_at if state.parked else None,
        "calls": len(state.calls),
        "model_calls": bool(tokens) or bool(state.session),
        "lanes": _lanes(state),
        "input": values.shown(state.args, "input"),
        "result": values.shown(state.result, "result"),
        "failure": failure_of(view.failure),
        "todo": needs.todo() if is_now else f"As of event {state.seq} of {head}.",
        "note": needs.note() if is_now else "",
        "needs": told,
        "actions": needs.actions(),
        "fork": _fork(state),
        "forks": forks_of(store, view.id, _MOST_FORKS),
        "rewound": _rewound(view),
        "children": _children(site, view),
        "checkpoint": {"number": state.checkpoints} if state.checkpoints else None,
        "files": len(state.files),
        "plan_items": len(state.plan),
        "decisions": len(state.decisions),
        "notes": len(state.notes),
        "commands": _commands(site, view.id),
    }


def _damage(view: TaskView, head: int) -> str:
    return (
        f"the log is damaged after event {view.seq}: what came before it is shown "
        f"(holdfast verify {view.id} says more)"
    )


def _position(view: TaskView) -> Data:
    place = position_of(view)
    return {
        "step": place.step,
        "of": place.of,
        "text": str(place),
        "committed": len(place.committed),
        "running": place.running[:50],
        "pending": [cut(each, 200) for each in place.pending[:50]],
    }


def _duration(state: State) -> float:
    end = state.updated_at if state.status in FINISHED else datetime.now(UTC)
    return max((end - state.created_at).total_seconds(), 0.0)


def _lanes(state: State) -> list[str]:
    found = {"": None}
    for path in state.calls:
        scope = path.partition(".")[0]
        if "~" in scope:
            found[scope] = None
        if len(found) > 200:
            break
    return list(found)


def _fork(state: State) -> Data | None:
    fork = state.fork
    if fork is None:
        return None
    return {
        **{name: getattr(fork, name) for name in ("of", "seq", "path", "when", "effects")},
        "by": fork.by,
        "because": fork.because,
        "words": f"a fork of {fork.of}, {left_at(fork)}, effects {fork.effects}",
    }


def _rewound(view: TaskView) -> Data | None:
    if not view.state.rewinds:
        return None
    newest = newest_rewind(view.state)
    if newest is None:
        return {"to": None, "words": f"rewound {view.state.rewinds} times"}
    return {"to": newest.to, "words": f"rewound to {rewound_to(newest)}, by {newest.by}"}


def _children(site: Site, view: TaskView) -> list[Data]:
    if len(view.state.calls) > MANY:
        return []
    found = []
    for call in view.children[:_MOST_CHILDREN]:
        status = "gone"
        with suppress(Exception):
            status = state_at(site.hf.store, call.child, None).status
        found.append({"path": call.path, "id": call.child, "type": call.name, "status": status})
    return found


def _commands(site: Site, id: str) -> dict[str, str]:
    command = site.hints.command
    plain = {name: command(name, id) for name in ("show", "log", "why", "context", "audit")}
    return plain | {
        "fork": command("fork", id, options=["--at", "STEP", "--effects", "…"]),
        "rewind": command("rewind", id, options=["--to", "STEP"]),
        "replay": command("replay", id, code=True),
    }


# Calls.


def calls(site: Site, asked: PageRequest) -> Data:
    """The calls of a task in the order in which they began, a page of them."""
    view = _view(site, asked)
    paths, scope = list(view.state.calls), asked.text("scope")
    if scope:
        paths = [path for path in paths if scope_of(path) == scope]
    offset = int(asked.number("offset", 0) or 0)
    limit = int(asked.number("limit", 500, least=1, most=2000) or 500)
    found = calls_from(site.hf.store, view.state, paths, offset, offset + limit)
    rows = [call_row(site.hf.store, each) for each in found]
    return {"calls": rows, "total": len(paths), "offset": offset, "seq": view.seq}


def call(site: Site, asked: PageRequest) -> Data:
    """Everything about one call."""
    at, store, view = at_of(asked), site.hf.store, _view(site, asked)
    path = _call(view, asked.part("path")).path
    paths = list(view.state.calls)
    place = paths.index(path)
    [made] = calls_from(store, view.state, paths, place, place + 1)
    values = ShownValues(store, view.state, at)
    before, after = max(made.seq - 1, 0), ended_at_seq(made) or view.seq
    id = view.id
    return {
        **call_row(store, made),
        "index": place,
        "input": values.shown(made.args, "call_input", made.path),
        "output": values.shown(made.result, "call_output", made.path),
        "parts": values.shown(made.parts, "parts", made.path),
        "failure": failure_of(made.failure),
        "args_hash": made.args_hash,
        "attempts": attempts_of(made),
        "before_seq": before,
        "after_seq": after,
        "inner": sum(1 for path in view.state.calls if scope_of(path) == made.path),
        "decision": _decision(view, made, values),
        "fact": _fact(view, made, values),
        "reading": _reading(made),
        "question": _question(made, values),
        "model": usage_of(store, made) is not None,
        "usage": usage_data(usage_of(store, made)),
        "changes": _changed(site, view, made, before, after),
        "words": call_words(made),
        "commands": {
            "context": site.hints.command("context", id, options=["--step", made.path]),
            "fork": site.hints.command(
                "fork", id, options=["--at", made.path, "--effects", "reuse"]
            ),
            "rewind": site.hints.command("rewind", id, options=["--to", made.path]),
        },
    }


def _call(view: TaskView, path: str) -> Call:
    found = view.state.calls.get(path)
    if found is None:
        raise Failing(404, "not_found", f"task {view.id!r} has made no call {path!a:.60} there")
    return found


def _changed(site: Site, view: TaskView, made: Call, before: int, after: int) -> list[Data]:
    if not before or not made.seq:
        return []
    store, paths = site.hf.store, [made.path]
    old = known_at(store, load(store, view.id, before), paths)
    new = known_at(store, load(store, view.id, after), paths)
    return changes_of(diff(old, new))[0]


def _decision(view: TaskView, made: Call, values: ShownValues) -> Data | None:
    if made.kind != "decision":
        return None
    found = next((d for d in view.decisions if d.path == made.path), None)
    raw = next((d for d in view.state.decisions if d.path == made.path), None)
    if found is None or raw is None:
        return None
    return {
        **{name: getattr(found, name) for name in ("because", "step", "supersedes")},
        "superseded_by": found.superseded_by,
        "choice": values.shown(raw.choice, "choice", made.path),
        "options": values.shown(raw.options, "options", made.path),
    }


def _fact(view: TaskView, made: Call, values: ShownValues) -> Data | None:
    for fact in view.state.facts:
        if fact.path == made.path:
            value = values.shown(fact.value, "fact", made.path)
            return {"value": value, "as_of": fact.as_of, "sources": fact.sources}
    return None


def _reading(made: Call) -> Data | None:
    if not made.reads:
        return None
    used_at = made.ended_at or made.at
    age = (used_at - made.as_of).total_seconds() if made.as_of else None
    return {"as_of": made.as_of, "age_s": age, "names": made.reads, "of": made.of}


def _question(made: Call, values: ShownValues) -> Data | None:
    if made.kind not in ("question", "approval"):
        return None
    return {
        "question": made.why,
        "expects": made.expects,
        "until": made.until,
        "answer": values.shown(made.result, "call_output", made.path),
        "by": made.settled_by,
        "refused": made.refused,
    }


# Events and the timeline.


def timeline(site: Site, asked: PageRequest) -> Data:
    """Where processes came and went, and where nothing ran: from one pass over the log."""
    store, view = site.hf.store, _view(site, asked)
    scan = Scan(store, view.id, view.seq)
    began, ended = scan.times()
    return {
        "lines": scan.lines,
        "began": began,
        "ended": ended,
        "now": datetime.now(UTC),
        "total_calls": len(view.state.calls),
        "spans": scan.spans(),
        "gaps": scan.gaps(),
    }


def events(site: Site, asked: PageRequest) -> Data:
    """A page of events in words."""
    store, id = site.hf.store, asked.id
    head = head_of(store, id)
    limit = int(asked.number("limit", 200, least=1, most=1000) or 200)
    before = asked.number("before", None, least=1)
    after = int(asked.number("after", 0) or 0)
    if before is not None:
        after = max(min(before, head + 1) - 1 - limit, 0)
        limit = max(min(before, head + 1) - 1 - after, 0)
    rows = event_rows(store, id, after, limit) if after < head and limit else []
    return {"events": rows, "head": head, "total": head}


def event(site: Site, asked: PageRequest) -> Data:
    """One event, whole."""
    store, id, seq = site.hf.store, asked.id, _number(asked.part("seq"))
    _, line = event_at(store, id, seq)
    href = address("tasks", id, "value", of="event", seq=seq)
    return {
        "event": row_at(store, id, seq),
        "json": text_value(line.decode("utf-8", "replace"), href),
    }


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise BadInput(f"{text!a:.40} is no number of an event")
    return int(text)


def found(site: Site, asked: PageRequest) -> Data:
    """The events of a task whose lines hold a text."""
    text, store, id = asked.text("q"), site.hf.store, asked.id
    if not text:
        raise BadInput("say what to look for: ?q=…")
    head_of(store, id)
    limit = int(asked.number("limit", 50, least=1, most=200) or 50)
    seqs, following, upto = search(store, id, text, int(asked.number("after", 0) or 0), limit)
    hits = [row for seq in seqs for row in event_rows(store, id, seq - 1, 1)]
    return {"hits": hits, "next": following, "searched_to": upto}


# Why, and the plan.


def why(site: Site, asked: PageRequest) -> Data:
    """The decisions and notes, the failures, and the age of each reading."""
    view = _view(site, asked)
    values = ShownValues(site.hf.store, view.state, at_of(asked))
    raw = {each.path: each for each in view.state.decisions}
    calls_of = view.calls if len(view.state.calls) <= MANY else ()
    return {
        "chains": [
            [
                {
                    **{n: getattr(d, n) for n in ("path", "name", "because", "at", "step")},
                    "supersedes": d.supersedes,
                    "superseded_by": d.superseded_by,
                    "choice": _listed(values, raw[d.path].choice, "choice", d.path),
                    "options": _listed(values, raw[d.path].options, "options", d.path),
                }
                for d in chain
            ]
            for chain in chains(view.decisions)[:500]
        ],
        "facts": [
            {
                **{n: getattr(f, n) for n in ("path", "name", "as_of", "sources", "at")},
                "value": _listed(values, f.value, "fact", f.path),
            }
            for f in view.state.facts[-500:]
        ],
        "notes": [
            {"scope": n.scope, "text": cut(n.text, 4000), "at": n.at, "data": _note(values, n.data)}
            for n in view.state.notes[-500:]
        ],
        "failures": [
            {
                "path": c.path,
                "name": c.name,
                "attempt": a.number,
                "at": a.ended_at or a.at,
                "input": _listed(values, c.args, "call_input", c.path),
                "failure": failure_of(a.failure),
            }
            for c in calls_of
            for a in c.attempts
            if a.failure is not None
        ][-200:],
        "readings": [
            {"path": c.path, "name": c.name, "at": c.at, **(_reading(c) or {})}
            for c in calls_of
            if c.reads
        ][-500:],
    }


def _listed(values: ShownValues, raw: Raw | UnsetType, of: str, path: str) -> Data | None:
    return values.shown(raw, of, path, most=IN_LISTS)


def _note(values: ShownValues, raw: Raw | UnsetType) -> Data | None:
    return None if raw is UNSET else values.shown(raw, "note", most=IN_LISTS)


def plan(site: Site, asked: PageRequest) -> Data:
    """The plan of the task, and what became of its items."""
    view = _view(site, asked)
    state = view.state
    reasons = {v.marked: v.because for v in state.plans if v.marked and v.because}
    place = place_in(
        state.plan, is_over=state.status in FINISHED, is_worked_off=view.type in WORKED_OFF
    )
    reached = _reached(view) if place is None else []
    return {
        "mission": _text(view, state.mission),
        "items": [
            {
                **{n: getattr(item, n) for n in ("text", "after")},
                "status": reached[number - 1] if number <= len(reached) else item.status,
                "id": item.id or str(number),
                "because": reasons.get(item.id or str(number), ""),
            }
            for number, item in enumerate(state.plan, 1)
        ],
        "place": place or (position_of(view).step if reached else None),
        "versions": [
            {
                **{n: getattr(v, n) for n in ("seq", "at", "marked", "because", "by")},
                "items": len(v.items),
            }
            for v in state.plans[-500:]
        ],
    }


def _reached(view: TaskView) -> list[str]:
    """What became of the items of a plan that says it of none: each is the step of its number."""
    told, calls = position_of(view), view.state.calls
    if told.of is None or len(calls) > MANY:
        return []
    known = dict.fromkeys(told.committed, "done") | dict.fromkeys(told.running, "doing")
    steps = [p for p in calls if p in known or (p.isdecimal() and calls[p].status == "failed")]
    return [known.get(path, "failed") for path in steps[: told.of]]


def _text(view: TaskView, raw: Raw | UnsetType) -> str | None:
    value = view.value(raw)
    return value if isinstance(value, str) else None


# Downloads of one value.


def value(site: Site, asked: PageRequest) -> Download:
    """One value of the log, whole."""
    store, id, of, path = site.hf.store, asked.id, asked.text("of"), asked.text("path")
    if of == "event":
        seq = int(asked.number("seq", 0) or 0)
        line = event_at(store, id, seq)[1]
        return Download(iter([line]), f"{id}-event-{seq}.json", "application/json")
    view = _view(site, asked)
    state = view.state
    if of == "state":
        from msgspec.json import encode

        data = encode(known_at(store, state, list(state.calls)))
        return Download(iter([data]), f"{id}-state-{state.seq}.json", "application/json")
    raw = _raw(view, of, path)
    if not isinstance(raw, Raw):
        raise Failing(404, "not_found", "there is no such value")
    whole = ShownValues(store, state).whole(raw)
    name = "-".join(filter(None, (id, of, path)))
    return Download(iter([whole]), f"{name}.json", "application/json")


def _raw(view: TaskView, of: str, path: str) -> Raw | UnsetType:
    state = view.state
    named = {"input": state.args, "result": state.result, "mission": state.mission}
    if of in named:
        return named[of]
    if of in ("choice", "options"):
        found = (getattr(d, of) for d in state.decisions if d.path == path)
        return next(found, UNSET)
    if of == "fact":
        return next((f.value for f in state.facts if f.path == path), UNSET)
    of_call = {"call_input": "args", "call_output": "result", "parts": "parts"}
    if of in of_call:
        raw: Raw | UnsetType = getattr(_call(view, path), of_call[of])
        return raw
    raise BadInput(f"of={of!a:.40} is no value of a task")
