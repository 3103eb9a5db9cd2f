"""What `Holdfast` has for time travel: replays, forks and rewinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Struct

from holdfast.core.events import Effects
from holdfast.core.words import checked_id
from holdfast.engines.holding import Holding
from holdfast.engines.local.driving import Driving
from holdfast.views.task import TaskView, view_task

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast
    from holdfast.history.compare.comparison import Comparison, Experiment, Variant
    from holdfast.history.replay import Replayed
    from holdfast.history.rewinds import Effect
    from holdfast.history.snapshots import Snapshot
    from holdfast.log.past import When


class Rewind(Struct, frozen=True):
    """A task that was put back, and what it had done outside since then."""

    task: TaskView
    effects: tuple[Effect, ...]


class Travelling:
    """The part of `Holdfast` that goes back in time, and another way."""

    _holding: Holding
    _driving: Driving

    def snapshot(
        self,
        id: str,
        step: str | int | None = None,
        when: When | None = None,
        *,
        seq: int | None = None,
    ) -> Snapshot:
        """What a task knew before a step (or `after` it), or after the event `seq`; at its end, if
        no place is named.

        As `hf.task(id).at(…)`, but nothing more is read than it takes: quick in a long log, and
        also where a log is damaged further on.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def count_beds(room: str) -> int:
        ...     return 2
        >>> @task
        ... def beds_of(room: str) -> int:
        ...     return count_beds(room)
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(beds_of, "attic", id="beds-1")
        ...     hf.snapshot("beds-1", 1, "after").content["calls"]["1"]["output"]
        2
        """
        from holdfast.history.snapshots import snapshot_of
        from holdfast.log.past import known_state

        store = self._holding.store
        state = known_state(store, checked_id(id))
        if step is None and seq is None:
            seq = state.seq
        return snapshot_of(store, state, step, when, seq)

    def fork(
        self,
        id: str,
        *,
        at: str | int | None = None,
        effects: Effects,
        when: When | None = None,
        seq: int | None = None,
        new_id: str | None = None,
        results: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
        state: Any = UNSET,
        task: Callable[..., Any] | str | None = None,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        stubs: Mapping[str, Any] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        by: str = "",
        because: str = "",
    ) -> TaskView:
        """A new task that shares the past of another one up to a step, and goes its own way.

        It leaves `before` the step `at` (or `after` it), or after the event `seq`. Nothing is
        copied, and nothing is run: `hf.resume(view.id)` does that, or a worker. `effects` says what
        becomes of the tools it calls then: `live`, they are called; `reuse`, one that the original
        called with the same arguments is answered by what it returned; `stub`, none is called, and
        one that is neither in the original nor in `stubs` stops the task.

        What can be other: `results` of steps before the fork, by path; `input`, arguments of the
        task; `state`, that of the last checkpoint; `task`, the function; `arguments` of steps
        after the fork, by the name of the step (`{"ask_model": {"model": "other"}}`); and `stubs`,
        what steps and tools return without being called, by name.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def guess_price(room: str) -> int:
        ...     return 120
        >>> @task
        ... def quote_for(room: str) -> str:
        ...     return f"{room}: {guess_price(room)}"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(quote_for, "attic", id="quote-1")
        ...     fork = hf.fork("quote-1", at=1, results={"1": 95}, effects="live")
        ...     hf.resume(fork.id), hf.task("quote-1").result
        ('attic: 95', 'attic: 120')
        """
        from holdfast.history import forks as forking

        wanted = forking.WantedFork(
            at=at,
            when=when,
            seq=seq,
            effects=effects,
            new_id=new_id,
            user=user,
            labels=labels,
            by=by,
            because=because,
        )
        changes = forking.ForkChanges(
            input=input or {},
            results=forking.by_path(results or {}),
            state=state,
            task=task,
            arguments=arguments or {},
            stubs=stubs or {},
        )
        return TaskView(self._holding.store, forking.fork(self._holding, id, wanted, changes))

    def compare(self, *ids: str) -> Comparison:
        """Two tasks or more beside each other: call by call up to where they first differ, and
        what each came to, took and cost.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def price_of_room(room: str) -> int:
        ...     return 120
        >>> @task
        ... def offer_for(room: str) -> str:
        ...     return f"{room}: {price_of_room(room)}"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(offer_for, "attic", id="offer-1")
        ...     fork = hf.fork("offer-1", at=1, results={"1": 95}, effects="live")
        ...     _ = hf.resume(fork.id)
        ...     first = hf.compare("offer-1", fork.id).alignments[0].first
        >>> first.path, first.what, first.a.output, first.b.output
        ('1', 'another result', 120, 95)
        """
        from holdfast.history.compare.comparison import compare

        return compare(self._holding.store, ids)

    def experiment(
        self,
        id: str,
        variants: Mapping[str, Mapping[str, Any]],
        *,
        progress: Callable[[Variant], None] = lambda variant: None,
        **fork: Any,
    ) -> Experiment:
        """Fork a task at one place several times, run the forks side by side, and compare them.

        `variants` says by name what is to be other in each, as arguments of `fork`; what they have
        in common is given once. All are made before the first one runs.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def answer_by(question: str, model: str = "small") -> str:
        ...     return f"{model} says 42"
        >>> @task
        ... def one_question(question: str) -> str:
        ...     return answer_by(question)
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(one_question, "why?", id="question-1")
        ...     large = {"arguments": {"answer_by": {"model": "large"}}}
        ...     done = hf.experiment("question-1", {"large": large}, at=1, effects="live")
        >>> [(variant.name, variant.result) for variant in done.variants]
        [('large', 'large says 42')]
        """
        from holdfast.history.compare.comparison import experiment

        return experiment(cast("Holdfast", self), id, variants, fork, progress)

    def replay(
        self,
        id: str,
        *,
        start: str | int | None = None,
        to: str | int | None = None,
        stubs: Mapping[str, Any] | None = None,
        on_reached: Callable[[], bool] | None = None,
    ) -> Replayed:
        """Run the code that is loaded over the log of a task, with no effect at all.

        Recorded calls answer from the log, and nothing is written; only the code between the
        calls runs. It begins at the task's beginning, or before the step `start` with what was
        known there, and goes on to the end of the log, or to the call `to`. A call that is not
        recorded stops it.

        `stubs` answer, by name, instead of the log: with a value, with what a function returns for
        the arguments, or for real, with `REAL` of `history.replay`. `on_reached` is called where
        the code makes the call `to`, and returns whether to go on.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def measure_length(text: str) -> int:
        ...     return len(text)
        >>> @task
        ... def measured(text: str) -> str:
        ...     return f"{measure_length(text)} letters"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(measured, "attic", id="measured-1")
        ...     as_recorded = hf.replay("measured-1")
        ...     other = hf.replay("measured-1", stubs={"measure_length": 9})
        >>> as_recorded.same, as_recorded.result, other.same, other.result
        (True, '5 letters', False, '9 letters')
        """
        from holdfast.history.replay.running import WantedReplay, replay

        wanted = WantedReplay(start=start, to=to, stubs=stubs or {}, on_reached=on_reached)
        return replay(self._holding, id, wanted)

    def rewind(
        self,
        id: str,
        *,
        to: str | int | None = None,
        when: When | None = None,
        seq: int | None = None,
        undo: bool = False,
        effects: Effects = "reuse",
        by: str = "",
        because: str = "",
    ) -> Rewind:
        """Put a task back to before a step (or after it): state, conversation and files as one.

        Nothing is deleted: an event says so, and a rewind can be rewound. What the task did
        outside since then is returned; with `undo` what has an undo is undone first. The task is
        paused then, and `hf.resume(id)` goes on from there. A tool that it calls again with the
        same arguments is answered by what it returned before, unless that was undone, or `effects`
        is `live`.

        >>> from holdfast import Holdfast, step, task
        >>> rolls = iter([1, 6])
        >>> @step
        ... def roll_once() -> int:
        ...     return next(rolls)
        >>> @task
        ... def game() -> int:
        ...     return roll_once()
        >>> with Holdfast("memory://") as hf:
        ...     first = hf.run(game, id="game-1")
        ...     status = hf.rewind("game-1", to=1).task.status
        ...     first, status, hf.resume("game-1")
        (1, 'paused', 6)
        """
        from holdfast.history import rewinds as rewinding

        wanted = rewinding.WantedRewind(
            to=to, when=when, seq=seq, undo=undo, effects=effects, by=by, because=because
        )
        done = rewinding.rewind(self._driving, id, wanted)
        return Rewind(view_task(self._holding.store, id), done)
