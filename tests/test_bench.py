"""The measurements of `make bench`: not how fast anything is, but that no figure is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import aims, figures
from bench.aims import Found
from bench.figures import Case, Figure, at_least, at_most, in_turn, of
from bench.running import Failed, child


def found() -> Found:
    met, missed = at_most("short", "s", 1.0), at_least("many", "steps/s", 100)
    met.found, missed.found = [0.5, 0.4, 0.9], [50.0]
    lost, other = at_most("lost", "MB", 3), of("Absurd: the same", "s")
    lost.failed, other.found = "Traceback\n  the server did not start", [2.0]
    return Found([met, missed, lost], [other], 11.0, 0.5, 0.02)


def test_a_failed_measurement_loses_its_own_line_only() -> None:
    def fails(which: int) -> Sequence[float]:
        raise Failed("no server")

    good, bad = of("good", "s"), of("bad", "s")
    in_turn([Case([bad], fails, 3), Case([good], lambda which: [which], 3)])
    assert (good.found, good.failed) == ([0, 1, 2], "")
    assert (bad.found, bad.failed) == ([], "no server")


def test_each_round_begins_with_another_case() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        def measure(which: int) -> Sequence[float]:
            order.append(f"{name}{which}")
            return [0.0]

        return Case([of(name, "s")], measure, 2)

    in_turn([case("a"), case("b"), case("c")])
    assert order == ["a0", "b0", "c0", "b1", "c1", "a1"]


def test_what_failed_in_a_process_of_its_own_is_said() -> None:
    with pytest.raises(Failed, match="unknown"):
        child("bench.child", "raw", "1", "unknown", "unknown")
    missing = child("bench.child", "nobody", "1", "/")
    assert "nobody" in missing["missing"]


def test_queues_have_a_figure_for_each_of_their_aims(tmp_path: Path) -> None:
    rates = [
        child("bench.queues", "drive", kind, "2", str(tmp_path))["tasks_per_s"]
        for kind in ("no queue", "a queue", "all limits")
    ]
    line = child("bench.queues", "line", "12", str(tmp_path))
    assert min(*rates, line["start_ms"], line["take_ms"]) > 0
    options = SimpleNamespace(quick=True, rounds=3)
    limits, growth = aims.queues(options, lambda medium: str(tmp_path))
    assert [each.aim for each in (*limits.figures, *growth.figures)] == [0.8, None, 1.5, 1.5]
    assert "queues" in aims.PARTS


def test_the_table_says_the_spread_and_which_aims_are_missed() -> None:
    lines = figures.table(found().aims).splitlines()
    assert lines[2:] == [
        "| short | ≤ 1 s | 0.5 (0.4–0.9) | yes |",
        "| many | ≥ 100 steps/s | 50 | no: 2× |",
        "| lost | ≤ 3 MB | not measured: the server did not start | – |",
    ]


def test_the_page_gets_the_tables_between_its_marks_and_nothing_else_changes(
    tmp_path: Path,
) -> None:
    page = tmp_path / "benchmarks.md"
    begins, ends = "<!-- aims: made by `make bench` -->", "<!-- aims end -->"
    page.write_text(f"before\n{begins}\nstale\n{ends}\nafter\n")
    options = SimpleNamespace(rounds=3, steps=2000)
    for _ in range(2):
        aims.write(found(), options, page, tmp_path)
    text = page.read_text()
    assert text.startswith(f"before\n{begins}\n") and text.endswith(f"{ends}\nafter\n")
    assert "stale" not in text and text.count("| short |") == 1
    assert "1 of 3 aims are met; 1 figures could not be measured." in text
    assert "load was 0.5" in text and "other work took 2%" in text
    assert (tmp_path / "aims.svg").read_text().count("<rect") == 3


def test_a_page_without_the_marks_is_left_alone_and_the_figures_are_told(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("no marks\n")
    with pytest.raises(Failed, match=r"\| short \|"):
        aims.write(found(), SimpleNamespace(rounds=3, steps=2000), page, tmp_path)
    assert page.read_text() == "no marks\n"


def test_a_picture_shows_no_markup_of_what_it_is_told() -> None:
    drawn = figures.picture_of_others("title", [Figure("a < b & `c`", "×", found=[1.0])])
    assert "a &lt; b &amp; c" in drawn
