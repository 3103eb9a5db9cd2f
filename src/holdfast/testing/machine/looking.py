"""Rules of who only looks: logs, lists, facts, holders."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.store import Facts
from holdfast.testing.machine.model import Process, is_due, must_be_one_of, must_be_prefix
from holdfast.testing.machine.story import NOW, Story, some_name, some_process


class Looking(Story):
    """What anybody can see."""

    @rule(who=some_process, name=some_name, after=st.integers(0, 6))
    def read(self, who: int, name: str, after: int) -> None:
        """Read a log: whole, from a line on, and from its end."""
        stream, process = self.prefix + name, self.process(who)
        lines, at_least = self.root.lines(stream), self.must_be_seen(stream, process)
        real = process.real
        must_be_prefix(f"read({stream!r})", list(real.read(stream)), lines, at_least)
        found = list(real.read(stream, after))
        must_be_prefix(f"read({stream!r}, {after})", found, lines, at_least, after)
        back = list(real.tail(stream))[::-1]
        must_be_prefix(f"tail({stream!r}), reversed", back, lines, at_least)

    @rule(who=some_process, end=st.sampled_from(["", "a", "a/", "A"]))
    def list_streams(self, who: int, end: str) -> None:
        """List streams, and their facts."""
        process, prefix = self.process(who), self.prefix + end
        found = list(process.real.streams(prefix))
        facts = list(process.real.facts(prefix))
        for listed in (found, [stream for stream, _ in facts]):
            if len(listed) != len(set(listed)):
                raise AssertionError(f"listed twice: {listed}")
            for stream in self.streams:
                if stream.startswith(prefix):
                    must_be_one_of(f"{stream} is listed", stream in listed, self._is_there(stream, process))
            if strangers := set(listed) - {s for s in self.streams if s.startswith(prefix)}:
                raise AssertionError(f"{prefix!r} lists {strangers}")
        for stream, found_facts in facts:
            self._must_be_right(stream, found_facts, process)

    def _is_there(self, stream: str, process: Process) -> set[bool]:
        """What may be said of whether a stream is there."""
        is_there = bool(self.root.lines(stream))
        return {is_there, bool(self.must_be_seen(stream, process))}

    def _must_be_right(self, stream: str, facts: Facts | None, process: Process) -> None:
        allowed = [None, dict(self.root.facts(stream)).get(stream)]
        if not self._knows_facts(stream, process):
            allowed += [told for _, told in self.streams[stream].told]
        must_be_one_of(f"facts of {stream}", facts, allowed)

    def _knows_facts(self, stream: str, process: Process) -> bool:
        seen = self.must_be_seen(stream, process) == len(self.root.lines(stream))
        return seen and not self.streams[stream].has_old_facts

    @rule(who=some_process, days=st.integers(-2, 2))
    def list_due(self, who: int, days: int) -> None:
        """List what is due."""
        process, now = self.process(who), NOW + timedelta(days=days)
        found = dict(process.real.due(self.prefix, now))
        for stream, facts in found.items():
            if stream not in self.streams or self._is_there(stream, process) == {False}:
                raise AssertionError(f"{stream} is due, but is not there")
            self._must_be_right(stream, facts, process)
            if facts is not None and not is_due(facts, now):
                raise AssertionError(f"{stream} is given as due at {now}, but is not: {facts}")
        for stream, facts in self.root.facts(self.prefix):
            if is_due(facts, now) and self._knows_facts(stream, process) and stream not in found:
                raise AssertionError(f"{stream} is due at {now} and was not found: {facts}")

    @rule(who=some_process, name=some_name, off=st.sampled_from([0, 0, -1, 1]), wakes=st.booleans())
    def remember(self, who: int, name: str, off: int, wakes: bool) -> None:
        """Tell the facts of a log that was read, to its end or not."""
        stream, process = self.prefix + name, self.process(who)
        known, head = self.streams[stream], len(self.root.lines(stream))
        if known.visible == head:
            facts = Facts("job", "read", f"user {next(self.numbers)}", wake_at=NOW if wakes else None)
            process.model.remember(stream, facts, head + off)
            process.real.remember(stream, facts, head + off)
            if head and not off:
                known.told.append((head, facts))
                known.has_old_facts = False

    @rule(who=some_process, name=some_name)
    def ask_for_the_holder(self, who: int, name: str) -> None:
        """Ask who is at work."""
        stream = self.prefix + name
        holder = self.root.holder(stream)
        allowed = {holder} if holder is not None else {None, self.streams[stream].owner}
        must_be_one_of(f"holder({stream!r})", self.process(who).real.holder(stream), allowed)
