"""What is done to many tasks at once, from outside: copied, moved, archived, cleaned up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BadInput
from holdfast.events import VERSION
from holdfast.keys import KeySource
from holdfast.store import Store
from holdfast.stores import secured
from holdfast.upkeep.retention import Retention

if TYPE_CHECKING:
    from holdfast.engines.holding import Holding
    from holdfast.upkeep.archiving import Archived
    from holdfast.upkeep.copied import Copied, Tell
    from holdfast.upkeep.swept import Swept


class Housekeeping:
    """The part of `Holdfast` that looks after its store."""

    store: Store
    _holding: Holding
    _keys: tuple[KeySource | None, KeySource | None]

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

        A family goes together: with a parent its children, with a child its parent, with any of
        them its session. All includes sessions without a task, and memories. An unfinished task
        goes on in the copy, and is paused here, so that nothing is done twice; with `paused` it
        goes on here, and the copy arrives paused. A task that somebody drives is refused.

        A store that is named by a URL is opened with the keys of this one; to use others, or none,
        give a `Holdfast` that was opened with them.

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
        from holdfast.upkeep.choosing import wanted
        from holdfast.upkeep.copied import nothing
        from holdfast.upkeep.moving import copy_tasks

        meant = wanted(
            ids, status=status, type=type, user=user, session=session, labels=labels
        )  # fmt: skip
        target = url.store if isinstance(url, Housekeeping) else url
        key, sign_key = self._keys
        return copy_tasks(
            self._holding, target, meant, move=move, paused=paused, dry_run=dry_run,
            tell=progress or nothing, secure=lambda store: secured(store, key, sign_key),
        )  # fmt: skip

    def archive_to(
        self,
        path: str | os.PathLike[str],
        ids: str | Iterable[str] | None = None,
        *,
        status: str | None = None,
        type: str | None = None,
        user: str | None = None,
        session: str | None = None,
        labels: dict[str, str] | None = None,
        plain: bool = False,
        progress: Tell | None = None,
    ) -> Archived:
        """Write tasks to a compressed file, with all that belongs to them: families, sessions, and,
        of everything, memories. They stay in the store.

        The file is read back before it gets its name. If `path` is a folder, a new file is made in
        it. `restore_from` brings tasks back from it. An archive is not encrypted: from a store that
        is, one is made only if `plain` says so.

        >>> import tempfile
        >>> from holdfast import Holdfast, task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with tempfile.TemporaryDirectory() as folder, Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-8")
        ...     hf.archive_to(f"{folder}/all.hfa").ids
        ('hello-8',)
        """
        from holdfast.upkeep.archiving import archive_tasks
        from holdfast.upkeep.choosing import wanted
        from holdfast.upkeep.copied import nothing

        meant = wanted(
            ids, status=status, type=type, user=user, session=session, labels=labels
        )  # fmt: skip
        self._may_be_written_in_the_clear(plain)
        return archive_tasks(self._holding, Path(path), meant, progress or nothing)

    def _may_be_written_in_the_clear(self, plain: bool) -> None:
        if self._keys[0] is not None and not plain:
            raise BadInput(
                "an archive is not encrypted, and this store is: copy the tasks to another "
                "encrypted store, or say plain=True (--plain) and look after the file yourself"
            )

    def restore_from(
        self,
        path: str | os.PathLike[str],
        ids: str | Iterable[str] | None = None,
        *,
        max_bytes: int | None = None,
        dry_run: bool = False,
        progress: Tell | None = None,
    ) -> Copied:
        """Bring tasks back from an archive: all of them, or those that are named.

        What is there already is left as it is. What was unfinished arrives paused, because the
        original may have gone on since. An archive that would unpack to more than `max_bytes`
        (64 GiB) is refused.

        >>> import tempfile
        >>> from holdfast import Holdfast, task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with tempfile.TemporaryDirectory() as folder, Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-9")
        ...     archived = hf.archive_to(folder)
        ...     with Holdfast("memory://") as other:
        ...         [task.id for task in other.restore_from(archived.path).tasks]
        ['hello-9']
        """
        from holdfast.upkeep.archive import MAX_BYTES, Archive
        from holdfast.upkeep.choosing import wanted
        from holdfast.upkeep.copied import nothing
        from holdfast.upkeep.restoring import restore_tasks

        most = MAX_BYTES if max_bytes is None else max_bytes
        with Archive(Path(path), max_bytes=most) as archive:
            return restore_tasks(
                archive, self._holding, wanted(ids), dry_run=dry_run, tell=progress or nothing
            )

    def gc(
        self,
        policy: Retention | None = None,
        *,
        archive: str | os.PathLike[str] | None = None,
        plain: bool = False,
        compact: bool = False,
        dry_run: bool = False,
        progress: Tell | None = None,
    ) -> Swept:
        """Delete finished tasks and idle sessions as a policy says, blobs that no log names any
        more, and what crashed writers left. Without a policy, only the latter two.

        With `archive` (a file, or a folder for a new one) what goes is archived first; if the store
        is encrypted, only where `plain` says that the archive need not be. `dry_run`
        says what would go. `compact` gives the space back to the disk (SQLite).

        >>> from holdfast import Holdfast, Retention, task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     for n in range(3):
        ...         _ = hf.run(hello, id=f"hello-1{n}")
        ...     swept = hf.gc(Retention(keep_last=1))
        ...     [task.id for task in swept.tasks], [view.id for view in hf.tasks()]
        (['hello-10', 'hello-11'], ['hello-12'])
        """
        from holdfast.upkeep.copied import nothing
        from holdfast.upkeep.sweeping import Sweep

        tell = progress or nothing
        sweep = Sweep(self._holding, policy or Retention(), dry_run=dry_run, tell=tell)
        place = Path(archive) if archive is not None else None
        if place is not None:
            self._may_be_written_in_the_clear(plain)
        return sweep.run(place, VERSION, compact=compact)
