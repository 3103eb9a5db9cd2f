"""The index of a folder as one process knows it: which line counts, and when it is made anew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.log import chain
from holdfast.log.verify import verify
from holdfast.stores.files import catalog
from holdfast.stores.files.catalog import (
    INDEX,
    Index,
    IndexEntry,
    _copy,
    _line,
    _newest,
    spoiled,
)
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import _is_due, safe_name
from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Facts


def moment(second: int) -> datetime:
    return datetime(2030, 1, 1, 0, 0, second, tzinfo=UTC)


def entry(stream: str, second: int = 0, size: int = 1) -> IndexEntry:
    return IndexEntry(f"tasks/{stream}", size, Facts("job", "paused", created_at=moment(second)))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def index(root: int) -> Iterator[Index]:
    made = Index(Disk(), root)
    yield made
    made.close()


def test_the_last_line_of_a_stream_counts_and_a_copied_one_only_without_another():
    a, later, gone = entry("a"), entry("a", size=2), IndexEntry("tasks/a")
    for lines, counts in [
        ([a, later], later),
        ([later, a], a),
        ([a, gone], gone),
        ([a, _copy(later)], a),
        ([_copy(later), a], a),
        ([_copy(a), _copy(later)], _copy(later)),
    ]:
        data = b"".join(map(_line, lines))
        assert _newest(data) == {"tasks/a": counts} and spoiled(data) == 0
    good, bad = _line(a), _line(later).replace(b'"size":2', b'"size":3')
    assert _newest(good + bad) == {"tasks/a": a}
    assert _newest(good + bad[:20] + good) == {"tasks/a": a}
    assert _newest(b"nonsense\n{}\n" + bad) == {}
    assert [spoiled(data) for data in (good + bad, bad + bad, b"x\n" + good, good + b"x")] == [
        *(1, 2, 1, 0)
    ]


ODD_NAMES = ("a", 'a"b', "a\\b", 'a","size":9', "é", "a\nb", '"copied":true', "")


@pytest.mark.parametrize("seed", range(40))
def test_the_lines_that_count_are_those_of_a_reader_who_decodes_them_all(seed):
    chance = Random(seed)
    lines = []
    for _ in range(chance.randrange(1, 30)):
        line = _line(entry(chance.choice(ODD_NAMES), size=chance.randrange(5)))
        if chance.random() < 0.4:
            line = _line(_copy(entry(chance.choice(ODD_NAMES), size=chance.randrange(5))))
        if chance.random() < 0.3:  # damaged, or torn
            place = chance.randrange(1, len(line) - 1)
            other = bytes([chance.choice(b'x"\\{0')])
            line = chance.choice((line[:place], line[:place] + other + line[place + 1 :]))
        lines.append(line)
    data = b"".join(lines)
    written: dict[str, IndexEntry] = {}
    copied: dict[str, IndexEntry] = {}
    for line in data.split(b"\n"):
        if line and chain.check(chain.ROOT, line) is not None:
            found = msgspec.json.decode(line, type=IndexEntry)
            (copied if found.copied else written)[found.stream] = found
    assert _newest(data) == {**copied, **written}


def test_each_process_knows_what_the_others_wrote(tmp_path, index, root):
    other = Index(Disk(), root)
    assert index.entries() == {} == other.entries()
    index.note(entry("a"))
    other.note(entry("b"))
    for each in (index, other):
        assert set(each.entries()) == {"tasks/a", "tasks/b"}
    other.note(entry("a", size=7))
    assert index.entries()["tasks/a"].size == 7
    with (tmp_path / INDEX).open("ab") as file:
        line = _line(entry("c"))
        file.write(line[:30])
    assert set(index.entries()) == {"tasks/a", "tasks/b"}
    with (tmp_path / INDEX).open("ab") as file:
        file.write(line[30:])
    assert set(index.entries()) == {"tasks/a", "tasks/b", "tasks/c"}
    other.close()


def test_a_list_is_in_order_and_the_same_object_until_something_changes(index):
    for name, second in (("b", 1), ("a", 3), ("c", 3), ("d", 2)):
        index.note(entry(name, second))
    first = index.newest_first()
    assert [each.stream[-1] for each in first] == ["c", "a", "d", "b"]
    assert index.newest_first() is first
    index.note(IndexEntry("tasks/a"))
    assert [each.stream[-1] for each in index.newest_first()] == ["c", "d", "b"]
    assert index.entries()["tasks/a"].facts is None


def test_a_file_that_was_removed_is_made_again_and_knows_what_is_noted_then(tmp_path, index):
    index.note(entry("a"))
    assert set(index.entries()) == {"tasks/a"}
    (tmp_path / INDEX).unlink()
    index.note(entry("b"))
    assert _newest((tmp_path / INDEX).read_bytes()) == {"tasks/b": entry("b")}
    assert set(index.entries()) == {"tasks/b"}
    (tmp_path / INDEX).unlink()
    assert index.entries() == {} and index.newest_first() == []


def test_in_a_process_that_was_forked_the_file_is_opened_anew(index):
    index.note(entry("a"))
    fd = index._fd
    keep = os.dup(fd)  # so that its number is not given to the next
    try:
        index.start_anew()
        assert index._fd == -1
        assert set(index.entries()) == {"tasks/a"}
        index.close()
        assert index._fd == -1
    finally:
        os.close(keep)


@pytest.mark.parametrize(("lines", "is_rewritten"), [(2, False), (3, True), (20, True)])
def test_an_index_that_says_little_in_many_lines_is_rewritten(
    tmp_path, index, monkeypatch, lines, is_rewritten
):
    monkeypatch.setattr(catalog, "_SPARE_LINES", 2)
    index.entries()
    for number in range(lines):
        index.note(entry("ab"[number % 2], size=number))
    before = (tmp_path / INDEX).stat().st_ino
    newest = {"tasks/a": lines - 1 - (lines % 2 == 0), "tasks/b": lines - 1 - lines % 2}
    for _ in range(2):
        assert {stream: each.size for stream, each in index.entries().items()} == newest
    assert ((tmp_path / INDEX).stat().st_ino != before) is is_rewritten
    data = (tmp_path / INDEX).read_bytes()
    found = _newest(data)
    assert {stream: each.size for stream, each in found.items()} == newest
    assert all(each.copied is is_rewritten for each in found.values())
    assert data.count(b'"stream"') == (2 if is_rewritten else lines)
    assert data.startswith(catalog._PACK) is is_rewritten and spoiled(data) == 0
    assert [path.name for path in tmp_path.iterdir()] == [INDEX], "nothing is left over"
    index.note(entry("a", size=99))
    assert index.entries()["tasks/a"].size == 99


def test_entries_of_a_pack_count_until_their_stream_has_a_line_and_never_if_it_is_spoiled(
    monkeypatch,
):
    monkeypatch.setattr(catalog, "_IN_A_PACK", 2)
    a, b, c, gone = entry("a"), entry("b"), entry("c"), IndexEntry("tasks/b")
    packs = catalog._packed([a, b, c])
    assert len(packs.splitlines()) == 2 and spoiled(packs) == 0
    names = {"tasks/a": _copy(a), "tasks/b": _copy(b), "tasks/c": _copy(c)}
    assert _newest(packs) == names
    late = replace(a, size=2)
    for line, counts in [(late, late), (_copy(late), _copy(late))]:
        for data in (packs + _line(line), _line(line) + packs):
            assert _newest(data) == {**names, "tasks/a": counts}
    assert _newest(packs + _line(gone))["tasks/b"] == gone
    # One bit of the first pack: the others, and lines, count as before.
    for at in range(packs.index(b"\n")):
        spoilt = bytearray(packs + _line(late))
        spoilt[at] ^= 1
        assert _newest(bytes(spoilt)) == {"tasks/a": late, "tasks/c": _copy(c)}
        assert spoiled(bytes(spoilt)) == 1
    well_sealed = catalog.chain.seal(catalog.chain.ROOT, b'{"entries":[{"stream":7}]}')[0]
    assert _newest(well_sealed + b"\n" + _line(a)) == {"tasks/a": a}


def test_what_was_written_while_the_index_was_rewritten_is_in_the_new_one(
    tmp_path, root, monkeypatch
):
    monkeypatch.setattr(catalog, "_SPARE_LINES", 0)

    class Late(Disk):
        """Somebody writes a line just before the file loses its name."""

        def rename(self, old: str, new: str, parent: int) -> None:
            with (tmp_path / INDEX).open("ab") as file:
                file.write(_line(entry("late")))
            super().rename(old, new, parent)

    index = Index(Late(), root)
    index.note(replace(entry("gone"), facts=None))
    for number in range(9):
        index.note(entry("a", size=number))
    assert index.entries()["tasks/late"] == _copy(entry("late"))
    found = _newest((tmp_path / INDEX).read_bytes())
    assert {stream: each.size for stream, each in found.items()} == {"tasks/a": 8, "tasks/late": 1}
    index.close()


@pytest.mark.parametrize(
    ("wake", "by", "due"),
    [(1, 2, True), (2, 2, True), (3, 2, False), (None, 2, False), (1, None, False)],
)
def test_what_is_to_wake_by_then_is_due(wake, by, due):
    facts = Facts("job", "paused", wake_at=None if wake is None else moment(wake))
    by_then = None if by is None else moment(by)
    assert _is_due(IndexEntry("tasks/t", 1, facts), by_then) is due
    assert _is_due(None, by_then) is _is_due(IndexEntry("tasks/t"), by_then) is False


def test_a_log_that_does_not_tell_whose_it_is_is_damaged_in_its_first_event(tmp_path):
    store = FileStore(tmp_path / "w")
    folder = tmp_path / "w/tasks" / safe_name("Two words")
    folder.mkdir(parents=True, mode=0o700)
    (folder / "events.jsonl").write_bytes(b"nonsense\n")
    (damage,) = verify(store).damage
    assert (damage.task, damage.seq, damage.kind) == (f"tasks/{folder.name}", 1, "task")
    store.close()
