"""People may edit: what they changed in `plan.md` or `mission.md` becomes an event of the task.

The last line of such a file tells whether somebody edited it, and which version
they began with. So nothing has to be kept beside it, and the changes in the log since then are
merged with the edit (see `holdfast.core.plan`). An edit that makes no sense, or can't be brought
together, is told; the task goes on as before, and the file stays as it is.

A running task is told by way of its inbox. It sees a changed plan in what its next
`current().plan` or `current().mark` returns, now and on every replay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from holdfast.api.app import Holdfast
from holdfast.core.events import MissionSet, Planned
from holdfast.core.plan import Plan, merged, recorded, told_changes
from holdfast.core.state import State
from holdfast.core.words import must_be_texts
from holdfast.engines.control import must_be_there
from holdfast.engines.holder import Holding
from holdfast.errors import BadInput, Conflict, HoldfastError, HoldsSecret
from holdfast.log.reading import plain_in
from holdfast.log.states import load
from holdfast.stores import system
from holdfast.workspace.checklist import parse, print_plan
from holdfast.workspace.pages import is_untouched

__all__ = [
    "Edit",
    "take_in",
    "taken",
]

PLAN, MISSION = "plan.md", "mission.md"

MAX_BYTES = 1_000_000
"""A file that is longer is not taken in."""

_FOOTER = re.compile(r"^<!-- holdfast [0-9]+: event ([0-9]{1,18}),[^\n]*-->[ \t]*$", re.MULTILINE)
_MAX_DIFF = 64 * 1024
_TRIES = 3
_AGAIN = (
    "Nothing was taken in: copy your version aside, delete the file to get the newest one, "
    "and edit that"
)

Stow = Callable[[bytes], Raw]


class Edit(Struct, frozen=True):
    """The changes of somebody in a file: taken in, or, with a `problem`, not.

    Without either, the log knew it already, and the file is only to be replaced.
    """

    file: str
    changes: tuple[str, ...] = ()
    """Each in words, such as "added 4: 'pack'"."""
    diff: str = ""
    problem: str = ""
    """Why it was not taken in. The file is as it was, and so is what the task goes by."""
    data: bytes = b""
    """The bytes that were read: what may be replaced now that the log has what they say."""


class _Nothing(HoldfastError):
    """There is nothing to record: the log has all that the file says."""


class _Edit(Struct, frozen=True):
    """A file as a person left it."""

    file: str
    text: str
    base_seq: int | None
    """The event of the version they began with; None if the file does not say."""
    data: bytes

    @property
    def post(self) -> str:
        digest = sha256(self.data).hexdigest()[:32]
        return f"edit-{self.file.partition('.')[0]}-{digest}"


def take_in(
    holdfast: Holdfast | Holding, task_id: str, folder: str | Path, *, by: str = ""
) -> list[Edit]:
    """Record what people changed in the `plan.md` and `mission.md` of a task; returns that.

    Taking in the same edit twice is one event. With `problem` in a change, its file could not be
    read or brought together with the log.

    >>> import tempfile
    >>> from holdfast import current, task
    >>> @task
    ... def paint() -> None:
    ...     current().plan(["wash", "paint"])
    ...     raise RuntimeError("no colour")
    >>> with Holdfast("memory://") as hf, tempfile.TemporaryDirectory() as folder:
    ...     _ = hf.start(paint, id="paint-1")
    ...     try:
    ...         hf.resume("paint-1")
    ...     except HoldfastError:
    ...         _ = Path(folder, "plan.md").write_text("- [ ] 1. wash\\n- [ ] buy colour")
    ...     take_in(hf, "paint-1", folder)[0].changes
    ("removed 2, which was pending: 'paint'", "added 3: 'buy colour'")
    """
    must_be_texts("take_in", by=by)
    holding = holdfast._holding if isinstance(holdfast, Holdfast) else holdfast
    must_be_there(holding.store, task_id)
    changes = []
    for file, record in ((PLAN, _take_plan), (MISSION, _take_mission)):
        try:
            edit = _edit(Path(folder), file)
            if edit is not None:
                holding.redact.must_be_free(edit.text.encode())
                changes.append(_once_more(holding, task_id, edit, by, record))
        except (BadInput, Conflict, HoldsSecret) as error:
            changes.append(Edit(file, problem=f"{file}: {error}"))
    return changes


def taken(changes: Iterable[Edit]) -> dict[str, bytes]:
    """The contents of files that the log knows by now, so that they may be replaced.

    >>> taken([Edit("plan.md", data=b"- [ ] 1. look"), Edit("mission.md", problem="empty")])
    {'plan.md': b'- [ ] 1. look'}
    """
    return {change.file: change.data for change in changes if not change.problem}


def _edit(folder: Path, file: str) -> _Edit | None:
    data = _read(folder / file)
    if data is None or is_untouched(file, data):
        return None
    if len(data) > MAX_BYTES:
        raise BadInput(f"it is longer than {MAX_BYTES:,} bytes: make it shorter")
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise BadInput(f"line {line} is not UTF-8: save the file in that encoding") from None
    text = text.replace("\r\n", "\n")
    base_seq = None
    for found in _FOOTER.finditer(text):  # people also write below it
        base_seq = int(found[1])
    return _Edit(file, _FOOTER.sub("", text).strip("\n") + "\n", base_seq, data)


def _read(path: Path) -> bytes | None:
    """The content of a file, a little more than we take at most; None if there is none."""
    try:
        with open(os.open(path, os.O_RDONLY | system.NO_LINK | system.NO_WAIT), "rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"it can't be read: {error.strerror}") from None


Record = Callable[[Holding, str, _Edit, str], Edit | None]


def _once_more(holding: Holding, id: str, edit: _Edit, by: str, record: Record) -> Edit:
    """The plan may move on while a message about it is under way: then it is made anew."""
    for _ in range(_TRIES):
        try:
            change = record(holding, id, edit, by)
        except _Nothing:
            return Edit(edit.file, data=edit.data)
        if change is not None:
            return change
    raise Conflict("it was changed by somebody else at the same time: look again in a moment")


def _take_plan(holding: Holding, id: str, edit: _Edit, by: str) -> Edit | None:
    seen = load(holding.store, id, missing_ok=True)
    _must_be_new(seen, edit)
    base = _plan_at(holding, seen, edit.base_seq)
    said = parse(edit.text, (*base, *(item for item in seen.plan if item not in base)))
    if edit.base_seq is None:
        said = _with_known_marks(seen.plan, said)
    diff = _diff(print_plan(base) if base else "", edit)
    made: list[Edit] = []

    def make(state: State, stow: Stow) -> Planned:
        _must_be_new(state, edit)
        after = _merged(base, state.plan, said)
        changes = tuple(told_changes(state.plan, after))
        if not changes and not diff:
            raise _Nothing
        changes = changes or ("the words around the list",)
        made.append(Edit(edit.file, changes, diff, data=edit.data))
        return Planned(
            items=recorded(after),
            by=by or holding.owner,
            diff=diff,
            base_seq=state.seq,
            post=edit.post,
        )

    return made[-1] if holding.tell(id, edit.post, make) else None


def _merged(base: Plan, ours: Plan, said: Plan) -> Plan:
    try:
        return merged(base, ours, said)
    except Conflict as error:
        raise Conflict(
            f"it was edited while the plan itself was changed: {error}. {_AGAIN}"
        ) from None


def _plan_at(holding: Holding, state: State, seq: int | None) -> Plan:
    """The plan that a file of the event `seq` showed, which may have been rewound since."""
    return state.plan if seq is None else load(holding.store, state.id, seq).plan


def _with_known_marks(known: Plan, said: Plan) -> Plan:
    """A file that does not say how old it is can't say that something is not done."""
    statuses = {item.id: item.status for item in known}
    return tuple(
        msgspec.structs.replace(item, status=statuses.get(item.id, item.status))
        if item.status == "pending"
        else item
        for item in said
    )


def _take_mission(holding: Holding, id: str, edit: _Edit, by: str) -> Edit | None:
    seen = load(holding.store, id, missing_ok=True)
    _must_be_new(seen, edit)
    if not edit.text.strip():
        raise BadInput("it is empty: say what the task is for")
    base = _mission_at(holding, seen, edit.base_seq)
    diff = _diff(base, edit)

    def make(state: State, stow: Stow) -> MissionSet:
        _must_be_new(state, edit)
        now = _mission_text(holding, state)
        if edit.text.strip() in (now.strip(), base.strip()):
            raise _Nothing
        if now != base:
            raise Conflict(
                f"it was edited while somebody else changed it. It says "
                f"{edit.text.strip()!r:.200}, the log {now.strip()!r:.200}. {_AGAIN}"
            )
        raw = stow(msgspec.json.encode(edit.text))
        return MissionSet(text=raw, by=by or holding.owner, diff=diff, post=edit.post)

    if not holding.tell(id, edit.post, make):
        return None
    return Edit(edit.file, ("the mission was changed",), diff, data=edit.data)


def _mission_at(holding: Holding, state: State, seq: int | None) -> str:
    if seq is None:
        return _mission_text(holding, state)
    return _mission_text(holding, load(holding.store, state.id, seq))


def _mission_text(holding: Holding, state: State) -> str:
    if not isinstance(state.mission, Raw):
        return ""
    said = plain_in(holding.store, state, state.mission)
    return said if isinstance(said, str) else ""


def _must_be_new(state: State, edit: _Edit) -> None:
    if edit.post in state.posts:
        raise _Nothing
    if state.status in ("completed", "cancelled"):
        raise BadInput(f"task {state.id!r} is {state.status}: this changes nothing any more")


def _diff(before: str, edit: _Edit) -> str:
    diff = "".join(_diff_lines(before, edit))
    return diff if len(diff) <= _MAX_DIFF else f"{diff[:_MAX_DIFF]}\n… (cut)\n"


def _diff_lines(before: str, edit: _Edit) -> Iterator[str]:
    old, new = before.splitlines(keepends=True), edit.text.splitlines(keepends=True)
    since = "" if edit.base_seq is None else f"event {edit.base_seq}"
    return unified_diff(old, new, f"a/{edit.file}", f"b/{edit.file}", since, n=2)
