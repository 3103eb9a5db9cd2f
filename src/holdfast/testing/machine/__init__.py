"""A store against the memory store, under random use: append, crash, reopen, takeover, delete.

Hypothesis makes up a story: a few processes with a store each on one place, a few streams, and
what they do to them, one after the other. Everything is done to a memory store as well, and the
two must agree wherever the rules say what comes of it (see `model`). A story that fails is made as
short as can be, and is printed as code.

Nothing that is drawn depends on what a store answered, so that a story can be told again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from holdfast.errors import Conflict, LeaseLost, LogDamaged, TaskBusy
from holdfast.log.store_calls import (
    acquire_one,
    due_in,
    facts_of_all,
    holder_of,
    inbox_of,
    post_to,
    streams_in,
    sync_one,
    unpost,
)
from holdfast.stores.port import Facts, Store
from holdfast.testing.machine.model import (
    LONG_S,
    NOW,
    SHORT_S,
    Hold,
    Outcome,
    Process,
    Story,
    Stream,
    is_due,
    must_agree,
    must_be_one_of,
    must_be_prefix,
    nobodys_digest,
    outcome,
    some_name,
    some_process,
    the_newest_or_so,
)

DAY = timedelta(days=1)
Wake = tuple[datetime | None] | None
"""When to wake somebody, if any facts are told."""

maybe_facts: Final = st.sampled_from([None, (None,), (NOW - DAY,), (NOW,), (NOW + DAY,)])


class Writing(Story):
    """The leases of a process."""

    @rule(who=some_process, name=some_name, count=st.integers(1, 3), wake_at=maybe_facts)
    def work(self, who: int, name: str, count: int, wake_at: Wake) -> None:
        """Do what a process does that drives a task: hold its stream, append, sync."""
        stream, process = self.prefix + name, self.process(who)
        last = self.streams[stream].last
        if last is None or last.process is not process:
            self.acquire(who, name, True)
        hold = self.streams[stream].last
        if hold is not None and hold.process is process:
            self._append(hold, hold.seq, count, wake_at)
            self._sync(hold)

    @rule(
        who=some_process,
        taker=some_process,
        name=some_name,
        before=st.integers(0, 2),
        between=st.integers(0, 1),
    )
    def freeze(self, who: int, taker: int, name: str, before: int, between: int) -> None:
        """Hold a stream, hang, be taken over, and go on as if nothing had happened."""
        known = self.streams[self.prefix + name]
        self.acquire(who, name, False)
        stale = known.last
        if stale is not None and stale.process is self.process(who) and not stale.lasts:
            self._append(stale, stale.seq, before, None)
            self.acquire(taker, name, True)
            fresh = self.holds[-1]
            self._append(fresh, fresh.seq, between, None)
            self._append(stale, stale.seq, 1, (None,))
            self._sync(stale)

    @rule(who=some_process, name=some_name, lasts=st.booleans())
    def acquire(self, who: int, name: str, lasts: bool) -> None:
        """Take a stream: one that is free, that is held, or whose holder hangs or died."""
        stream, process = self.prefix + name, self.process(who)
        known, holder = self.streams[stream], holder_of(self.root, stream)
        given = (stream, f"owner {next(self.numbers)}", LONG_S if lasts else SHORT_S)
        expected = outcome(acquire_one, process.model, *given)
        found = outcome(acquire_one, process.real, *given)
        give_up_at = time.monotonic() + self.notice_s
        while expected.error is None and known.has_crashed and _is_busy(found):
            if time.monotonic() > give_up_at:
                type(self).notice_s = 0.1  # to tell it again, shorter, need not take so long
                break
            time.sleep(0.005)
            found = outcome(acquire_one, process.real, *given)
        must_agree(f"acquire{given}", found, expected)
        if found.error is not None:
            if str(holder) not in str(found.error):
                raise AssertionError(f"{found.error!r} does not name the holder, {holder!r}")
            return
        if found.value.epoch <= known.epoch:
            raise AssertionError(f"epoch {found.value.epoch} of {stream} follows {known.epoch}")
        self._see_what_is_left(stream, process)
        seq = len(self.root.lines(stream))
        hold = Hold(stream, process, found.value, expected.value, seq, lasts)
        known.epoch, known.last, known.owner = found.value.epoch, hold, given[1]
        self.holds.append(hold)
        self.let_run_out(hold)

    def _see_what_is_left(self, stream: str, process: Process) -> None:
        """Of what the holder before appended, if it crashed or was taken over before it synced."""
        known, lines = self.streams[stream], self.root.lines(stream)
        found = list(process.real.read(stream))
        must_be_prefix(f"who takes {stream}", found, lines, known.visible)
        if known.last is not None:
            known.last.is_settled = known.last.seq <= len(found)
        if len(found) < len(lines):
            known.told = [(seq, facts) for seq, facts in known.told if seq <= len(found)]
            self.root.cut(stream, len(found), known.told[-1][1] if known.told else None)
        known.visible = len(found)

    @rule(
        pick=the_newest_or_so,
        count=st.integers(0, 3),
        off=st.sampled_from([0, 0, 0, -1, 1]),
        wake_at=maybe_facts,
        is_synced=st.booleans(),
    )
    def append(self, pick: int, count: int, off: int, wake_at: Wake, is_synced: bool) -> None:
        """Append at the right place or beside it, under a lease that is good or lost."""
        hold = self.hold(pick)
        if hold is not None:
            self._append(hold, max(0, hold.seq + off), count, wake_at)
            if is_synced:
                self._sync(hold)

    def _append(self, hold: Hold, seq: int, count: int, wake_at: Wake) -> None:
        lines = self.lines(hold.stream, seq, count)
        facts = self._facts(*wake_at) if wake_at and lines else None
        expected = outcome(hold.process.model.append, hold.model, seq, lines, facts)
        found = outcome(hold.process.real.append, hold.real, seq, lines, facts)
        what = f"append({hold.real}, {seq}, {count} lines)"
        if isinstance(expected.error, LeaseLost):
            must_be_one_of(what, type(found.error), (LeaseLost, Conflict, type(None)))
            hold.is_zombie |= found.error is None and count > 0
        else:
            must_agree(what, found, expected)
        if found.error is None:
            hold.seq = seq + count
        if expected.error is None:
            hold.unsynced |= count > 0
            if facts is not None:
                self._tell(hold.stream, facts)

    def _facts(self, wake_at: datetime | None) -> Facts:
        user = f"user {next(self.numbers):06}"
        return Facts("job", "in_progress", user, created_at=NOW - DAY, wake_at=wake_at)

    def _tell(self, stream: str, facts: Facts) -> None:
        known = self.streams[stream]
        known.told.append((len(self.root.lines(stream)), facts))
        known.has_old_facts = False

    @rule(pick=the_newest_or_so)
    def sync(self, pick: int) -> None:
        """Sync, under a lease that is good or lost."""
        hold = self.hold(pick)
        if hold is not None:
            self._sync(hold)

    def _sync(self, hold: Hold) -> None:
        expected = outcome(sync_one, hold.process.model, hold.model)
        found = outcome(sync_one, hold.process.real, hold.real)
        what = f"sync({hold.real})"
        if expected.error is None:
            must_agree(what, found, expected)
            if hold.unsynced:
                known = self.streams[hold.stream]
                known.synced = known.visible = len(self.root.lines(hold.stream))
                hold.unsynced = False
        elif hold.is_zombie or (hold.unsynced and not hold.is_settled):
            must_agree(what, found, expected)
        else:  # there was nothing to acknowledge, or it is there
            must_be_one_of(what, type(found.error), (LeaseLost, type(None)))

    @rule(pick=the_newest_or_so)
    def renew(self, pick: int) -> None:
        """Say that a holder is alive, which it may not be any more."""
        hold = self.hold(pick)
        if hold is not None:
            expected = outcome(hold.process.model.renew, hold.model)
            must_agree(f"renew({hold.real})", outcome(hold.process.real.renew, hold.real), expected)
            if expected.error is None:
                self.let_run_out(hold)

    @rule(pick=the_newest_or_so)
    def release(self, pick: int) -> None:
        """Give a lease back, perhaps late or twice."""
        hold = self.hold(pick)
        if hold is not None:
            hold.process.model.release([hold.model])
            hold.process.real.release([hold.real])
            known = self.streams[hold.stream]
            if known.last is hold:
                hold.is_settled = True
                known.last = known.owner = None
                known.visible = len(self.root.lines(hold.stream))

    @rule(pick=the_newest_or_so)
    def delete(self, pick: int) -> None:
        """Remove a stream, which only its holder can."""
        hold = self.hold(pick)
        if hold is not None:
            expected = outcome(hold.process.model.delete, hold.model)
            found = outcome(hold.process.real.delete, hold.real)
            must_agree(f"delete({hold.real})", found, expected)
            if expected.error is None:
                self.streams[hold.stream] = Stream()


def _is_busy(found: Outcome) -> bool:
    return isinstance(found.error, TaskBusy)


# Rules that only look, or tell what was seen.


class Looking(Story):
    """The view of anybody."""

    @rule(who=some_process, after=st.integers(0, 6), days=st.integers(-2, 2))
    def look(self, who: int, after: int, days: int) -> None:
        """Look at everything."""
        process = self.process(who)
        for stream in self.streams:
            self._read(stream, process, after)
            self._ask_for_the_holder(stream, process)
            must_be_one_of(
                f"inbox([{stream!r}])",
                list(inbox_of(process.real, [stream])),
                [list(inbox_of(self.root, [stream]))],
            )
        for end in ("", "a", "a/", "A"):
            self._list(self.prefix + end, process)
        self._list_due(process, NOW + timedelta(days=days))
        self._get_blobs(process)

    def _read(self, stream: str, process: Process, after: int) -> None:
        real, lines = process.real, self.root.lines(stream)
        at_least = self.must_be_seen(stream, process)
        must_be_prefix(f"read({stream!r})", list(real.read(stream)), lines, at_least)
        found = list(real.read(stream, after))
        must_be_prefix(f"read({stream!r}, {after})", found, lines, at_least, after)
        back = list(real.read(stream, backwards=True))[::-1]
        must_be_prefix(f"read({stream!r}, backwards=True), reversed", back, lines, at_least)

    def _ask_for_the_holder(self, stream: str, process: Process) -> None:
        holder = holder_of(self.root, stream)
        allowed = {holder} if holder is not None else {None, self.streams[stream].owner}
        must_be_one_of(f"holder({stream!r})", holder_of(process.real, stream), allowed)

    def _list(self, prefix: str, process: Process) -> None:
        facts = list(facts_of_all(process.real, prefix))
        streams = {stream for stream in self.streams if stream.startswith(prefix)}
        for listed in (list(streams_in(process.real, prefix)), [stream for stream, _ in facts]):
            if len(listed) > len(set(listed)) or not set(listed) <= streams:
                raise AssertionError(f"under {prefix!r} there are {streams}, found {listed}")
            for stream in streams:
                what = f"is {stream} among those under {prefix!r}"
                must_be_one_of(what, stream in listed, self._may_be_there(stream, process))
        for stream, found in facts:
            self._must_be_right(stream, found, process)

    def _may_be_there(self, stream: str, process: Process) -> set[bool]:
        return {bool(self.root.lines(stream)), bool(self.must_be_seen(stream, process))}

    def _must_be_right(self, stream: str, facts: Facts | None, process: Process) -> None:
        allowed = [None, dict(facts_of_all(self.root, stream)).get(stream)]
        if not self._knows_facts(stream, process):
            allowed += [told for _, told in self.streams[stream].told]
        must_be_one_of(f"the facts of {stream}", facts, allowed)

    def _knows_facts(self, stream: str, process: Process) -> bool:
        sees_all = self.must_be_seen(stream, process) == len(self.root.lines(stream))
        return sees_all and not self.streams[stream].has_old_facts

    def _list_due(self, process: Process, now: datetime) -> None:
        found = dict(due_in(process.real, self.prefix, now))
        for stream, facts in found.items():
            if stream not in self.streams or self._may_be_there(stream, process) == {False}:
                raise AssertionError(f"{stream} is due, but is not there")
            self._must_be_right(stream, facts, process)
            if facts is not None and not is_due(facts, now):
                raise AssertionError(f"{stream} is given as due at {now}, but is not: {facts}")
        for stream, facts in facts_of_all(self.root, self.prefix):
            if is_due(facts, now) and self._knows_facts(stream, process) and stream not in found:
                raise AssertionError(f"{stream} is due at {now} and was not found: {facts}")

    def _get_blobs(self, process: Process) -> None:
        for digest, data in self.blobs.items():
            found = outcome(process.real.get_blob, digest)
            must_be_one_of(f"blob {digest}", found.error or found.value, [data])
        found = outcome(process.real.get_blob, nobodys_digest(self.prefix))
        must_be_one_of("a blob that nobody put", type(found.error), [LogDamaged])

    @rule(who=some_process, name=some_name, off=st.sampled_from([0, 0, -1, 1]), wakes=st.booleans())
    def remember(self, who: int, name: str, off: int, wakes: bool) -> None:
        """Tell the facts of a log that was read, to its end or not."""
        stream, process = self.prefix + name, self.process(who)
        known, head = self.streams[stream], len(self.root.lines(stream))
        if known.visible == head:
            user = f"user {next(self.numbers)}"
            facts = Facts("job", "read", user, wake_at=NOW if wakes else None)
            process.model.remember(stream, facts, head + off)
            process.real.remember(stream, facts, head + off)
            if head and not off:
                known.told.append((head, facts))
                known.has_old_facts = False


# Rules of how a process ends: in peace, or killed. In its place another starts.


class Ending(Story):
    """The fate of a process."""

    @rule(who=some_process)
    def close(self, who: int) -> None:
        """Close a store: everything is given back, and nothing is lost."""
        if who in self.processes:
            process = self.processes[who]
            process.real.close()
            process.model.close()
            for stream, known in self.ended(who):
                known.visible = len(self.root.lines(stream))
                known.last = known.owner = None

    @rule(who=some_process)
    def crash(self, who: int) -> None:
        """Kill a process: what it synced is there, and it holds nothing more."""
        if who in self.processes and self.crash_store is not None:
            process = self.processes[who]
            self.crash_store(process.real)
            if self.notices_death:
                process.model.close()
            for _, known in self.ended(who):
                known.visible = known.synced
                known.last = None
                known.has_crashed = known.has_old_facts = True


# Rules that leave something for others: messages and blobs.


some_message: Final = st.sampled_from(["m", "../m"])


class Leaving(Story):
    """Calls that are durable when they return, and take no lease."""

    @rule(who=some_process, name=some_name, message=some_message)
    def post(self, who: int, name: str, message: str) -> None:
        """Leave a message for a stream that is there."""
        stream, process = self.prefix + name, self.process(who)
        if self.streams[stream].visible:
            given = (stream, message, b"%d\n" % next(self.numbers))
            expected = post_to(process.model, *given)
            must_be_one_of(f"post{given}", post_to(process.real, *given), [expected])

    @rule(who=some_process, name=some_name, message=some_message)
    def unpost(self, who: int, name: str, message: str) -> None:
        """Take a message out, or one that is not there."""
        process = self.process(who)
        unpost(process.model, self.prefix + name, message)
        unpost(process.real, self.prefix + name, message)

    @rule(who=some_process, data=st.binary(max_size=20))
    def put_blob(self, who: int, data: bytes) -> None:
        """Keep a blob."""
        digest = self.process(who).real.put_blob(data)
        must_be_one_of("the digest of a blob", digest, [sha256(data).hexdigest()])
        self.blobs[digest] = data


class StoreMachine(Writing, Ending, Looking, Leaving):
    """The rules of a story. Subclass it for more of them; `run_store_machine` tells the stories."""


def run_store_machine(
    open_store: Callable[[], Store],
    crash: Callable[[Store], None] | None = None,
    *,
    notices_death: bool = True,
    settings: hypothesis.settings | None = None,
    machine: type[StoreMachine] = StoreMachine,
) -> None:
    """Check a store against the memory store. Raises `AssertionError` where it breaks a rule.

    `open_store` opens one more store on the place, as another process would. `crash` ends one as
    if its process had been killed; see `StoreProcesses` for real ones. Without it nothing crashes.
    `notices_death=False` is for a store that learns of a dead holder only when its lease runs out.
    `settings` are those of Hypothesis, or the profile that is loaded.

    >>> from hypothesis import settings
    >>> from holdfast.stores.memory import MemoryStore
    >>> place = MemoryStore()
    >>> run_store_machine(
    ...     lambda: MemoryStore(beside=place), MemoryStore.close, settings=settings(max_examples=3)
    ... )
    """
    told = type(
        machine.__name__,
        (machine,),
        {
            "open_store": staticmethod(open_store),
            "crash_store": staticmethod(crash) if crash is not None else None,
            "notices_death": notices_death,
        },
    )
    given = settings or hypothesis.settings()
    given = hypothesis.settings(
        given,
        deadline=None,  # a disk takes its time
        suppress_health_check=list(HealthCheck),
        # To explain a failure, stories are told many times over: of real processes, for minutes.
        phases=[phase for phase in given.phases if phase is not Phase.explain],
    )
    run_state_machine_as_test(told, settings=given)
