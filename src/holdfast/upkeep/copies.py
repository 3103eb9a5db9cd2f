"""Copying tasks to another store, or moving them there.

A family is copied as a whole, in four strides. After any interruption (a crash, a power cut), a
task can go on at one place at most, and the same copy, run again, goes on where it stopped:

1. **Pause** what is unfinished, in the source, with the target's name as the reason. From here on
   no process continues it on its own.
2. **Bring** the logs over, verified, each at once (see `transfer`); first the sessions of the tasks
   (see `along`), so that they hold everything the tasks said in them. The pause goes along, so no
   process continues it there either. 3. **Let it go on** in the target: an event there, that the
   source does not have. Now it goes on in the target, and in the source it is paused. 4. To
   **move**, delete it in the source.

A task that was paused before stays paused at both places. A task that has ended is only brought,
and deleted if it is moved. All of it happens under the leases of the unfinished tasks. To leave the
source as it is, the copy may arrive paused instead: then strides 1, 3 and 4 are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from holdfast.core.events import PauseRequested, TaskContinued
from holdfast.core.facts import facts_of
from holdfast.core.kinds import MEMORY, SESSION, Kind, id_of, kind_of
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.engines.holder import Holding
from holdfast.engines.mail import take_in
from holdfast.engines.routing import must_be_here
from holdfast.errors import BadInput, HoldfastError, StoreError, TaskBusy, TaskNotFound
from holdfast.log.log import Log, open_log
from holdfast.log.reading import stream_of
from holdfast.log.states import lines_of, load
from holdfast.log.store_calls import holder_of, inbox_of, post_to, unpost
from holdfast.log.values import MAX_VALUE_BYTES
from holdfast.stores import open_store
from holdfast.stores.listing import forks_of
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Store
from holdfast.upkeep.families import (
    Copied,
    CopiedLog,
    CopiedTask,
    CopyProgress,
    Refused,
    TaskFamily,
    Tell,
    Told,
    Wanted,
    What,
    choose,
    others_meant,
    told_by,
    why_refused,
)
from holdfast.upkeep.transfer import Along, Brought, Keeping, Transfer, compared, must_be_two

REFUSALS = (StoreError, BadInput, TaskNotFound)
"""Errors that stop the copy of one family only."""

_NOT_DELETED = "was copied, and is not deleted: "


class Member(Struct):
    """A task that is being copied; its log is held if it is unfinished."""

    id: str
    state: State
    log: Log | None = None
    brought: Brought | None = None
    status: str = ""


class Copying:
    """A copy of families from one store to another."""

    def __init__(
        self,
        source: Holding,
        target: Holding,
        families: Sequence[TaskFamily],
        others: Sequence[str],
        *,
        move: bool = False,
        paused: bool = False,
        tell: Tell,
    ) -> None:
        self._source = source
        self._target = target
        self._families = families
        self._others = others
        self._move = move
        self._paused = paused
        self._tell = tell
        self._done, self._total = 0, sum(len(family.ids) for family in families) + len(others)
        # Each copy has its own name, by which it recognises its own leases: see
        # `_must_be_two_stores`.
        self._owner = f"{source.owner} (copying, {os.urandom(4).hex()})"
        self._because = f"it goes on in {place_of(target.store)}"
        self._keeping = Keeping(source.lease_s)
        self._transfer = Transfer(
            source.store, target.store, self._owner, self._keeping, source.clock,
            lambda id, events: self._say("copying", id, events),
        )  # fmt: skip
        self._along = Along(
            source.store, target.store, self._transfer, self._keeping, self._owner, self._say
        )

    def check(self) -> None:
        """Raise what would keep any of them from being copied now."""
        for family in self._families:
            for id in family.ids:
                self._state_to_copy(id)

    def plan(self) -> tuple[list[CopiedTask], list[Refused]]:
        """Say what `run` would do now."""
        tasks: list[CopiedTask] = []
        refused: list[Refused] = []
        for family in self._families:
            try:
                tasks += [self._planned(id) for id in family.ids]
            except REFUSALS as error:
                refused.append(_refused(family.head, error))
        refused += self._each_other(self._along.plan)
        return tasks, refused

    @property
    def others(self) -> dict[str, CopiedLog]:
        """The logs that went along, or would, by stream."""
        return self._along.logs

    def _each_other(self, do: Callable[[str], None]) -> list[Refused]:
        """Visit every session and memory of this copy, those of its tasks included; returns the
        refused."""
        refused = []
        for stream in self._others:
            try:
                do(stream)
            except REFUSALS as error:
                refused.append(why_refused(stream, error))
            self._done += 1
        return refused

    def _planned(self, id: str) -> CopiedTask:
        state = self._state_to_copy(id)
        for session in self._along.sessions_of(state):
            self._along.plan(session)
        store, stream = self._source.store, stream_of(id)
        how = compared(store, self._target.store, stream)
        size = sum(len(line) + 1 for line in store.read(stream))
        return CopiedTask(id, how, state.status, lines_of(state), size, 0)

    def run(self) -> tuple[list[CopiedTask], list[Refused]]:
        """Copy one family after the other. A refused family does not stop the others."""
        tasks: list[CopiedTask] = []
        refused: list[Refused] = []
        with self._keeping:
            for family in self._families:
                try:
                    tasks += self._copy(family, refused)
                except REFUSALS as error:
                    refused.append(_refused(family.head, error))
                self._done += len(family.ids)
            refused += self._each_other(self._along.bring)
            for stream, why in self._along.delete_spare() if self._move else ():
                refused.append(why_refused(stream, why, _NOT_DELETED))
        return tasks, refused

    # The strides

    def _copy(self, family: TaskFamily, refused: list[Refused]) -> list[CopiedTask]:
        with ExitStack() as held:
            members = [self._taken(id, held) for id in family.ids]
            with self._paused_here(members):
                for session in self._along.sessions_of(*(member.state for member in members)):
                    self._along.bring(session)
                for member in members:
                    self._bring(member)
            for member in reversed(members):  # children first: their parent may ask for them
                self._let_go_on(member)
            if self._move:
                refused += self._delete_all(members)
        return [
            CopiedTask(m.id, m.brought.how, m.status, m.brought.events, m.brought.size_bytes,
                       m.brought.blobs)
            for m in members if m.brought is not None
        ]  # fmt: skip

    def _state_to_copy(self, id: str) -> State:
        """A task's state, or why it can't be copied now."""
        store, stream = self._source.store, stream_of(id)
        state = load(store, id)
        if state.status not in FINISHED:
            must_be_here(state, "copied")  # its engine would look for it where it was
            holder = holder_of(store, stream)
            if holder is not None:
                raise TaskBusy(
                    f"task {id!r} is being driven by {holder}: pause it (`holdfast pause`), and "
                    f"copy it when it is released"
                )
            _must_not_be_ending(state)
        compared(store, self._target.store, stream)  # before anything is changed
        for session in self._along.sessions_of(state):
            self._along.check(session)
        return state

    def _taken(self, id: str, held: ExitStack) -> Member:
        state = self._state_to_copy(id)
        if state.status in FINISHED:
            return Member(id, state)
        source = self._source
        log = open_log(source.store, id, self._owner, source.lease_s, source.clock)
        held.callback(log.close)
        self._keeping.keep(source.store, log.lease)
        held.callback(self._keeping.forget, log.lease)
        self._must_be_two_stores(id)
        take_in(log)
        _must_not_be_ending(log.state)
        return Member(id, log.state, log)

    def _must_be_two_stores(self, id: str) -> None:
        must_be_two(self._source.store, self._target.store, stream_of(id), self._owner)

    @contextmanager
    def _paused_here(self, members: Sequence[Member]) -> Iterator[None]:
        """Pause what is unfinished; if it can't be brought over, let it go on where it is."""
        paused: list[Log] = []
        try:
            for member in members if not self._paused else ():
                log = member.log
                if log is not None and log.state.status not in (*FINISHED, *HALTED):
                    paused.append(log)
                    log.append(PauseRequested(by=self._source.owner, because=self._because))
                    log.sync()
                    self._say("paused", member.id, log.state.seq)
            yield
        except Exception:
            for log in paused:
                with suppress(HoldfastError):
                    log.append(TaskContinued(by=self._source.owner))
                    log.sync()
            raise

    def _bring(self, member: Member) -> None:
        open_here = member.state.status not in (*FINISHED, *HALTED)
        arrives = self._paused and open_here
        stream = stream_of(member.id)
        # A task that has ended is not held, so somebody may retry it meanwhile.
        events = lines_of(member.state) if member.log is None else None
        member.brought = self._transfer.bring(stream, arrives_paused=arrives, events=events)
        store = self._target.store
        state = load(store, id_of(stream), missing_ok=True)
        store.remember(stream, facts_of(state), lines_of(state))
        member.status = state.status
        self._say("copied", member.id, member.brought.events)

    def _is_ours(self, state: State) -> bool:
        """Whether a task is paused because of this copy, or of one before it to the same place."""
        return state.status == "paused" and state.because == self._because

    def _let_go_on(self, member: Member) -> None:
        log = member.log
        if log is None or not (self._is_ours(log.state) or self._move):
            return
        self._source.store.renew(log.lease)  # or somebody else may have gone on with it
        self._hand_over(member)
        if not self._is_ours(log.state):
            return
        # Busy: somebody has it in hand there already.
        with suppress(TaskBusy), self._target.hold(member.id) as there:
            if self._is_ours(there.state):
                there.append(TaskContinued(by=self._source.owner))
                there.sync()
            member.status = there.state.status
        self._say("goes on", member.id, log.state.seq)

    def _hand_over(self, member: Member) -> None:
        """Give messages that came meanwhile to the process that can act on them."""
        store = self._source.store
        for post in inbox_of(store, [stream_of(member.id)]):
            self._transfer.carry(post.data)
            post_to(self._target.store, post.stream, post.name, post.data)
            unpost(store, post.stream, post.name)

    def _delete_all(self, members: Sequence[Member]) -> list[Refused]:
        """Remove a family from the source; returns the tasks that stay, and why.

        The head goes last: its name leads to what is left of the family.
        """
        refused = []
        for member in reversed(members):
            try:
                self._delete(member)
            except REFUSALS as error:
                refused.append(_refused(member.id, error, _NOT_DELETED))
        return refused

    def _delete(self, member: Member) -> None:
        """Remove a task from the source, if it is in the target, to its last event."""
        source, target, stream = self._source.store, self._target.store, stream_of(member.id)
        if member.brought is None:
            return
        if member.log is not None:
            lease = member.log.lease
            self._hand_over(member)
        else:
            lease = self._keeping.take(source, stream, self._owner)
            self._must_be_two_stores(member.id)
        try:
            head, seq = member.brought.head, member.brought.events
            if next(source.read(stream, backwards=True), b"") != head:
                raise TaskBusy(f"task {member.id!r} has gone on since: copy it again")
            if next(target.read(stream, seq - 1), b"") != head:
                raise TaskNotFound(f"task {member.id!r} is not in {target.url} any more")
            if forks := forks_of(source, member.id):
                raise TaskBusy(f"task {forks[0]!r}, which is left, has its past in {member.id!r}")
            source.delete(lease)
        finally:
            self._keeping.release(lease)
        self._say("deleted", member.id, member.brought.events)

    def _say(self, what: What, id: str, events: int) -> None:
        self._tell(CopyProgress(what, id, self._done, self._total, events))


def place_of(store: Store) -> str:
    """Where a store is, however its URL was written: a copy that is made again is known by it."""
    while (inner := getattr(store, "inner", None)) is not None:  # encrypted, or signed
        store = inner
    root, path = getattr(store, "root", None), getattr(store, "path", None)
    if isinstance(root, Path):
        return str(root.resolve())
    return f"sqlite:///{path.resolve()}" if isinstance(path, Path) else store.url


def _refused(id: str, error: Exception, before: str = "") -> Refused:
    return why_refused(stream_of(id), error, before)


def _must_not_be_ending(state: State) -> None:
    if state.status not in FINISHED and (state.cancelling or state.ending):
        raise BadInput(
            f"task {state.id!r} is being ended, and can't be paused any more: let it end first"
        )


# `Holdfast.copy_to`: from one store to another.


def copy_tasks(
    source: Holding,
    url: str | os.PathLike[str] | Store,
    wanted: Wanted,
    *,
    move: bool,
    paused: bool,
    dry_run: bool,
    tell: Tell,
    secure: Callable[[Store], Store],
) -> Copied:
    """Copy tasks to another store: see `Holdfast.copy_to`. `secure` is for one that is opened."""
    if move and paused:
        raise BadInput("a task that is moved does not arrive paused: leave out one of the two")
    named = isinstance(url, str | os.PathLike)
    target: Store = url  # type: ignore[assignment]
    if named:
        must_last(url)  # type: ignore[arg-type]
        target = secure(stand_in(url) if dry_run else open_store(url))  # type: ignore[arg-type]
    holding = Holding(target, source.owner, source.lease_s, source.clock, MAX_VALUE_BYTES)
    try:
        _must_be_another(source.store, holding.store)
        told = told_by(source.store)
        _must_not_be_gone(wanted, told, source.store, holding.store)
        chosen, along = choose(told, wanted, source.store.url)
        meant = {id: told.facts[id] for family in chosen for id in family.ids}
        others = others_meant(source.store, wanted, meant)
        copying = Copying(source, holding, chosen, others, move=move, paused=paused, tell=tell)
        if wanted.is_by_name:
            copying.check()  # nothing is done if not everything can be
        tasks, refused = copying.plan() if dry_run else copying.run()
        return Copied(
            source=source.store.url,
            target=holding.store.url,
            moved=move,
            dry_run=dry_run,
            tasks=tuple(tasks),
            refused=tuple(refused + ([] if wanted.is_by_name else told.refused())),
            along=along,
            sessions=of_kind(SESSION, copying.others),
            memories=of_kind(MEMORY, copying.others),
        )
    finally:
        holding.close()
        if named:
            holding.store.close()


def must_last(url: str | os.PathLike[str]) -> None:
    """Refuse a target that would vanish after the copy."""
    if os.fspath(url) == "memory://":
        raise BadInput(
            "memory:// is a new store in this process, and would be gone with all that is copied "
            "to it: name a store that lasts (in Python, an open Holdfast('memory://') will do)"
        )


def stand_in(url: str | os.PathLike[str]) -> Store:
    """Open a store. If it does not exist, an empty one replaces it and nothing is created."""
    text = os.fspath(url)
    scheme, found, rest = text.partition("://")
    place = rest.removeprefix("/") if scheme == "sqlite" else rest if found else text
    if (scheme in ("sqlite", "file") or not found) and not Path(place).exists():
        empty = MemoryStore()
        empty.url = text
        return empty
    return open_store(url)


def of_kind(kind: Kind, logs: Mapping[str, CopiedLog]) -> tuple[CopiedLog, ...]:
    """The copied logs of a kind."""
    return tuple(log for stream, log in sorted(logs.items()) if kind_of(stream) is kind)


def _must_not_be_gone(wanted: Wanted, told: Told, source: Store, target: Store) -> None:
    """Explain a repeated move: the tasks are already in the target."""
    for id in wanted.ids:
        known = id in told.facts or id in told.unreadable
        if not known and next(target.read(stream_of(id)), None) is not None:
            raise TaskNotFound(f"task {id!r} is in {target.url}, and in {source.url} no more")


def _must_be_another(source: Store, target: Store) -> None:
    """Refuse to copy a store onto itself. Two names of one store are found later, before a
    delete."""
    ours, theirs = place_of(source), place_of(target)
    if source is target or (ours == theirs and ours != "memory://"):
        raise BadInput(f"{target.url} is where the tasks are: name another store to copy them to")
