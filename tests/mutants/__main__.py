"""Change the core at random, one line at a time, and see whether a test notices.

    python -m tests.mutants                        100 changes, by a seed of today
    python -m tests.mutants --seed 7 --count 20    these twenty, the same each time
    python -m tests.mutants --only stores/disk     changes to the files with this in their path

A change that no test notices is a hole in the tests, or makes no difference: `mutants.toml` names
those that make none, with the reason, and they are left out. The tests of a line are found by
running all of them once under coverage, which takes as long as `make test`; later only new and
changed test files are run, or all of them if you ask for that (`--anew`). Then each mutant gets the
tests of its line: first the files that test little else, then the rest, the fastest first. A mutant
is killed by a test that fails, passes without the mutant, and fails with it once more: a busy
machine kills none. It also spares some: one that lives because the time was up is tried once more,
for longer, and marked if it lives still.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import secrets
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.mutants.mapping import Map
from tests.mutants.mutating import Mutant, mutants_of
from tests.mutants.trees import HERE, Tree, Tried

_AT_ONCE = 2
_CLOSE_FILES = 4
_LONGER = 5
"""A mutant that lives because the time was up is tried once more, for so many times as long."""

T = TypeVar("T")
R = TypeVar("R")


class Verdict(NamedTuple):
    mutant: Mutant
    killed_by: str | None
    ran: int
    of: int

    @property
    def out_of_time(self) -> bool:
        """Whether it lives because not all of its tests had a turn: a hole is not proven."""
        return self.killed_by is None and self.ran < self.of

    def __str__(self) -> str:
        if self.killed_by is not None:
            return f"{self.mutant} killed by {self.killed_by}"
        tests = f"{self.ran} of {self.of} tests"
        return f"{self.mutant} {'RAN OUT OF TIME' if self.out_of_time else 'SURVIVED'} ({tests})"


def main(argv: list[str]) -> int:
    """Draw mutants, try to kill each, and say which survived."""
    given = _arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    plan = Plan(given.root, tomllib.loads(given.config.read_text()))
    fresh, equivalent = plan.mutants(given.only)
    chosen = plan.drawn(fresh, given.seed, given.count)
    print(f"seed {given.seed}: {len(chosen)} of {len(fresh):,} mutants", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as place, Pool(given.root, place) as pool:
        known = plan.map(given.root / "build/mutants")
        _complete(known, pool, anew=given.anew)
        verdicts = list(_tried(pool, plan, known, chosen, given))
    return _report(given, verdicts, equivalent)


def _arguments(argv: list[str]) -> argparse.Namespace:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", default=secrets.token_hex(4), help="where chance begins")
    parser.add_argument("--count", type=int, default=100, help="how many mutants")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="of paths that have this in them"
    )
    parser.add_argument("--bound-s", type=float, default=30, help="the time for one mutant's tests")
    parser.add_argument("--hang-s", type=float, default=20, help="the time for one test, at least")
    parser.add_argument("--minutes", type=float, default=30, help="begin no mutant after this time")
    parser.add_argument("--least", type=float, default=93, help="the score to reach, in percent")
    parser.add_argument("--anew", action="store_true", help="run all tests to see what they run")
    parser.add_argument("--json", metavar="FILE", help="write what was found to a file as well")
    parser.add_argument("--root", type=Path, default=HERE.parents[1], help="the tree to change")
    parser.add_argument("--config", type=Path, default=HERE / "mutants.toml", help="what is core")
    return parser.parse_args(argv)


class Plan:
    """What `mutants.toml` says."""

    def __init__(self, root: Path, given: dict[str, Any]) -> None:
        self._root = root
        self._skipped = given.get("skipped", "")
        self._rooms = {
            path: self._found(room["tests"])
            for room in given["room"]
            for path in self._found(room["paths"])
        }
        examples = (path for path in self._rooms if ">>> " in (root / path).read_text())
        self._files = [*self._found(given["tests"]), *examples]
        self.equivalent = {
            (one["where"], one["old"], one["new"]): one["reason"]
            for one in given.get("equivalent", ())
        }

    def _found(self, patterns: list[str]) -> list[str]:
        found: dict[str, None] = {}
        for pattern in patterns:
            paths = sorted(self._root.glob(pattern))
            if not paths:
                raise SystemExit(f"mutants.toml names {pattern!r}, and no file matches it")
            found |= dict.fromkeys(str(path.relative_to(self._root)) for path in paths)
        return list(found)

    def mutants(self, only: str) -> tuple[list[Mutant], list[tuple[Mutant, str]]]:
        """Every mutant that a test could notice; and those that none can, with the reason."""
        fresh, equivalent = [], []
        for path in self._rooms:
            for mutant in mutants_of(path, (self._root / path).read_text()):
                key = (mutant.where, mutant.old.strip(), mutant.new.strip())
                if only in path and key in self.equivalent:
                    equivalent.append((mutant, self.equivalent[key]))
                elif only in path:
                    fresh.append(mutant)
        return fresh, equivalent

    def drawn(self, fresh: list[Mutant], seed: str, count: int) -> list[Mutant]:
        """So many of them, by chance."""
        shuffled = random.Random(seed).sample(fresh, len(fresh))
        sound = (one for one in shuffled if one.compiles((self._root / one.path).read_text()))
        return list(islice(sound, count))

    def map(self, kept: Path) -> Map:
        return Map(self._root, kept, list(self._rooms), self._files, self._skipped)

    def tests_of(self, mutant: Mutant, known: Map) -> list[list[str]]:
        """The tests to run, in two lots; those of the room, if none runs the line.

        Most mutants are killed by the tests in the first lot: of the same room, and from the few
        files with the largest share of tests that run the line.
        """
        found = known.of_lines(mutant.path, *mutant.span)
        if not found:
            room = tuple(f"{file}::" for file in self._rooms[mutant.path])
            found = {test for test in known.times if test.startswith(room)}
        in_order = sorted(found, key=lambda test: known.times[test])
        here = Counter(map(_file_of, in_order))
        everywhere = Counter(map(_file_of, known.times))
        close = sorted(here, key=lambda file: here[file] / everywhere[file], reverse=True)
        room_of = mutant.path.split("/")[2:3]
        first = {*close[:_CLOSE_FILES], *(file for file in here if file.split("/")[1:2] == room_of)}
        lots: tuple[list[str], list[str]] = ([], [])
        for test in in_order:
            lots[_file_of(test) not in first].append(test)
        return [lot for lot in lots if lot]


def _file_of(test: str) -> str:
    return test.split("::")[0]


class Pool:
    """Copies of the tree, each used by one at a time."""

    def __init__(self, root: Path, place: str) -> None:
        self._trees = [Tree(root, Path(place, str(number))) for number in range(_AT_ONCE)]
        self._free: queue.Queue[Tree] = queue.Queue()
        for tree in self._trees:
            self._free.put(tree)
        self._threads = ThreadPoolExecutor(_AT_ONCE)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for tree in self._trees:
            tree.close()
        self._threads.shutdown()

    def serve(self, files: Iterable[str], skipped: list[str]) -> None:
        """Have every tree collect the tests of these files."""
        for serving in [self._threads.submit(t.serve, sorted(files), skipped) for t in self._trees]:
            serving.result()

    def each(self, function: Callable[[Tree, T], R], items: Iterable[T]) -> Iterator[R]:
        """Call a function with a tree and each of the items, some at once; as they are done."""

        def call(item: T) -> R:
            tree = self._free.get()
            try:
                return function(tree, item)
            finally:
                self._free.put(tree)

        for done in as_completed([self._threads.submit(call, item) for item in items]):
            yield done.result()


def _complete(known: Map, pool: Pool, *, anew: bool) -> None:
    """Run the test files of which it is not known yet what they run."""
    if missing := known.missing(anew=anew):
        print(f"looking at what the tests of {len(missing)} files run", flush=True)
        began = time.monotonic()
        for spent_s, file in pool.each(known.note, missing):
            print(f"  {file} {spent_s:.0f} s", flush=True)
        print(f"  done in {time.monotonic() - began:.0f} s", flush=True)
    if older := known.read():
        print(f"  {older} files ran older sources; --anew runs them again", flush=True)


def _tried(
    pool: Pool, plan: Plan, known: Map, chosen: list[Mutant], given: argparse.Namespace
) -> Iterator[Verdict]:
    tests = {mutant: plan.tests_of(mutant, known) for mutant in chosen}
    files = {_file_of(test) for lots in tests.values() for lot in lots for test in lot}
    pool.serve(files, known.skipped)
    end = time.monotonic() + given.minutes * 60

    def kill(tree: Tree, mutant: Mutant, bound_s: float = given.bound_s) -> Verdict | None:
        if time.monotonic() > end:
            return None
        lots = [
            {test: given.hang_s + 10 * known.times[test] for test in lot} for lot in tests[mutant]
        ]
        is_sure = not known.is_imported(mutant.path, *mutant.span)
        return _kill(tree, mutant, lots, bound_s, is_sure=is_sure)

    number, unproven = 0, dict[Mutant, Verdict]()
    for verdict in pool.each(kill, chosen):
        if verdict is None:
            continue
        number += 1
        print(f"  {number}/{len(chosen)} {verdict}", flush=True)
        if verdict.out_of_time:
            unproven[verdict.mutant] = verdict
        else:
            yield verdict
    longer = partial(kill, bound_s=_LONGER * given.bound_s)
    for verdict in pool.each(longer, list(unproven)):
        if verdict is not None:
            unproven[verdict.mutant] = verdict
            print(f"  given more time: {verdict}", flush=True)
    yield from unproven.values()


def _kill(
    tree: Tree, mutant: Mutant, lots: list[dict[str, float]], bound_s: float, *, is_sure: bool
) -> Verdict:
    """Run the tests on the mutant: the quick way, and where that is not sure, from nothing."""
    everything = {test: limit for lot in lots for test, limit in lot.items()}
    verdict = _tests_fail(tree, mutant, everything, bound_s, swiftly=True)
    if verdict is not None and (verdict.killed_by or is_sure):
        return verdict
    ran = 0
    for lot in lots:
        verdict = _tests_fail(tree, mutant, lot, bound_s / len(lots), swiftly=False)
        if verdict is not None:
            ran += verdict.ran
            if verdict.killed_by:
                return Verdict(mutant, verdict.killed_by, ran, len(everything))
    return Verdict(mutant, None, ran, len(everything))


def _tests_fail(
    tree: Tree, mutant: Mutant, limits: dict[str, float], bound_s: float, *, swiftly: bool
) -> Verdict | None:
    """Run tests until one is sure to be failed by the mutant. A chance failure says nothing."""
    was = (tree.root / mutant.path).read_text()

    def attempt(tests: dict[str, float], bound_s: float, *, with_it: bool) -> Tried | None:
        with _applied(tree, mutant) if with_it else nullcontext():
            if swiftly:
                return tree.swift(tests, bound_s, mutant.path if with_it else "", was)
            return tree.attempt(tests, bound_s)

    total, ran, until = len(limits), 0, time.monotonic() + bound_s
    while limits:
        tried = attempt(limits, max(0.0, until - time.monotonic()), with_it=True)
        if tried is None:
            return None
        ran += tried.ran
        if tried.failed is None:
            break
        suspect = tried.failed or next(iter(limits))
        alone = {suspect: limits[suspect]}
        without, again = (attempt(alone, limits[suspect], with_it=it) for it in (False, True))
        if without and again and without.failed is None and again.failed is not None:
            return Verdict(mutant, tried.failed or "what can't even begin", ran, total)
        names = list(limits)
        limits = {name: limits[name] for name in names[names.index(suspect) + 1 :]}
    return Verdict(mutant, None, ran, total)


@contextmanager
def _applied(tree: Tree, mutant: Mutant) -> Iterator[None]:
    path = tree.root / mutant.path
    source = path.read_text()
    path.write_text(mutant.applied(source))
    try:
        yield
    finally:
        path.write_text(source)


def _report(
    given: argparse.Namespace, verdicts: list[Verdict], equivalent: list[tuple[Mutant, str]]
) -> int:
    alive = sorted(verdict for verdict in verdicts if verdict.killed_by is None)
    unproven = [verdict for verdict in alive if verdict.out_of_time]
    killed = len(verdicts) - len(alive)
    score = 100 * killed / max(1, len(verdicts))
    print(f"\n{len(equivalent)} mutants are left out, which no test can notice:")
    for mutant, reason in equivalent:
        print(f"  {mutant}\n      {reason}")
    print(f"{len(alive)} were not killed, {len(unproven)} of them because the time was up:")
    for verdict in alive:
        print(f"  {verdict}")
    print(f"seed {given.seed}: {killed} of {len(verdicts)} mutants killed, {score:.1f}%")
    if given.json:
        found = {"seed": given.seed, "score": score, "killed": killed, "tried": len(verdicts)}
        found |= {"survived": [str(verdict.mutant) for verdict in alive if not verdict.out_of_time]}
        found |= {"out_of_time": [str(verdict.mutant) for verdict in unproven]}
        Path(given.json).write_text(json.dumps(found, indent=1))
    return 0 if verdicts and score >= given.least else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
