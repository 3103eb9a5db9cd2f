"""The inbox: what needs a person, and what can be done about it, in the words of the command line.

Questions and approvals, calls in doubt, tasks that stopped and tasks that failed. The same needs
stand in the header of their task.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from holdfast.core.facts import BY_ENGINE, TRIED_ONCE
from holdfast.core.state import FINISHED, HALTED, Hindrance
from holdfast.core.words import cut
from holdfast.engines.routing import driven_by
from holdfast.errors import StoreError, TaskNotFound
from holdfast.stores.listing import TaskRecord, page_of_tasks
from holdfast.stores.port import LONGEST_PAGE, Store
from holdfast.views.task import (
    DoubtView,
    QuestionView,
    TaskView,
    at_work,
    doubts_of,
    position_of,
    questions_of,
    recent,
)
from holdfast.web.asked import Hints, PageRequest, Site
from holdfast.web.logs import view_at
from holdfast.web.shapes import ShownValues, failure_of

Data = dict[str, Any]
_MAY = re.compile(r"May it call ([^(\s]+)\(")
_MOST_SHOWN, _MOST_FAILED, _MOST_LOOKED_AT, _MOST_COUNTED = 500, 50, 400, 80_000
_OPEN = ("awaiting_user", "stuck", "in_progress", "pending")
"""The statuses of tasks that may need somebody; those that failed are asked for by themselves."""


def action(do: str, label: str, command: str = "", *, why_not: str = "") -> Data:
    """Something that can be done, and how the command line does it."""
    return {
        "do": do,
        "label": label,
        "command": command,
        "enabled": not why_not,
        "why_not": why_not,
    }


class Needs:
    """The needs of one task, and what can be done with it."""

    def __init__(self, site: Site, view: TaskView) -> None:
        self.site: Site = site
        self.store: Store = site.hf.store
        self.hints: Hints = site.hints
        self.whole: TaskView = view
        self.view: TaskView = recent(view, self.store)
        self.holder: str | None = at_work(self.store, view)
        self._values = ShownValues(self.store, view.state)

    def all(self) -> list[Data]:
        """Every need of the task, the oldest first."""
        found = [self._question(each) for each in questions_of(self.view)]
        found += [
            self._doubt(each)
            for each in doubts_of(self.store, self.view)
            if each.waits_for_a_person or each.interrupted
        ]
        hindrance = self.view.state.hindrance
        if self.view.status == "stuck":
            found.append(self._stuck())
        elif hindrance is not None and self.holder is None and self.view.status not in FINISHED:
            found.append(self._hindered(hindrance))
        elif not found and self.is_stopped():
            found.append(self._stopped())
        if self.view.status == "failed" and self.view.failure is not None:
            found.append(self._failed())
        found.sort(key=lambda need: need["since"])
        return found

    def is_stopped(self) -> bool:
        """Whether it is in progress, and nobody is at work on it, nor will be by itself."""
        state = self.view.state
        return (
            state.status == "in_progress"
            and self.holder is None
            and not driven_by(state)
            and not state.parked
        )

    def note(self) -> str:
        """The facts about a task that nobody is at work on."""
        state = self.view.state
        if self.holder is not None or state.status in FINISHED:
            return ""
        if state.driver:
            return f"on {state.driver}"
        if state.cancelling or state.ending:
            return "to be ended"
        if state.hindrance is not None:
            return state.hindrance.error
        if state.status != "in_progress":
            return ""
        return "waiting" if state.parked else "stopped"

    def todo(self) -> str:
        """The thing to do, in one sentence."""
        view, state = self.view, self.view.state
        if needs := self.all():
            return str(needs[0]["title"])
        if view.status in FINISHED:
            because = f", because {state.because}" if state.because else ""
            return f"It is {view.status}{because}."
        if state.ending:
            return f"Its effects are being undone; then it is {state.ending}."
        if state.cancelling:
            return "It is being cancelled."
        if view.status == "paused":
            return "It is paused." + (f" Because: {state.because}." if state.because else "")
        if self.holder:
            return f"{self.holder} is at work on it."
        if engine := driven_by(state):
            return f"A worker of {engine} drives it."
        if state.parked and state.wake_at is not None:
            return "It waits; a worker goes on with it in time."
        return "It waits for a worker."

    def actions(self) -> list[Data]:
        """The actions on the task as a whole."""
        view, hints, id = self.view, self.hints, self.view.id
        over = view.status in FINISHED
        found = []
        if view.status == "failed":
            found.append(self._retry())
        if view.status in HALTED:
            found.append(
                action("resume", "Go on", hints.command("resume", id, options=["--worker"]))
            )
        elif not over and self.holder is None and not driven_by(view.state):
            found.append(self._resume())
        if not over and view.status not in HALTED:
            found.append(action("pause", "Pause", hints.command("pause", id)))
        if not over:
            found.append(action("cancel", "Cancel", hints.command("cancel", id)))
        found.append(
            action(
                "fork",
                "Fork",
                hints.command("fork", id, options=["--at", "STEP", "--effects", "…"]),
            )
        )
        found.append(
            action("rewind", "Rewind", hints.command("rewind", id, options=["--to", "STEP"]))
        )
        found.append(
            action(
                "replay", "Replay", hints.command("replay", id, code=True), why_not=self._no_code()
            )
        )
        if view.status in ("failed", "cancelled") and view.state.undoable:
            command = hints.command("compensate", id, code=True)
            found.append(action("compensate", "Undo what it did", command, why_not=self._no_code()))
        return found

    def _no_code(self) -> str:
        return (
            "" if self.site.app else "the code of its task is not loaded: holdfast ui --app MODULE"
        )

    def _retry(self) -> Data:
        command = self.hints.go_on(self.view.state, "retry")
        why_not = "what it did was undone" if self.view.state.compensated else self._no_code()
        return action("retry", "Try it again", command, why_not=why_not)

    def _resume(self) -> Data:
        command = self.hints.go_on(self.view.state)
        return action("resume", "Go on", command, why_not=self._no_code())

    def _need(self, kind: str, since: datetime, title: str, **more: Any) -> Data:
        view = self.view
        return {
            "kind": kind,
            "task": view.id,
            "type": view.type,
            "user": view.user,
            "since": since,
            "title": title,
            "path": "",
            "id": "",
            **more,
        }

    def _question(self, each: QuestionView) -> Data:
        view, hints = self.view, self.hints
        is_approval = bool(each.approves)
        told: Data = {"question": each.question, "expects": each.expects, "until": each.until}
        if is_approval:
            told["call"] = self._approved(each)
            actions = [
                action("approve", "Approve", hints.command("answer", view.id, each.id, "true")),
                action("refuse", "Refuse", hints.command("answer", view.id, each.id, "false")),
            ]
        else:
            command = hints.command("answer", view.id, each.id, "ANSWER")
            actions = [action("answer", "Answer", command)]
        kind = "approval" if is_approval else "question"
        title = cut(each.question, _MOST_SHOWN)
        return self._need(
            kind, each.asked_at, title, id=each.id, path=each.approves, actions=actions, **told
        )

    def _approved(self, each: QuestionView) -> Data | None:
        """The call that may be made or not: it is not begun, so the question has its arguments."""
        asks = next((c for c in self.view.questions if c.key == each.id), None)
        if asks is None:
            return None
        named = _MAY.match(each.question)
        return {
            "path": each.approves,
            "name": named.group(1) if named else "",
            "key": "",
            "input": self._values.shown(asks.args, "call_input", asks.path, most=64 * 1024),
        }

    def _call(self, path: str) -> Data | None:
        call = self.whole.state.calls.get(path)
        if call is None:
            return None
        return {
            "path": path,
            "name": call.name,
            "key": call.key,
            "input": self._values.shown(call.args, "call_input", path, most=64 * 1024),
        }

    def _doubt(self, each: DoubtView) -> Data:
        view, hints = self.view, self.hints
        title = f"{each.tool} may have happened."
        resume = hints.go_on(view.state)
        if each.waits_for_a_person:
            happened = hints.command(
                "resolve", view.id, each.path,
                options=["--happened", "--result", "JSON"], code=True,
            )  # fmt: skip
            did_not = hints.command("resolve", view.id, each.path, options=["--did-not-happen"])
            actions = [
                action("happened", "It happened…", happened),
                action("did_not_happen", "It did not", did_not),
            ]
        else:
            title = f"{each.tool} was interrupted: its policy settles it when the task goes on."
            why_not = "" if not each.engine else f"a worker of {each.engine} goes on with it"
            actions = [
                action(
                    "check", "Go on, and ask the check", resume, why_not=why_not or self._no_code()
                )
            ]
        return self._need(
            "doubt",
            each.since,
            title,
            id=each.path,
            path=each.path,
            call=self._call(each.path),
            why=cut(each.why, _MOST_SHOWN),
            interrupted=each.interrupted,
            actions=actions,
        )

    def _stopped(self) -> Data:
        state = self.view.state
        owner = f" {state.owner} had it last." if state.owner else ""
        title = f"Nobody is at work on it.{owner}"
        return self._need("stuck", state.updated_at, title, actions=[self._resume()])

    def _stuck(self) -> Data:
        state = self.view.state
        because = f": {state.because}" if state.because else ""
        title = cut(f"It is stuck{because}", _MOST_SHOWN)
        go_on = action("resume", "Go on", self.hints.go_on(state))
        return self._need("stuck", state.updated_at, title, actions=[go_on])

    def _hindered(self, why: Hindrance) -> Data:
        title = cut(f"It could not go on: {why.error}: {why.why}", 2 * _MOST_SHOWN)
        by = f"{why.by} tried it" if why.by else ""
        return self._need("stuck", why.at, title, why=by, actions=[self._resume()])

    def _failed(self) -> Data:
        state, failure = self.view.state, self.view.failure
        title = cut(f"It failed: {failure.summary() if failure else ''}", _MOST_SHOWN)
        told = failure_of(failure)
        return self._need("failed", state.updated_at, title, failure=told, actions=[self._retry()])


# Lists of tasks.


def row_of(record: TaskRecord) -> Data:
    """A task as the index of the store knows it."""
    return {
        "id": record.id,
        "type": record.type,
        "status": record.status,
        "user": record.user,
        "session": record.session,
        "labels": record.labels,
        "parent": record.parent,
        "origin": record.origin,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "position": None,
        "at_work": None,
        "note": "",
        "asks": "",
    }


def detailed(site: Site, record: TaskRecord) -> Data | None:
    """The same with what its log says; None if it is gone."""
    row = row_of(record)
    try:
        view = view_at(site.hf.store, record.id)
    except TaskNotFound:
        return None
    except StoreError as error:
        return row | {"note": "unreadable", "asks": cut(str(error), 200)}
    needs = Needs(site, view)
    asks = questions_of(needs.view)
    return row | {
        "status": view.status,
        "updated_at": view.state.updated_at,
        "position": str(position_of(view)),
        "at_work": needs.holder,
        "note": needs.note(),
        "asks": cut(asks[0].question, 200) if asks else "",
    }


class Inbox(Struct, frozen=True):
    """The needs that wait for a person, as far as logs were read for them."""

    needs: list[Data]
    """The oldest first."""
    beyond: int
    """How many newer tasks in such a status were not looked at."""
    unreadable: list[str]
    running: list[Data]
    """The tasks that somebody is at work on."""

    @property
    def count(self) -> int:
        return len(self.needs) + self.beyond


def _open(store: Store) -> list[TaskRecord]:
    """The tasks that may need somebody, the oldest first. Asked for at once: a store of files looks
    at all its logs for a status, however many statuses are asked for."""
    found, cursor = list[TaskRecord](), None
    while True:
        page = page_of_tasks(store, {"status": _OPEN}, LONGEST_PAGE, cursor)
        found, cursor = [*found, *page.tasks], page.next
        if cursor is None or len(found) >= _MOST_COUNTED:
            return found[::-1]


def _sleeps(record: TaskRecord) -> bool:
    """Whether it waits for a time that is to come: such tasks are many, and need nobody."""
    at = record.wake_at
    return at is not None and at not in (BY_ENGINE, TRIED_ONCE) and at > datetime.now(UTC)


def inbox(site: Site, asked: PageRequest) -> Data:
    """The needs that wait for a person, the oldest first, and what runs now."""
    limit = int(asked.number("limit", 100, least=1, most=500) or 100)
    found = gathered(site)
    return {
        "needs": found.needs[:limit],
        "more": found.count > limit,
        "count": found.count,
        "running": found.running[:10],
        "unreadable": found.unreadable[:20],
    }


def gathered(site: Site) -> Inbox:
    """Every need there is: of so many of the oldest tasks, and of the newest that failed."""
    store = site.hf.store
    found, unreadable, running = list[Data](), list[str](), list[Data]()
    at_hand = _open(store)
    waiting = [one for one in at_hand if one.status in ("awaiting_user", "stuck")]
    records, beyond = waiting[:_MOST_LOOKED_AT], len(waiting[_MOST_LOOKED_AT:])
    awake = [one for one in at_hand if one.status == "in_progress" and not _sleeps(one)]
    records += awake[:_MOST_LOOKED_AT]  # most of them need nobody
    pending = [one for one in at_hand if one.status == "pending"]
    records += pending[:_MOST_FAILED]  # the oldest may wait for code that is gone
    records += page_of_tasks(store, {"status": "failed"}, _MOST_FAILED).tasks
    for record in records:
        try:
            needs = Needs(site, view_at(store, record.id))
            found += needs.all()
            if record.status == "in_progress" and needs.holder:
                row = row_of(record) | {"at_work": needs.holder}
                running.append(row | {"position": str(position_of(needs.whole))})
        except TaskNotFound:  # it was deleted meanwhile
            continue
        except StoreError as error:
            unreadable.append(cut(str(error), 300))
    found.sort(key=lambda need: need["since"])
    return Inbox(found, beyond, unreadable, running)
