"""Tasks beside each other: where they part, what each came to, and what it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.comparing.aligning import Alignment, align_all
from holdfast.comparing.made import ran
from holdfast.comparing.sides import Figures, figures
from holdfast.differences.differing import Diff, diff
from holdfast.errors import BadInput, HoldfastError, TaskBusy
from holdfast.history import newest_state
from holdfast.known import Known
from holdfast.news import pause
from holdfast.snapshots import Snapshot, snapshot_of
from holdfast.store import Store
from holdfast.words import checked_id, must_be_texts

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_MOST = 20
_MOMENT_S = 0.05


class Comparison(Struct, frozen=True):
    """Tasks beside each other; each but the first is held against the first one."""

    ids: tuple[str, ...]
    alignments: tuple[Alignment, ...]
    """Call by call, with the first divergence."""
    figures: tuple[Figures, ...]
    knows: tuple[Diff, ...]
    """How what they know in the end differs from what the first one knows, its calls left out."""
    types: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether none of them diverges from the first."""
        return all(alignment.first is None for alignment in self.alignments)


def compare(store: Store, ids: Sequence[str]) -> Comparison:
    """Compare two tasks or more."""
    if len(ids) < 2 or len(set(ids)) != len(ids):
        raise BadInput(f"compare() takes two tasks or more, and each once, not {list(ids)!r:.200}")
    if len(ids) > _MOST:
        raise BadInput(f"compare() takes at most {_MOST} tasks, not {len(ids)}")
    views = [Known(store, newest_state(store, checked_id(id))) for id in ids]
    known = [_known(snapshot_of(store, view.state, None, None, view.seq)) for view in views]
    return Comparison(
        tuple(ids),
        align_all([ran(view.state, view.value) for view in views]),
        tuple(figures(view.state, view.value) for view in views),
        tuple(diff(known[0], each) for each in known[1:]),
        tuple(view.type for view in views),
    )


def _known(snapshot: Snapshot) -> dict[str, Any]:
    return {name: value for name, value in snapshot.comparable().items() if name != "calls"}


class Variant(Struct, frozen=True):
    """One of the ways that an experiment went: the fork, and how it ended."""

    name: str
    id: str
    result: Any = None
    problem: str = ""
    """Why it has no result: it failed, waits, or could not be made."""


class Experiment(Struct, frozen=True):
    """Forks of one task at one place that went different ways, beside each other."""

    original: str
    variants: tuple[Variant, ...]
    comparison: Comparison


def experiment(
    hf: Holdfast,
    id: str,
    variants: Mapping[str, Mapping[str, Any]],
    fork: Mapping[str, Any],
    progress: Callable[[Variant], None] = lambda variant: None,
    at_once: int = 4,
) -> Experiment:
    """Fork a task once for each variant, run them side by side, and compare them."""
    if not variants or not isinstance(variants, Mapping):
        raise BadInput("experiment() takes a dict of variants by name: what is to be other in each")
    for name, given in variants.items():
        must_be_texts("experiment()", name=name)
        if not isinstance(given, Mapping):
            raise BadInput(f"experiment(): variant {name!r} must be a dict, not {given!a:.60}")
    if len(variants) >= _MOST:
        raise BadInput(f"experiment() takes at most {_MOST - 1} variants, not {len(variants)}")
    made = _made(hf, id, variants, {"because": "", **fork})

    def run(name: str) -> Variant:
        try:
            _drive(hf, made[name])
            done = Variant(name, made[name], hf.task(made[name]).result)
        except HoldfastError as error:
            done = Variant(name, made[name], problem=str(error))
        progress(done)
        return done

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        ended = tuple(pool.map(run, variants))
    return Experiment(id, ended, compare(hf.store, [id, *made.values()]))


def _drive(hf: Holdfast, id: str) -> None:
    """Run a fork to its end; where a worker was quicker, wait for what it makes of it."""
    while True:
        try:
            hf.resume(id)
            return
        except TaskBusy:
            pause(hf.store, _MOMENT_S)


def _made(
    hf: Holdfast, id: str, variants: Mapping[str, Mapping[str, Any]], fork: Mapping[str, Any]
) -> dict[str, str]:
    """The forks, by name. All are made before the first one runs, and a mistake in one leaves none
    that would run."""
    made: dict[str, str] = {}
    try:
        for name, given in variants.items():
            because = f"variant {name}" + (f": {fork['because']}" if fork["because"] else "")
            made[name] = hf.fork(id, **{**fork, "because": because, **given}).id
    except BaseException:
        for other in made.values():
            hf.cancel(other, because="the experiment that it was made for was given up")
        raise
    return made
