"""Rules of who writes: take, append, sync, renew, give back, delete."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.errors import Conflict, LeaseLost, TaskBusy
from holdfast.stores.port import Facts
from holdfast.testing.machine.model import (
    LONG_S,
    NOW,
    SHORT_S,
    Hold,
    Outcome,
    Process,
    Story,
    Stream,
    must_agree,
    must_be_one_of,
    must_be_prefix,
    outcome,
    some_name,
    some_process,
    the_newest_or_so,
)

DAY = timedelta(days=1)
Wake = tuple[datetime | None] | None
"""When to wake somebody, if any facts are told."""

maybe_facts = st.sampled_from([None, (None,), (NOW - DAY,), (NOW,), (NOW + DAY,)])


class Writing(Story):
    """What a process does with leases."""

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
        known, holder = self.streams[stream], self.root.holder(stream)
        given = (stream, f"owner {next(self.numbers)}", LONG_S if lasts else SHORT_S)
        expected = outcome(process.model.acquire, *given)
        found = outcome(process.real.acquire, *given)
        give_up_at = time.monotonic() + self.notice_s
        while expected.error is None and known.has_crashed and _is_busy(found):
            if time.monotonic() > give_up_at:
                type(self).notice_s = 0.1  # to tell it again, shorter, need not take so long
                break
            time.sleep(0.005)
            found = outcome(process.real.acquire, *given)
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
        expected = outcome(hold.process.model.sync, hold.model)
        found = outcome(hold.process.real.sync, hold.real)
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
            hold.process.model.release(hold.model)
            hold.process.real.release(hold.real)
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
