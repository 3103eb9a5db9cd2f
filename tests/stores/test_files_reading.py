"""A line in the middle of a long log file is found, whatever stands around it."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.errors import LogDamaged
from holdfast.log.store_calls import acquire_one
from holdfast.stores.files import lines as log_lines
from holdfast.stores.files.store import FileStore
from tests.random_logs import Story

STREAM = "tasks/t-1"
SHORT, LONG = 40, 200_000


def long_log(path, seed):
    """A log of lines of every length, some of them longer than all the others together."""
    random, count = Random(seed), 600
    store = FileStore(path)
    lines = []
    for seq in range(1, count + 1):
        size = LONG if random.random() < 0.01 else random.choice((SHORT, 400, 3000))
        lines.append(b'{"id":"t-1","seq":%d,"text":"%b","sum":"%016x"}' % (seq, b"x" * size, seq))
    lease = acquire_one(store, STREAM, "me", 60)
    store.append(lease, 0, lines)
    store.release([lease])
    return store, lines


@pytest.mark.parametrize("seed", range(4))
def test_the_lines_after_any_other_are_read_from_there(tmp_path, seed):
    store, lines = long_log(tmp_path, seed)
    for seq in (*Random(seed).sample(range(len(lines)), 60), 0, 1, len(lines) - 1, len(lines), 999):
        assert next(store.read(STREAM, seq), None) == next(iter(lines[seq:]), None), seq
    assert list(store.read(STREAM, 300)) == lines[300:]
    store.close()


def test_a_torn_tail_is_no_line_and_in_nobody_s_way(tmp_path):
    store, lines = long_log(tmp_path, 7)
    with (tmp_path / "tasks/t-1/events.jsonl").open("ab") as log:
        log.write(b'{"seq":601,"text":"' + b"y" * 100_000)
    for seq in (5, 300, 599):
        assert list(store.read(STREAM, seq)) == lines[seq:]
    assert list(store.read(STREAM, 600)) == []
    store.close()


def test_a_line_is_found_without_reading_the_others(tmp_path, monkeypatch):
    store, lines = long_log(tmp_path, 3)
    read = []
    pieces = store._disk.read_piece
    monkeypatch.setattr(
        store._disk, "read_piece", lambda *given: read.append(given[2]) or pieces(*given)
    )
    assert next(store.read(STREAM, 200)) == lines[200]
    assert sum(read) < sum(map(len, lines)) / 2
    store.close()


def test_what_says_no_number_is_counted(tmp_path):
    store = FileStore(tmp_path)
    lease = acquire_one(store, STREAM, "me", 60)
    lines = [b"line %d " % n + b"x" * 900 for n in range(400)]
    store.append(lease, 0, lines)
    assert list(store.read(STREAM, 150)) == lines[150:]
    assert log_lines.seq_of(lines[3]) == 0
    store.close()


def test_damage_before_a_line_does_not_hide_it(tmp_path):
    story = Story(11)
    story.go_on(800)
    lines = story.lines()
    store = FileStore(tmp_path)
    lease = acquire_one(store, STREAM, "me", 60)
    store.append(lease, 0, lines)
    store.release([lease])
    log = tmp_path / "tasks/t-1/events.jsonl"
    data = log.read_bytes()
    log.write_bytes(data[:50_000] + b"#" * 300 + data[50_300:])
    try:
        assert next(store.read(STREAM, 790)) == lines[790]
    except LogDamaged:
        pytest.fail("the lines at the end are whole")
    store.close()
