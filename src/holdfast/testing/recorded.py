"""Recorded runs as tests: what `holdfast testcase` writes calls this."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast.api.app import Holdfast
from holdfast.history.replay import Replayed


def replay_recorded(
    path: str | os.PathLike[str],
    id: str,
    *,
    stubs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Replayed:
    """Replay a task from an archive (`hf.archive_to`), with no network and no effect.

    The code of the task has to be imported first. `stubs` answer instead of the log, as in
    `hf.replay`; `options` are those of `Holdfast`, such as the `redact` that the task ran with.

    >>> import tempfile
    >>> from holdfast import Holdfast, task
    >>> @task
    ... def greets_again(name: str) -> str:
    ...     return f"hello, {name}"
    >>> with tempfile.TemporaryDirectory() as folder, Holdfast("memory://") as hf:
    ...     _ = hf.run(greets_again, "Ada", id="greets-1")
    ...     archived = hf.archive_to(folder)
    ...     replayed = replay_recorded(archived.path, "greets-1")
    >>> replayed.same, replayed.result
    (True, 'hello, Ada')
    """
    with Holdfast("memory://", **options) as hf:
        hf.restore_from(path)
        return hf.replay(id, stubs=stubs)
