"""What `Holdfast` tells of what it keeps, byte for byte: artifacts, and whether logs are sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

from holdfast.above import door
from holdfast.artifacts import Artifact, opened
from holdfast.engines.holding import Holding
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.audit import Audit
    from holdfast.listing import Filters
    from holdfast.sql import Rows
    from holdfast.stats import Stats
    from holdfast.usage import Prices
    from holdfast.verify import Head, Verified
    from holdfast.workspace.task_files import TaskFiles


class Inspection:
    """The part of `Holdfast` that looks at what the store has."""

    store: Store
    _holding: Holding

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

    def files(self, id: str, *, at: int | None = None) -> TaskFiles:
        """The files of a task: to be read, and written by people. With `at` as they were then,
        after the event of that number.

        >>> from holdfast import Holdfast, task
        >>> from holdfast.workspace import files
        >>> @task
        ... def letter_to(name: str) -> None:
        ...     files.write("letter.txt", f"Dear {name}")
        >>> with Holdfast("memory://") as hf:
        ...     hf.run(letter_to, "Ada", id="letter-1")
        ...     file = hf.files("letter-1").list()[0]
        ...     _ = hf.files("letter-1").write("letter.txt", "Hi Ada", expected=file.version)
        ...     hf.files("letter-1").read_text("letter.txt")
        'Hi Ada'
        """
        opened: TaskFiles = door("files").TaskFiles(self._holding, id, at)
        return opened

    def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        limit: int | None = None,
        timeout_s: float = 60.0,
        **filters: Unpack[Filters],
    ) -> Rows:
        """What a select finds in the logs: in `tasks`, `steps`, `tool_calls`, `messages`, ….

        It is SQLite's SQL, and only reads. The logs of all tasks are read for it, or with the
        `filters` of `page` those of the tasks that match. `limit` is how many rows are wanted at
        most, `timeout_s` how long the query itself may take. `holdfast.sql.tables` has all tables.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def weigh_for_sql(grams: int) -> int:
        ...     return grams
        >>> @task
        ... def weighing_for_sql(*grams: int) -> int:
        ...     return sum(map(weigh_for_sql, grams))
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(weighing_for_sql, 5, 20, id="weighing-1")
        ...     found = hf.sql("select path, output from steps where output ->> '$' > ?", [10])
        >>> found.columns, found.rows
        (('path', 'output'), (('2', '20'),))
        """
        from holdfast.sql.asking import rows_of

        return rows_of(
            self.store, query, parameters, limit=limit, timeout_s=timeout_s, filters=filters
        )

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

    def audit(self, id: str, *, against: Iterable[Head] = ()) -> Audit:
        """Who did what in a task, when, with which input and output, and whether its log is what
        was written. One that is damaged is told of up to the damage.

        `against` are heads that were noted before, as for `verify`.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def audited_weight(name: str) -> int:
        ...     return 3
        >>> @task
        ... def audited_parcel(name: str) -> int:
        ...     return audited_weight(name)
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(audited_parcel, "books", id="parcel-1", user="ada")
        ...     found = hf.audit("parcel-1")
        >>> found.verification.sound, [entry.what for entry in found.entries]
        (True, ['created', 'claimed', 'called', 'returned', 'task completed'])
        """
        from holdfast.audit import audit

        return audit(self.store, id, datetime.now(UTC), against)

    def stats(
        self,
        *,
        prices: Mapping[str, Prices | tuple[float, float]] | None = None,
        progress: Callable[[int, int, str], None] = lambda done, of, id: None,
        **filters: Unpack[Filters],
    ) -> Stats:
        """Where time, tokens, money and retries went, by type of task and by call, and what was
        saved by resuming: of the tasks that match, as for `page`.

        `prices` are what a million tokens of a model cost (`"*"`: of any other), for calls whose
        cost was not recorded.
        `progress` is told how many tasks were read, of how many, and which comes next.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def count_one(n: int) -> int:
        ...     return n
        >>> @task
        ... def count_some(n: int) -> int:
        ...     return sum(count_one(each) for each in range(n))
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(count_some, 3, id="count-some-1")
        ...     found = hf.stats(type="count_some")
        >>> found.tasks, [(call.name, call.calls, call.retries) for call in found.calls]
        (1, [('count_one', 3, 0)])
        """
        from holdfast.stats import stats

        return stats(self.store, filters, prices or {}, progress)
