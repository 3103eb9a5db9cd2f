"""Try to lose what was acknowledged. Everything here is real but the modelled crashes.

    python -m tests.torture                           until each part has made its rounds
    python -m tests.torture --minutes 30 --seed 7     for half an hour, from a given seed
    python -m tests.torture --only "power cuts"       the parts with this in their name
    python -m tests.torture --bounded                 a few rounds of each, as in `make test`

The seed says what is written and when it is interrupted; how far a process gets until then is up to
the machine, so a seed narrows a failure down and does not always repeat it.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import signal
import sys
import time
from contextlib import closing
from typing import Any

from tests.thorough import THOROUGH
from tests.torture.parts import Part, parts


def main(argv: list[str]) -> int:
    """Run the parts, and say what they found."""
    given = _arguments(argv)
    logging.disable(logging.CRITICAL)  # connections that are cut say so, and that is the point
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # and unmount on the way
    named = [part for part in parts() if given.only in part.name]
    chosen = [part for part in named if given.only == part.name] or named
    print(f"seed {given.seed}", flush=True)
    share_s = given.minutes * 60 / max(1, len(chosen)) if given.minutes else None
    found = [_run(part, given.seed, share_s, given.bounded) for part in chosen]
    if given.json:
        with open(given.json, "w") as out:
            json.dump({"seed": given.seed, "parts": found}, out, indent=1)
    bad = [part["part"] for part in found if not part["passed"]]
    print(f"seed {given.seed}: {f'FAILED: {bad}' if bad else 'nothing acknowledged was lost'}")
    return 1 if bad or not found else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", default=secrets.token_hex(4), help="where chance begins")
    parser.add_argument("--minutes", type=float, default=0, help="how long to run")
    parser.add_argument("--only", default="", metavar="TEXT", help="the parts that are named so")
    parser.add_argument("--bounded", action="store_true", help="only a few rounds of each part")
    parser.add_argument("--json", metavar="FILE", help="write what was found to a file as well")
    return parser.parse_args(argv)


class Tally:
    """What a part has come to so far."""

    def __init__(self, part: Part, goal: int, share_s: float | None) -> None:
        self.part = part
        self.goal = goal
        self.counts = {"rounds": 0, "broken": 0}
        self.examples: list[str] = []
        self._share_s = share_s
        self._began = time.monotonic()

    @property
    def spent_s(self) -> float:
        return round(time.monotonic() - self._began, 1)

    def add(self, result: Any) -> None:
        self.counts["rounds"] += 1
        self.counts["broken"] += bool(result.broken)
        for name in ("acknowledged", "zombies", "stuck", "refused", "bodies", "late", "overtaken"):
            if hasattr(result, name):
                self.counts[name] = self.counts.get(name, 0) + getattr(result, name)
        self.examples += result.broken[: max(0, 5 - len(self.examples))]

    def is_over(self) -> bool:
        if self.part.has_bug and self.counts["broken"]:
            return True
        if self._share_s is not None and not self.part.has_bug:
            return self.spent_s > self._share_s
        return self.counts["rounds"] >= self.goal

    def passed(self) -> bool:
        return bool(self.counts["broken"]) == self.part.has_bug


def _run(part: Part, seed: str, share_s: float | None, bounded: bool) -> dict[str, Any]:
    """One part, until it has made its rounds or its time is up."""
    if why := part.why_not():
        print(f"  {part.name:<52} skipped: {why}", flush=True)
        return {"part": part.name, "skipped": why, "passed": True}
    few = part.bounded if THOROUGH or part.has_bug else -(-part.bounded // 3)
    tally = Tally(part, few if bounded else part.goal, share_s)
    results: Any = part.run(f"{seed} {part.name}")
    with closing(results):
        for result in results:
            tally.add(result)
            if tally.is_over():
                break
            _show(tally)
    _show(tally, f" in {tally.spent_s} s, {_verdict(part, tally.passed())}\n")
    for example in tally.examples if not tally.passed() else []:
        print(f"      {example}", flush=True)
    found = {"seconds": tally.spent_s, "passed": tally.passed(), "examples": tally.examples}
    return {"part": part.name, **tally.counts, **found}


def _verdict(part: Part, passed: bool) -> str:
    if part.has_bug:
        return "caught" if passed else "NOT CAUGHT"
    return "ok" if passed else "BROKEN"


_shown_at = 0.0


def _show(tally: Tally, end: str = "") -> None:
    global _shown_at
    if not end and (not sys.stdout.isatty() or time.monotonic() - _shown_at < 0.2):
        return
    _shown_at = time.monotonic()
    numbers = ", ".join(f"{number:,} {name}" for name, number in tally.counts.items())
    start = "\r" if sys.stdout.isatty() else ""
    text = f"{start}  {tally.part.name:<52} {numbers}{end or f' (of {tally.goal:,})'}"
    print(text, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
