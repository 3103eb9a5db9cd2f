"""Rules of who only looks, and of who tells what was seen."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.errors import LogDamaged
from holdfast.stores.port import Facts
from holdfast.testing.machine.model import (
    NOW,
    Process,
    Story,
    is_due,
    must_be_one_of,
    must_be_prefix,
    nobodys_digest,
    outcome,
    some_name,
    some_process,
)


class Looking(Story):
    """What anybody can see."""

    @rule(who=some_process, after=st.integers(0, 6), days=st.integers(-2, 2))
    def look(self, who: int, after: int, days: int) -> None:
        """Look at everything."""
        process = self.process(who)
        for stream in self.streams:
            self._read(stream, process, after)
            self._ask_for_the_holder(stream, process)
            must_be_one_of(
                f"inbox([{stream!r}])",
                list(process.real.inbox([stream])),
                [list(self.root.inbox([stream]))],
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
        back = list(real.tail(stream))[::-1]
        must_be_prefix(f"tail({stream!r}), reversed", back, lines, at_least)

    def _ask_for_the_holder(self, stream: str, process: Process) -> None:
        holder = self.root.holder(stream)
        allowed = {holder} if holder is not None else {None, self.streams[stream].owner}
        must_be_one_of(f"holder({stream!r})", process.real.holder(stream), allowed)

    def _list(self, prefix: str, process: Process) -> None:
        facts = list(process.real.facts(prefix))
        streams = {stream for stream in self.streams if stream.startswith(prefix)}
        for listed in (list(process.real.streams(prefix)), [stream for stream, _ in facts]):
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
        allowed = [None, dict(self.root.facts(stream)).get(stream)]
        if not self._knows_facts(stream, process):
            allowed += [told for _, told in self.streams[stream].told]
        must_be_one_of(f"the facts of {stream}", facts, allowed)

    def _knows_facts(self, stream: str, process: Process) -> bool:
        sees_all = self.must_be_seen(stream, process) == len(self.root.lines(stream))
        return sees_all and not self.streams[stream].has_old_facts

    def _list_due(self, process: Process, now: datetime) -> None:
        found = dict(process.real.due(self.prefix, now))
        for stream, facts in found.items():
            if stream not in self.streams or self._may_be_there(stream, process) == {False}:
                raise AssertionError(f"{stream} is due, but is not there")
            self._must_be_right(stream, facts, process)
            if facts is not None and not is_due(facts, now):
                raise AssertionError(f"{stream} is given as due at {now}, but is not: {facts}")
        for stream, facts in self.root.facts(self.prefix):
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
    """What becomes of a process."""

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


# Rules of who leaves something for others: messages and blobs.


some_message = st.sampled_from(["m", "../m"])


class Leaving(Story):
    """What is durable when the call returns, and takes no lease."""

    @rule(who=some_process, name=some_name, message=some_message)
    def post(self, who: int, name: str, message: str) -> None:
        """Leave a message for a stream that is there."""
        stream, process = self.prefix + name, self.process(who)
        if self.streams[stream].visible:
            given = (stream, message, b"%d\n" % next(self.numbers))
            expected = process.model.post(*given)
            must_be_one_of(f"post{given}", process.real.post(*given), [expected])

    @rule(who=some_process, name=some_name, message=some_message)
    def unpost(self, who: int, name: str, message: str) -> None:
        """Take a message out, or one that is not there."""
        process = self.process(who)
        process.model.unpost(self.prefix + name, message)
        process.real.unpost(self.prefix + name, message)

    @rule(who=some_process, data=st.binary(max_size=20))
    def put_blob(self, who: int, data: bytes) -> None:
        """Keep a blob."""
        digest = self.process(who).real.put_blob(data)
        must_be_one_of("the digest of a blob", digest, [sha256(data).hexdigest()])
        self.blobs[digest] = data
