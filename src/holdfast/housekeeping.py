"""What is done to many tasks at once, from outside: copied, moved, archived, cleaned up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.retention import Retention
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.copied import Copied, Tell
    from holdfast.engines.holding import Holding
    from holdfast.sweeping import Swept


class Housekeeping:
    """The part of `Holdfast` that looks after its store."""

    store: Store
    _holding: Holding

    def copy_to(
        self,
        url: str | os.PathLike[str] | Store | Housekeeping,
        ids: str | Iterable[str] | None = None,
        *,
        status: str | None = None,
        type: str | None = None,
        user: str | None = None,
        session: str | None = None,
        labels: dict[str, str] | None = None,
        move: bool = False,
        paused: bool = False,
        dry_run: bool = False,
        progress: Tell | None = None,
    ) -> Copied:
        """Copy tasks to another store, all of them or those that are meant; `move` deletes them
        here afterwards. A copy that was interrupted goes on when it is made again.

        A family goes together: with a parent its children, with a child its parent. An unfinished
        task goes on in the copy, and is paused here, so that nothing is done twice; with `paused`
        it goes on here, and the copy arrives paused. A task that somebody drives is refused.

        >>> from holdfast import Holdfast, task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf, Holdfast("memory://") as other:
        ...     _ = hf.run(hello, id="hello-7")
        ...     copied = hf.copy_to(other)
        ...     [(task.id, task.how) for task in copied.tasks], other.task("hello-7").result
        ([('hello-7', 'copied')], 'hi')
        """
        from holdfast.choosing import wanted
        from holdfast.copied import nothing
        from holdfast.moving import copy_tasks

        meant = wanted(
            ids, status=status, type=type, user=user, session=session, labels=labels
        )  # fmt: skip
        target = url.store if isinstance(url, Housekeeping) else url
        return copy_tasks(
            self._holding, target, meant, move=move, paused=paused, dry_run=dry_run,
            tell=progress or nothing,
        )  # fmt: skip
