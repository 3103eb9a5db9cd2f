"""What `Holdfast` tells of what it keeps, byte for byte: artifacts, and whether logs are sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, BinaryIO

from holdfast.artifacts import Artifact, opened
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.verify import Head, Verified


class Inspection:
    """The part of `Holdfast` that looks at what the store has."""

    store: Store

    def open(self, artifact: Artifact) -> BinaryIO:
        """The content of an artifact, to be read from any place in it.

        >>> from holdfast import Artifact, Holdfast, keep, task
        >>> @task
        ... def drawing() -> Artifact:
        ...     return keep([b"<svg/>"], name="plan.svg")
        >>> with Holdfast("memory://") as hf:
        ...     plan = hf.run(drawing, id="d-1")
        ...     with hf.open(plan) as file:
        ...         file.read()
        b'<svg/>'
        """
        return opened(self.store, artifact)

    def verify(
        self,
        id: str | None = None,
        *,
        against: Iterable[Head] = (),
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Verified:
        """Whether a task's log, or every log, is what was written: each event, sum and blob.

        Every log is those of sessions and memories too. With the `heads` of an earlier time it
        also shows what was cut off since. `progress` is told how many logs were checked, and of
        how many.

        >>> from holdfast import Holdfast, task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-7")
        ...     hf.verify().sound, hf.verify("hello-7", against=hf.heads()).events
        (True, 3)
        """
        from holdfast.verify import verify

        return verify(self.store, () if id is None else (id,), against, progress)

    def heads(self, *ids: str) -> list[Head]:
        """How far the logs of these tasks go, or all logs: to be kept elsewhere, for `verify`.

        >>> from holdfast import Holdfast, task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-8")
        ...     [(head.task, head.seq) for head in hf.heads()]
        [('hello-8', 3)]
        """
        from holdfast.verify import heads

        return heads(self.store, ids)
