"""Rows in batches: read from where one stopped, and each in the output once."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadInput, Holdfast, TaskFailed
from holdfast.workspace.batches import BadRow, Processed, Rows, process, rows
from tests.flavors import Crash, Flavor, Ready


@pytest.fixture(params=["sync", "async"])
def flavor(request: Any) -> Flavor:
    return Flavor(request.param)


def written(tmp_path: Path, data: str | bytes, name: str = "in.csv") -> Path:
    (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return tmp_path / name


def all_of(source: Rows) -> tuple[list[Any], list[int], list[BadRow]]:
    place, found, lines, bad = source.begin(), [], [], []
    while not place.at_end:
        batch = source.after(place)
        assert len(batch.rows) + len(batch.bad) <= source.batch
        found += batch.rows
        lines += batch.lines
        bad += batch.bad
        place = batch.place
    return found, lines, bad


@pytest.mark.parametrize("batch", [1, 2, 100])
@pytest.mark.parametrize(
    ("data", "expected", "lines"),
    [
        ("a,b\n1,2\n3,4\n", [("1", "2"), ("3", "4")], [2, 3]),
        ("\ufeffa,b\r\n1,2\r\n", [("1", "2")], [2]),
        ("a,b\n1,2", [("1", "2")], [2]),
        ('a,b\n"x\ny","""q"""\n\n3,4\n', [("x\ny", '"q"'), ("3", "4")], [2, 5]),
        ('"a","b"\n"1,1",\n', [("1,1", "")], [2]),
        ("a,b\nü,✓\n", [("ü", "✓")], [2]),
        ("a,b\n", [], []),
    ],
)
def test_csv_is_read_as_it_is_meant(
    tmp_path: Path, batch: int, data: str, expected: list[tuple[str, str]], lines: list[int]
) -> None:
    found = all_of(rows(written(tmp_path, data), batch=batch))
    assert found == ([{"a": a, "b": b} for a, b in expected], lines, [])


@given(
    st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0\r"))] * 2)),
    st.integers(1, 5),
)
def test_whatever_csv_writes_is_read_from_any_place(
    tmp_path_factory: Any, table: list[tuple[str, str]], batch: int
) -> None:
    out = io.StringIO()
    csv.writer(out).writerows([("a", "b"), *table])
    path = written(tmp_path_factory.mktemp("rows"), out.getvalue())
    found, _, bad = all_of(rows(path, batch=batch))
    assert not bad
    assert [(row["a"], row["b"]) for row in found] == table


def test_json_lines_are_read_with_their_types(tmp_path: Path) -> None:
    path = written(tmp_path, '\ufeff{"a": 1}\n\n[2]\r\nnull\n"x"', "in.jsonl")
    assert all_of(rows(path, "jsonl", batch=2)) == ([{"a": 1}, [2], "x"], [1, 3, 5], [])


BAD: dict[str, tuple[str, bytes, list[int], list[tuple[int, str]]]] = {
    "fields": ("csv", b"a,b\n1,2\n1\n1,2,3\n3,4\n", [2, 5], [(3, "1 fields"), (4, "3 fields")]),
    "quote": ("csv", b'a,b\n"1"x,2\n3,4\n', [3], [(2, "expected after")]),
    "open": ("csv", b'a,b\n1,2\n"1,2\n3,4\n5,6\n', [2, 4, 5], [(3, "unexpected end")]),
    "bytes": ("csv", b"a,b\n\xff,2\n3,4\n", [3], [(2, "can't decode")]),
    "json": ("jsonl", b'{"a":1}\n{"a":\n[1]\nNaN\n\xff\n', [1, 3],
             [(2, "Expecting value"), (4, "NaN is no number"), (5, "can't decode")]),
}  # fmt: skip


@pytest.mark.parametrize("batch", [1, 2, 100])
@pytest.mark.parametrize("kind", BAD)
def test_a_row_that_makes_no_sense_is_named_by_its_line(
    tmp_path: Path, kind: str, batch: int
) -> None:
    format, data, good, expected = BAD[kind]
    path = written(tmp_path, data, f"in.{format}")
    source: Any = rows
    found, lines, bad = all_of(source(path, format, batch, on_error="skip"))
    assert (lines, len(found)) == (good, len(good))
    assert [row.line for row in bad] == [line for line, _ in expected]
    for row, (_, why) in zip(bad, expected, strict=True):
        assert why in row.why
    with pytest.raises(BadInput, match=rf"in\.{format}, line {expected[0][0]}: .*{expected[0][1]}"):
        all_of(source(path, format, batch))


def test_columns_may_be_given_and_have_to_be_distinct(tmp_path: Path) -> None:
    path = written(tmp_path, "1;2\n3;4\n")
    found, _, _ = all_of(rows(path, columns=("a", "b"), delimiter=";"))
    assert found == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    for data in ("a,a\n1,2\n", "", "a,\n1,2\n", '"a\n'):
        with pytest.raises(BadInput, match="columns"):
            rows(written(tmp_path, data)).begin()


@pytest.mark.parametrize(
    "options", [{"format": "xml"}, {"batch": 0}, {"on_error": "cry"}, {"delimiter": ""}]
)
def test_options_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        rows("in.csv", **options)


def test_a_file_that_changed_is_noticed_and_one_that_was_copied_is_not(tmp_path: Path) -> None:
    path = written(tmp_path, "a\n1\n2\n3\n")
    source = rows(path, batch=1)
    place = source.after(source.begin()).place
    os.utime(path, (0, 0))
    assert source.after(place).rows == [{"a": "2"}]
    written(tmp_path, "a\n9\n2\n3\n")
    with pytest.raises(BadInput, match=r"has changed since.*holds something else.*up to line 2"):
        source.after(place)
    written(tmp_path, "a\n1\n2\n3\n4\n")
    with pytest.raises(BadInput, match=r"had 8 bytes, and has 10 now"):
        source.after(place)
    path.unlink()
    with pytest.raises(BadInput, match="can't be read"):
        source.after(place)


def table(count: int) -> str:
    return "n,text\n" + "".join(f'{n},"row\n{n}"\n' for n in range(count))


@pytest.mark.parametrize("into", ["out.csv", "out.jsonl"])
def test_each_row_is_in_the_output_once_and_in_order_whatever_happens(
    tmp_path: Path, flavor: Flavor, into: str
) -> None:
    path = written(tmp_path, table(25))
    worked: list[int] = []
    crashes = {3, 4, 11, 24}

    @flavor.step
    async def work(row: dict[str, str]) -> dict[str, Any]:
        n = int(row["n"])
        worked.append(n)
        if n in crashes:
            crashes.remove(n)
            raise Crash
        return {"n": n, "twice": 2 * n, "text": row["text"]}

    @flavor.task
    async def job() -> int:
        plain = getattr(work, "plain", work)
        done = process(rows(path, batch=4), plain, into=into, workers=2)
        return (await (done if flavor.is_async else Ready(done))).rows  # type: ignore[misc]

    for _ in range(4):
        with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
            hf.run(job, id="t")
    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(job, id="t") == 25
        text = hf.files("t").read_text(into)
        assert hf.verify().sound
    expected = [{"n": n, "twice": 2 * n, "text": f"row\n{n}"} for n in range(25)]
    if into.endswith(".jsonl"):
        assert [json.loads(line) for line in text.splitlines()] == expected
    else:
        found = list(csv.DictReader(io.StringIO(text, newline="")))
        assert found == [{key: str(value) for key, value in row.items()} for row in expected]
    assert len(worked) <= 25 + 4 * 2, "what was done was not done again"


def test_what_is_left_out_is_told(tmp_path: Path, flavor: Flavor) -> None:
    path = written(tmp_path, "n\n1\n2\n3,x\n4\n5\n6\n")

    @flavor.step
    async def work(row: dict[str, str]) -> dict[str, str] | None:
        if row["n"] == "4":
            raise ValueError("four is no number")
        return None if row["n"] == "2" else row

    @flavor.task
    async def job() -> Processed:
        plain = getattr(work, "plain", work)
        source = rows(path, batch=4, on_error="skip")
        done = process(source, plain, into="out.csv", tolerate=1)
        return await (done if flavor.is_async else Ready(done))  # type: ignore[misc]

    with Holdfast("memory://") as hf:
        done = hf.run(job, id="t")
        assert (done.rows, done.left_out, done.failed, done.skipped) == (3, 1, 1, 1)
        assert hf.run(job, id="t") == done
        assert hf.files("t").read_text("out.csv") == "n\n1\n5\n6\n"
        told = hf.files("t").read_text("out.csv.skipped.jsonl").splitlines()
        assert [json.loads(line) for line in told] == [
            {"line": 4, "why": "it has 2 fields, and there are 1 columns"},
            {"line": 5, "why": "ValueError: four is no number"},
        ]


def test_a_changed_file_stops_the_task_and_the_old_one_lets_it_go_on(tmp_path: Path) -> None:
    flavor = Flavor("sync")
    path = written(tmp_path, table(6))
    shutil.copy(path, tmp_path / "kept.csv")
    crash = [True]

    def work(row: dict[str, str]) -> dict[str, str]:
        if row["n"] == "3" and crash:
            crash.pop()
            raise Crash
        return row

    @flavor.task
    async def job() -> int:
        return process(rows(path, batch=2), work, into="out.csv").rows

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(job, id="t")
        path.write_text(table(7))
        with pytest.raises(BadInput, match="has changed since its rows were begun"):
            hf.run(job, id="t")
        path.unlink()
        with pytest.raises(BadInput, match="can't be read"):
            hf.run(job, id="t")
        shutil.copy(tmp_path / "kept.csv", path)
        assert hf.run(job, id="t") == 6
        assert hf.files("t").read_text("out.csv") == table(6)


@pytest.mark.parametrize(
    ("result", "why"),
    [(["n"], "has to be a dict"), ({"m": "1"}, "has the keys"), ({"n": "1", "m": 2}, "the keys")],
)  # fmt: skip
def test_what_does_not_fit_the_columns_is_named_by_its_line(
    tmp_path: Path, result: Any, why: str
) -> None:
    flavor = Flavor("sync")
    path = written(tmp_path, "n\n1\n2\n")

    def work(row: dict[str, str]) -> Any:
        return result if row["n"] == "2" else row

    @flavor.task
    async def job() -> int:
        return process(rows(path), work, into="out.csv").rows

    with Holdfast("memory://") as hf, pytest.raises(TaskFailed, match=f"line 3: .*{why}"):
        hf.run(job, id="t")


def test_a_name_without_a_format_is_refused(tmp_path: Path) -> None:
    flavor = Flavor("sync")
    path = written(tmp_path, "n\n1\n")

    @flavor.task
    async def job() -> int:
        return process(rows(path), lambda row: row, into="out.xml").rows

    with Holdfast("memory://") as hf, pytest.raises(TaskFailed, match=r"ends in \.csv or \.jsonl"):
        hf.run(job, id="t")


def test_other_columns_on_a_replay_are_noticed(tmp_path: Path) -> None:
    flavor = Flavor("sync")
    path = written(tmp_path, "1\n2\n3\n")
    crash, columns = [True], ["n"]

    def work(row: dict[str, str]) -> dict[str, str]:
        if crash and "2" in row.values():
            crash.pop()
            raise Crash
        return row

    @flavor.task
    async def job() -> int:
        source = rows(path, batch=2, columns=tuple(columns))
        return process(source, work, into="out.csv").rows

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(job, id="t")
        columns[0] = "m"  # too late: what the file is was recorded before its first row
        assert hf.run(job, id="t") == 3
        assert hf.files("t").read_text("out.csv") == "n\n1\n2\n3\n"
