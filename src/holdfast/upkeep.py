"""What `Holdfast` does with what it keeps, besides driving tasks."""

from __future__ import annotations

from typing import BinaryIO

from holdfast.artifacts import Artifact, opened
from holdfast.store import Store


class Upkeep:
    """The part of `Holdfast` that looks after the store."""

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
