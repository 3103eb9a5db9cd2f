"""The pages of a task, each made of its state: what is in `status.md`, `plan.md`, `state.json`.

A line ends every page. It says of which event the page is, and whether it is still what we wrote:

    <!-- holdfast 2: event 12, 2026-01-01T00:00:00Z, sum 0123456789abcdef -->

The sum is over everything above that line. So a file alone tells whether somebody edited it (the
sum does not fit), and which version of it they began with. `state.json` has the same as its last
field.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import asdict

from holdfast.codec.tags import readable_json
from holdfast.core.decoding import NONSENSE, Illegible, decode
from holdfast.core.events import NEVER, VERSION, AnyEvent, Decided, MissionSet, Rewound, TaskCreated
from holdfast.core.lists import BLOB, REFERENCES, BlobRef, in_short
from holdfast.core.plan import ready
from holdfast.core.state import FINISHED, Call, State
from holdfast.log.places import left_at
from holdfast.views.task import TaskView, is_worked_off
from holdfast.views.words import block, code, one_line, prose
from holdfast.workspace.checklist import print_plan

PAGE_FORMAT = 2
"""The format of the files. A file of another format is replaced, whichever version wrote it."""

_LINE = re.compile(
    rb"<!-- holdfast (\d{1,9}): event (\d{1,18}), ([0-9T:Z-]{20}), sum ([0-9a-f]{16}) -->\s*\Z"
)
_JSON_SUM = re.compile(rb',\n  "sum": "([0-9a-f]{16})"\n\}\n\Z')


class Footer(Struct, frozen=True):
    """The text of the last line of a page."""

    format: int
    seq: int
    at: str
    sum: str


def time_text(at: datetime) -> str:
    """A time as all files have it, wherever they are made.

    >>> time_text(datetime(2026, 1, 1, tzinfo=UTC))
    '2026-01-01T00:00:00Z'
    """
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def with_footer(body: str, seq: int, at: datetime) -> bytes:
    """A page with its last line.

    >>> print(with_footer("# Plan\\n", 3, datetime(2026, 1, 1, tzinfo=UTC)).decode())
    # Plan
    <BLANKLINE>
    <!-- holdfast 2: event 3, 2026-01-01T00:00:00Z, sum 587ec3a439d617a1 -->
    <BLANKLINE>
    """
    above = body.rstrip("\n").encode(errors="backslashreplace") + b"\n\n"
    line = f"<!-- holdfast {PAGE_FORMAT}: event {seq}, {time_text(at)}, sum {_sum(above)} -->\n"
    return above + line.encode()


def footer_of(page: bytes) -> tuple[Footer, bytes] | None:
    """The text of the last line of a page, and the text above it; None if it has no such line."""
    found = _LINE.search(page)
    if found is None:
        return None
    format, seq, at, total = (part.decode() for part in found.groups())
    return Footer(int(format), int(seq), at, total), page[: found.start()]


def with_sum(pretty: bytes) -> bytes:
    """A JSON object on several lines, with a sum as its last field."""
    above = pretty.rstrip().removesuffix(b"}").rstrip()
    return above + b',\n  "sum": "%b"\n}\n' % _sum(above).encode()


def is_untouched(name: str, data: bytes) -> bool:
    r"""Whether a file is still what was written to it.

    >>> page = with_footer("# Plan\n", 3, datetime(2026, 1, 1, tzinfo=UTC))
    >>> is_untouched("plan.md", page), is_untouched("plan.md", page.replace(b"Plan", b"New plan"))
    (True, False)
    """
    if name.endswith(".json"):
        sum_found = _JSON_SUM.search(data)
        return sum_found is not None and sum_found[1].decode() == _sum(data[: sum_found.start()])
    found = footer_of(data)
    return found is not None and found[0].sum == _sum(found[1])


def _sum(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


# Values of a log as readable files show them: whole while they are small, else their beginning.
#
# Nothing is fetched for this: a value that is kept in a blob is named by it.


WHOLE_BYTES = 4096
"""A longer text is cut."""

_BEGINNING = 400


def as_json(raw: Raw | UnsetType) -> Any:
    """A value for a JSON file: itself, or an object that says what was cut.

    >>> bytes(as_json(Raw(b'{"city":"Oslo"}')))
    b'{"city":"Oslo"}'
    >>> as_json(Raw(b'{"$blob":"abc","size_bytes":70000}'))
    {'$cut': {'size_bytes': 70000, 'blob': 'abc'}}
    """
    if not isinstance(raw, Raw):
        return None
    data = bytes(raw)
    if (kept := _kept_aside(data)) is not None:
        return {"$cut": {"size_bytes": kept.size_bytes, "blob": kept.digest}}
    data = readable_json(in_short(data))
    if len(data) <= WHOLE_BYTES:
        return Raw(data)
    begins = data[:_BEGINNING].decode(errors="ignore")
    return {"$cut": {"size_bytes": len(data), "begins": begins}}


def as_line(raw: Raw | UnsetType, most: int = 160) -> str:
    """A value on one line, for people.

    >>> as_line(Raw(b'{"city":"Oslo"}')), as_line(Raw(b'{"$blob":"abc","size_bytes":70000}'))
    ('{"city":"Oslo"}', '(70,000 bytes, kept aside)')
    """
    if not isinstance(raw, Raw):
        return ""
    data = bytes(raw)
    if len(data) <= most and data.isascii() and b'"$' not in data:
        text = data.decode()  # nearly always
        return text if text.isprintable() else one_line(text, most)
    if data.startswith(REFERENCES):
        if (kept := _kept_aside(data)) is not None:
            return f"({kept.size_bytes:,} bytes, kept aside)"
        data = in_short(data)
    data = readable_json(data)
    return one_line(data[: 4 * most].decode(errors="ignore"), most)


def as_text(raw: Raw | UnsetType, most: int = 4000) -> str:
    """A value on several lines, for people."""
    if not isinstance(raw, Raw):
        return ""
    data = bytes(raw)
    if (kept := _kept_aside(data)) is not None:
        return f"({kept.size_bytes:,} bytes, kept aside)"
    with suppress(*NONSENSE, Illegible):
        data = msgspec.json.format(readable_json(in_short(data)), indent=2)
    text = data.decode(errors="replace")
    return text if len(text) <= most else f"{text[:most]}… ({len(data):,} bytes)"


def _kept_aside(data: bytes) -> BlobRef | None:
    if data.startswith(BLOB):
        with suppress(Illegible):
            return decode(data, BlobRef)
    return None


# `status.md`: where a task stands, as of one event of its log.
#
# It says only what that event and those before it say. That something *runs* means that the log
# has its beginning and not its end; whether the process is still alive, no file can know.


_MOST = 20
_LAST_FAILURES = 5
_IN_DOUBT = "may or may not have happened"

T = TypeVar("T")


def status_text(view: TaskView) -> str:
    """Where a task stands: what runs, what it waits for, what failed, what comes next."""
    state = view.state
    parts = [
        f"# Status of {code(state.id, 255)}",
        f"As of event {state.seq}, {time_text(state.updated_at)}:",
        "\n".join(_facts(view)),
        *_section("Runs", [*_items_at_work(view), *_calls_at_work(view)], str),
        *_section("Waits", list(_waits(view)), str),
        *_section("Said", _said(view), str),
        *_section("Failed", _failures(state), str),
        *_section("Next", _next(view), str),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(view: TaskView) -> Iterable[str]:
    state = view.state
    yield f"- task: {code(state.task)}"
    yield f"- status: {state.status}"
    yield f"- position: {view.position}"
    if state.fork is not None:
        yield f"- a fork of {code(state.fork.of, 255)}, {prose(str(left_at(state.fork)))}"
    if state.rewinds:
        yield f"- rewound: {state.rewinds} times" if state.rewinds > 1 else "- rewound: once"
    if state.plan:
        yield f"- plan: {plan_in_words(view)}"
    if state.user:
        yield f"- user: {code(state.user)}"
    if state.owner and not is_worked_off(view):
        yield f"- last driven by: {code(state.owner)}"
    if state.cancelling and state.status not in FINISHED:
        yield "- it is being cancelled"
    if state.because:
        yield f"- because: {prose(state.because)}"
    if isinstance(state.result, Raw):
        yield f"- result: {code(as_line(state.result, 300), 300)}"
    if state.failure is not None:
        yield f"- failure: {prose(state.failure.summary())}"


def plan_in_words(view: TaskView) -> str:
    """How far a plan is. A task that marks no item does not say which are done."""
    plan = view.state.plan
    if not view.position.by_plan:
        return f"{len(plan)} items; the task marks none, so its steps are the calls it makes"
    done = sum(item.status in ("done", "skipped") for item in plan)
    return f"{done} of {len(plan)} items done or skipped"


def _section(title: str, found: Sequence[T], line: Callable[[T], str]) -> list[str]:
    if not found:
        return []
    lines = [f"- {line(each)}" for each in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(f"- and {len(found) - _MOST:,} more")
    return [f"## {title}", "\n".join(lines)]


def _items_at_work(view: TaskView) -> Iterator[str]:
    """The items of a plan that are being done; a mission's name the process that said so."""
    marks = {version.marked: version for version in view.state.plans if version.marked}
    for item in view.state.plan:
        if item.status == "doing":
            mark = marks.get(item.id)
            since = f" since {time_text(mark.at)}" if mark is not None else ""
            why = f" ({prose(mark.because)})" if mark is not None and mark.because else ""
            yield f"item {code(item.id, 60)}: {prose(item.text)}{since}{why}"


def _calls_at_work(view: TaskView) -> Iterator[str]:
    return (_running(call) for call in view.calls if call.status == "running")


def _running(call: Call) -> str:
    attempt = f", attempt {len(call.attempts)}" if len(call.attempts) > 1 else ""
    since = call.attempts[-1].at if call.attempts else call.at
    doubt = f"; if nobody runs it any more, it {_IN_DOUBT}" if call.kind == "tool" else ""
    task = f", as task {code(call.child, 255)}" if call.child else ""
    return f"{_name(call)} since {time_text(since)}{attempt}{task}{doubt}"


def _waits(view: TaskView) -> Iterable[str]:
    quoted = shlex.quote(view.id)
    for call in view.questions:
        until = f", until {time_text(call.until)}" if call.until else ""
        how = code(f"holdfast answer {quoted} {shlex.quote(call.key)} JSON", 700)
        why = f"; the last answer did not fit: {prose(call.refused)}" if call.refused else ""
        yield f"for a person{until}: {prose(call.why)} ({code(call.expects)}): {how}{why}"
    over = view.status in FINISHED
    for call in view.calls:
        if call.status == "in_doubt":
            how = code(f"holdfast resolve {quoted} {shlex.quote(call.path)}", 700)
            yield f"for a person: {_name(call)} {_IN_DOUBT}: {prose(call.why)}: {how}"
        elif over:
            continue
        elif call.status in ("backing_off", "retrying"):
            when = f"at {time_text(call.retry_at)}" if call.retry_at else "at once"
            why = f", after {prose(call.failure.summary())}" if call.failure else ""
            yield f"to try {_name(call)} again {when}{why}"
        elif call.status == "waiting" and call.kind == "sleep" and call.until:
            yield f"for the time: {_name(call)} until {time_text(call.until)}"
        elif call.status == "waiting" and call.kind == "limit" and call.until:
            of = f"call {call.approves}, until {time_text(call.until)}"
            yield f"for the limit {prose(call.name)}: {of}"
        elif call.status == "waiting" and call.kind == "child":
            yield f"for task {code(call.child, 255)}: {_name(call)}"


def _said(view: TaskView) -> list[str]:
    found = []
    for scope, said in view.progress:
        of = f" of {said.total:g}" if said.total is not None else ""
        done = f" {said.done:g}{of}" if said.done is not None else ""
        who = f"{code(scope)}:" if scope else "the task:"
        found.append(f"{who}{done} {prose(said.text)} ({time_text(said.at)})")
    return found[-_MOST:]


def _failures(state: State) -> list[str]:
    found = [
        (attempt.ended_at or attempt.at, call, attempt.number, attempt.failure)
        for call in state.calls.values()
        if call.failure is not None
        for attempt in call.attempts
        if attempt.failure is not None
    ]
    found.sort(key=lambda each: each[0])
    return [
        f"{_name(call)}, attempt {number}, {time_text(at)}: {prose(failure.summary())}"
        for at, call, number, failure in found[-_LAST_FAILURES:]
    ]


def _next(view: TaskView) -> list[str]:
    state, quoted = view.state, shlex.quote(view.id)
    if state.status == "completed":
        return ["nothing: the task is completed"]
    if state.status == "cancelled":
        return ["nothing: the task is cancelled"]
    if state.status == "failed":
        return [f"nothing, unless it is tried again: {code(f'holdfast retry {quoted}', 700)}"]
    if state.status == "paused":
        return [f"nothing, until it goes on: {code(f'holdfast resume {quoted}', 700)}"]
    doing = [item for item in state.plan if item.status == "doing"]
    to_begin = [f"item {code(item.id, 60)}: {prose(item.text)}" for item in ready(state.plan)]
    if state.task == "mission":
        how = code(mission_command(view.id), 700)
        if doing and not to_begin:
            running = ", ".join(code(item.id, 60) for item in doing)
            return [f"nothing, before item {running} is done", f"if nobody is at work on it: {how}"]
        return [*to_begin, f"to have it done: {how}"]
    told = [*(f"item {code(item.id, 60)}: {prose(item.text)}" for item in doing), *to_begin]
    if state.task == "script":
        return [*told, f"the next step of the script: run it with HOLDFAST_TASK={code(quoted)}"]
    return told or ["what its code does after that"]


def mission_command(id: str) -> str:
    """The command that has the next item of a mission done.

    >>> mission_command("attic")
    "holdfast next --mission attic --agent 'COMMAND …'"
    """
    return f"holdfast next --mission {shlex.quote(id)} --agent 'COMMAND …'"


def _name(call: Call) -> str:
    return f"{code(call.path)} {code(call.name)}"


MISSION, PLAN, STATUS, DECISIONS = "mission.md", "plan.md", "status.md", "decisions.md"
STATE = "state.json"

PAGES = (MISSION, PLAN, STATUS, DECISIONS, STATE)
EDITABLE = (MISSION, PLAN)
"""The pages that people may edit: what they write there is taken in, and never replaced."""

_MOST_STEPS, _MOST_OBSERVATIONS = 1000, 500
_MARKS = {"pending": " ", "doing": "~", "done": "x", "failed": "!", "skipped": "-"}


class PageChanged(NamedTuple):
    """The event that last changed a page."""

    seq: int = 0
    at: datetime = NEVER


class PageChanges:
    """Which event last changed each of the pages that seldom change; kept while a log is read."""

    def __init__(self) -> None:
        self.mission: PageChanged = PageChanged()
        self.decisions: PageChanged = PageChanged()
        self.are_fewer: bool = False
        """Whether there may be pages that there is nothing to say on any more."""

    def note(self, event: AnyEvent) -> None:
        """Take notice of the next event."""
        if isinstance(event, MissionSet | TaskCreated):
            self.mission = PageChanged(event.seq, event.at)
        elif isinstance(event, Decided):
            self.decisions = PageChanged(event.seq, event.at)
        elif isinstance(event, Rewound):
            self.mission = self.decisions = PageChanged(event.seq, event.at)
            self.are_fewer = True


def rendered(view: TaskView, changes: PageChanges) -> dict[str, bytes]:
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
    """The purpose of the task, in the words of people; else what was asked of its function."""
    state = view.state
    if isinstance(state.mission, Raw):
        # Whole, however long it is: people go on from it.
        said = view.value(state.mission)
        return said if isinstance(said, str) else as_text(state.mission)
    return f"# {prose(state.task)}\n\nIts input:\n\n{block(as_text(state.args), 'json')}\n"


def decisions_text(view: TaskView) -> str:
    """The choice at each branch point, from what, and why; the newest last."""
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
    calls_done = [state.calls[path].name for path in position.committed]
    running = [state.calls[path].name for path in position.running]
    done, at = calls_done, next(iter(running), None)
    if position.by_plan:
        done = [item.text for item in state.plan if item.status == "done"]
        item = state.plan[position.step - 1]
        at = item.text if item.status in ("pending", "doing") else None
    found: dict[str, Any] = {
        "format": PAGE_FORMAT,
        "workflow_id": state.id,
        "type": state.task,
        "status": state.status,
        "position": str(position),
        "steps": "plan" if position.by_plan else "calls",
        "current_step": None if state.status in FINISHED else at,
        "completed": len(done),
        "completed_steps": done[-_MOST_STEPS:],
        "calls": {"completed": len(calls_done), "running": running[-_MOST_STEPS:]},
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


_NOT_OBSERVED = ("decision", "fact", "reading", "approval", "sleep", "limit")
_encode = msgspec.json.Encoder().encode
