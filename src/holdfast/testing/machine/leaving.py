"""Rules of who leaves something for others: messages and blobs."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.errors import LogDamaged
from holdfast.testing.machine.model import must_be_one_of, outcome
from holdfast.testing.machine.story import NAMES, Story, some_name, some_process

messages = st.sampled_from(["m", "answer-1", "../m"])


class Leaving(Story):
    """What is durable when the call returns, and takes no lease."""

    @rule(who=some_process, name=some_name, message=messages)
    def post(self, who: int, name: str, message: str) -> None:
        """Leave a message for a stream that is there."""
        stream, process = self.prefix + name, self.process(who)
        if self.streams[stream].visible:
            given = (stream, message, b"%d\n" % next(self.numbers))
            expected = process.model.post(*given)
            must_be_one_of(f"post{given}", process.real.post(*given), [expected])

    @rule(who=some_process, name=some_name, message=messages)
    def unpost(self, who: int, name: str, message: str) -> None:
        """Take a message out, or one that is not there."""
        process = self.process(who)
        process.model.unpost(self.prefix + name, message)
        process.real.unpost(self.prefix + name, message)

    @rule(who=some_process, asked=st.sets(st.sampled_from(NAMES)))
    def look_into_inboxes(self, who: int, asked: set[str]) -> None:
        """Look what was left: in each inbox in order."""
        streams = [self.prefix + name for name in sorted(asked)]
        found = self.process(who).real.inbox(streams)
        for stream in streams:
            mine = [post for post in found if post.stream == stream]
            must_be_one_of(f"the inbox of {stream}", mine, [list(self.root.inbox([stream]))])
        must_be_one_of("inboxes of others", {p.stream for p in found} - set(streams), [set()])

    @rule(who=some_process, data=st.binary(max_size=20))
    def put_blob(self, who: int, data: bytes) -> None:
        """Keep a blob."""
        digest = self.process(who).real.put_blob(data)
        must_be_one_of("the digest of a blob", digest, [sha256(data).hexdigest()])
        self.blobs[digest] = data

    @rule(who=some_process)
    def get_blobs(self, who: int) -> None:
        """Get all that were kept, and one that was not."""
        real = self.process(who).real
        for digest, data in self.blobs.items():
            must_be_one_of(f"blob {digest}", real.get_blob(digest), [data])
        nobodys = sha256(self.prefix.encode()).hexdigest()
        must_be_one_of("no blob", type(outcome(real.get_blob, nobodys).error), [LogDamaged])
