"""The pages of a task: `mission.md`, `plan.md`, `status.md`, `decisions.md`, `state.json`.

Each is a function of the log alone: no clock, nothing of the machine, no order but that of events.
So it can be deleted and made again, byte for byte. A page that nothing has changed keeps the event
that last changed it, and stays as it is while the task goes on.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from holdfast.events import NEVER, VERSION, AnyEvent, Decided, MissionSet, Rewound, TaskCreated
from holdfast.state import State
from holdfast.views import TaskView
from holdfast.workspace.checklist import print_plan
from holdfast.workspace.footers import PAGE_FORMAT, time_text, with_footer, with_sum
from holdfast.workspace.markdown import block, code, prose
from holdfast.workspace.showing import as_json, as_line, as_text
from holdfast.workspace.status import status_text

MISSION, PLAN, STATUS, DECISIONS = "mission.md", "plan.md", "status.md", "decisions.md"
STATE = "state.json"

PAGES = (MISSION, PLAN, STATUS, DECISIONS, STATE)
EDITABLE = (MISSION, PLAN)
"""The pages that people may edit: what they write there is taken in, and never replaced."""

_MOST_STEPS, _MOST_OBSERVATIONS = 1000, 500
_MARKS = {"pending": " ", "doing": "~", "done": "x", "failed": "!", "skipped": "-"}


class Changed(NamedTuple):
    """The event that last changed a page."""

    seq: int = 0
    at: datetime = NEVER


class Changes:
    """Which event last changed each of the pages that seldom change; kept while a log is read."""

    def __init__(self) -> None:
        self.mission = self.decisions = Changed()
        self.are_fewer = False
        """Whether there may be pages that there is nothing to say on any more."""

    def note(self, event: AnyEvent) -> None:
        """Take notice of the next event."""
        if isinstance(event, MissionSet | TaskCreated):
            self.mission = Changed(event.seq, event.at)
        elif isinstance(event, Decided):
            self.decisions = Changed(event.seq, event.at)
        elif isinstance(event, Rewound):
            self.mission = self.decisions = Changed(event.seq, event.at)
            self.are_fewer = True


def rendered(view: TaskView, changes: Changes) -> dict[str, bytes]:
    """Every page there is something to say on, by its name."""
    state = view.state
    pages = {MISSION: with_footer(mission_text(view), *changes.mission)}
    if state.plans:
        newest = state.plans[-1]
        pages[PLAN] = with_footer(print_plan(state.plan), newest.seq, newest.at)
    if state.decisions:
        pages[DECISIONS] = with_footer(decisions_text(view), *changes.decisions)
    pages[STATUS] = with_footer(status_text(view), state.seq, state.updated_at)
    pages[STATE] = state_json(view)
    return pages


def mission_text(view: TaskView) -> str:
    """What the task is for, in the words of people; else what was asked of its function."""
    state = view.state
    if isinstance(state.mission, Raw):
        # Whole, however long it is: people go on from it.
        said = view.value(state.mission)
        return said if isinstance(said, str) else as_text(state.mission)
    return f"# {prose(state.task)}\n\nIts input:\n\n{block(as_text(state.args), 'json')}\n"


def decisions_text(view: TaskView) -> str:
    """What was chosen at each branch point, from what, and why; the newest last."""
    state = view.state
    replaced = {d.supersedes: d.path for d in state.decisions if d.supersedes}
    lines = ["# Decisions", ""]
    for each in state.decisions:
        lines += [f"## {code(each.name)}", "", f"- chose: {code(as_line(each.choice, 1000), 1000)}"]
        if each.because:
            lines.append(f"- because: {prose(each.because, 2000)}")
        if isinstance(each.options, Raw):
            lines.append(f"- from: {code(as_line(each.options, 1000), 1000)}")
        lines.append(f"- when: {time_text(each.at)}, as {code(each.path)}")
        if each.supersedes:
            lines.append(f"- instead of: {code(each.supersedes)}")
        if each.path in replaced:
            lines.append(f"- no longer counts: see {code(replaced[each.path])}")
        lines.append("")
    return "\n".join(lines)


def state_json(view: TaskView) -> bytes:
    """The task as one JSON object. Long values are cut, and say so."""
    state, position = view.state, view.position
    done = [state.calls[path].name for path in position.committed]
    doing = [item.text for item in state.plan if item.status == "doing"]
    running = [state.calls[path].name for path in position.running]
    found: dict[str, Any] = {
        "format": PAGE_FORMAT,
        "workflow_id": state.id,
        "type": state.task,
        "status": state.status,
        "current_step": next(iter((*doing, *running)), None),
        "position": str(position),
        "completed": len(done),
        "completed_steps": done[-_MOST_STEPS:],
        "last_update": time_text(state.updated_at),
        "created_at": time_text(state.created_at),
        "seq": state.seq,
        "versions": {"format": state.format, "holdfast": VERSION, "task": state.version},
        "user": state.user,
        "session": state.session,
        "labels": state.labels,
        "parent": state.parent,
        "input": as_json(state.args),
        "plan": [asdict(item) for item in state.plan],
        "data": _observations(state),
        "files": sorted(state.files),
        "result": as_json(state.result),
        "failure": state.failure.summary() if state.failure is not None else None,
    }
    return with_sum(msgspec.json.format(_encode(found), indent=2))


def _observations(state: State) -> dict[str, Any]:
    """What `TaskView.observations` says: the newest of each name."""
    newest: dict[str, tuple[datetime, Any]] = {}
    for call in state.calls.values():
        if call.status != "completed" or call.kind in _NOT_OBSERVED:
            continue
        key, at = call.key if call.kind == "question" else call.name, call.ended_at or call.at
        if key not in newest or newest[key][0] <= at:
            newest[key] = (at, call.result)
    for note in state.notes:
        if note.text not in newest or newest[note.text][0] <= note.at:
            newest[note.text] = (note.at, note.data)
    kept = sorted(newest.items(), key=lambda each: each[1][0])[-_MOST_OBSERVATIONS:]
    return {key: as_json(value) for key, (_, value) in kept}


_NOT_OBSERVED = ("decision", "fact", "reading", "approval", "sleep")
_encode = msgspec.json.Encoder().encode
