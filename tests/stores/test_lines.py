"""The lines of a log file, from either end, whatever the sizes of the pieces they are read in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from holdfast.errors import LogDamaged
from holdfast.log import chain
from holdfast.stores.files import lines
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.lines import after, backwards, end_of, forwards, seq_of


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {
        "LONGEST_TAIL_BYTES": 2000,
        "_FIRST_BYTES": 16,
        "_PIECE_BYTES": 256,
        "_LINE_BYTES": 8,
        "_NEAR_BYTES": 64,
        "_WORTH_LOOKING_BYTES": 200,
    }.items():
        monkeypatch.setattr(lines, name, size)


class OpenLog:
    def __init__(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self.disk, self.fd = Disk(), os.open(path, os.O_RDONLY)

    def forwards(self) -> list[bytes]:
        return list(forwards(self.disk, "tasks/t", self.fd))

    def backwards(self) -> list[bytes]:
        return list(backwards(self.disk, "tasks/t", self.fd))

    def after(self, seq: int) -> list[bytes]:
        return list(after(seq, self.disk, "tasks/t", self.fd))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[type[OpenLog]]:
    made: list[OpenLog] = []

    def make(data: bytes) -> OpenLog:
        made.append(OpenLog(tmp_path / str(len(made)), data))
        return made[-1]

    yield make  # type: ignore[misc]
    for log in made:
        os.close(log.fd)


def sealed(count: int, seed: int = 0) -> list[bytes]:
    chance, total, found = Random(seed), chain.ROOT, []
    for seq in range(1, count + 1):
        body = b'{"seq":%d,"text":"%b"}' % (seq, b"x" * chance.choice((0, 1, 7, 60, 300)))
        line, total = chain.seal(total, body)
        found.append(line)
    return found


def joined(found: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 30])
def test_a_log_is_the_same_from_either_end_and_from_any_line(opened, count, seed):
    found = sealed(count, seed)
    data = joined(found)
    log = opened(data)
    assert log.forwards() == found and log.backwards() == found[::-1]
    end = end_of(log.disk, "tasks/t", log.fd)
    assert (end.size, end.head, end.tail) == (len(data), count, b"")
    for seq in range(1, count + 1):
        got = log.after(seq)
        # A short log is sooner read from its end; and so says that nothing was looked for.
        assert got == (found[seq:] if len(data) >= 200 else [])
    assert log.after(count + 1) == [] and log.after(0) == []


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_what_a_crash_left_of_an_append_is_no_line(opened, count):
    found, data = sealed(count + 1), joined(sealed(count))
    for length in (1, 5, len(found[-1]) - 1):
        log = opened(data + found[-1][:length])
        assert log.forwards() == found[:-1] and log.backwards() == found[-2::-1][:count]
        end = end_of(log.disk, "tasks/t", log.fd)
        assert (end.size, end.head, end.tail) == (len(data), count, found[-1][:length])
    log = opened(data + found[-1])  # only the newline lacks
    assert log.forwards() == found and log.backwards() == found[::-1]
    end = end_of(log.disk, "tasks/t", log.fd)
    assert (end.size, end.head, end.tail) == (len(data) + len(found[-1]) + 1, count + 1, b"")


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_a_newline_that_was_overwritten_is_damage_and_a_zero_is_not(opened, count):
    found, data = sealed(count + 1), joined(sealed(count))
    spoilt = opened(data + found[-1] + b"x")
    for read in (spoilt.forwards, spoilt.backwards):
        with pytest.raises(LogDamaged, match="the newline that ends it was overwritten") as caught:
            read()
        assert caught.value.seq == count + 1
    log = opened(data + found[-1] + b"\0")
    assert log.forwards() == found[:-1]
    assert end_of(log.disk, "tasks/t", log.fd).tail == found[-1] + b"\0"


def test_a_tail_that_is_longer_than_any_append_is_damage(opened):
    data = joined(sealed(2))
    assert opened(data + b"x" * 2000).forwards() == sealed(2)
    for log in (opened(data + b"x" * 2001), opened(data + b"x" * 9000)):
        for read in (log.forwards, log.backwards):
            with pytest.raises(LogDamaged, match="bytes without a newline") as caught:
                read()
            assert caught.value.seq == 3


def test_lines_without_numbers_are_counted(opened):
    log = opened(b"a\nb\nc\n")
    assert end_of(log.disk, "tasks/t", log.fd).head == 3
    assert log.backwards() == [b"c", b"b", b"a"] and log.forwards() == [b"a", b"b", b"c"]
    assert [seq_of(line) for line in (b"a", b"{}", b'{"seq":7}', b'{"seq":"x"}', b"")] == [
        *(0, 0, 7, 0, 0)
    ]
    long = opened(b"".join(b"%060d\n" % n for n in range(2000)))
    assert end_of(long.disk, "tasks/t", long.fd).head == 2000
    assert long.after(7) == []


def test_signed_lines_are_told_by_their_end():
    line, total = chain.seal(chain.ROOT, b'{"seq":1}')
    mac = b"0123456789abcdef" * 2
    for plain in (line, b"no event"):
        signed = chain.with_mac(plain, mac)
        assert chain.is_signed(signed) and not chain.is_signed(plain)
        assert chain.without_mac(signed) == (plain, mac)
        assert chain.without_mac(plain) == (plain, b"")
    signed = chain.with_mac(line, mac)
    assert chain.check(chain.ROOT, signed) == chain.check(chain.ROOT, line) == total
    assert chain.sum_of(signed) == chain.sum_of(line) == total
    for at in range(len(line)):
        changed = bytearray(line)
        changed[at] ^= 1
        assert chain.check(chain.ROOT, bytes(changed)) is None
    assert chain.check(total, line) is None
