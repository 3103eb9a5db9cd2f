"""Rules of who leaves something for others: messages and blobs."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.testing.machine.model import must_be_one_of
from holdfast.testing.machine.story import Story, some_name, some_process

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
