"""The lines of a log file: read from either end, in pieces, without its torn tail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from holdfast.core.decoding import Illegible, decoder
from holdfast.errors import LogDamaged
from holdfast.log import chain
from holdfast.stores.files.disk import Disk

LONGEST_TAIL_BYTES = 1 << 20
"""An append is one event or a few, far smaller than this; a longer tail is no torn append."""

_FIRST_BYTES, _PIECE_BYTES = 1 << 14, 1 << 20
"""Pieces grow: often only the first or the last few lines are asked for."""

_LINE_BYTES, _NEAR_BYTES, _WORTH_LOOKING_BYTES = 1 << 10, 1 << 14, 1 << 17
"""A line in the middle of a log is looked for by halves, until it is near."""


class _Placed(Struct):
    """Every event says which it is."""

    seq: int = 0


_decode = decoder(_Placed)


class LogEnd(Struct, frozen=True):
    """Where a log really ends."""

    size: int
    """Up to here it is whole lines (one more than the file holds, if only the newline lacks)."""
    head: int
    """How many lines there are."""
    tail: bytes
    """The rest that a crash left of an append that was never acknowledged."""


def seq_of(line: bytes) -> int:
    """The number that a line says it has; 0 if it says none."""
    try:
        return _decode(line).seq
    except Illegible:
        return 0


def end_of(disk: Disk, stream: str, fd: int) -> LogEnd:
    """Look at the end of a log, as far back as it takes to tell."""
    size = disk.size(fd)
    start, data = size, b""
    while start > 0 and data.count(b"\n") < 3:
        start = max(0, start - max(64 * 1024, len(data)))
        data = disk.read_all(fd, start)
        if len(data) > 2 * LONGEST_TAIL_BYTES:
            break
    whole = _whole(disk, stream, fd, data, start)
    last = whole[whole.rfind(b"\n", 0, -1) + 1 : -1]
    head = seq_of(last) or _count(disk, fd, start, whole)
    return LogEnd(start + len(whole), head, data[len(whole) :])


def forwards(
    disk: Disk, stream: str, fd: int, offset: int = 0, before: bytes = chain.ROOT
) -> Iterator[bytes]:
    """Whole lines from the first on, or from one at `offset`, before which that sum stands."""
    rest, size = b"", _FIRST_BYTES
    while piece := disk.read_piece(fd, offset, size):
        offset += len(piece)
        size = min(4 * size, _PIECE_BYTES)
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            before = chain.sum_of(lines[-1])
        yield from lines
    if rest and _is_whole(stream, before, rest, lambda: _count(disk, fd, 0, b"")):
        yield rest


def after(seq: int, disk: Disk, stream: str, fd: int) -> Iterator[bytes]:
    """Whole lines after the one that says it is number `seq`; none, if it is sooner found from the
    end, or can't be found by what the lines say."""
    low, high = 0, disk.size(fd)
    if high < _WORTH_LOOKING_BYTES:
        return
    while high - low > _NEAR_BYTES:
        middle = (low + high) // 2
        start, line = _line_after(disk, fd, middle)
        number = seq_of(line)
        if start >= high or not number:
            high = middle  # one long line, or the torn tail
        elif number <= seq:
            low = start
        else:
            high = start
    while True:
        line = _line_at(disk, fd, low)
        number = seq_of(line)
        if not 0 < number <= seq or not line.endswith(b"\n"):
            return
        low += len(line)
        if number == seq:
            break
    yield from forwards(disk, stream, fd, low, chain.sum_of(line[:-1]))


def _line_after(disk: Disk, fd: int, offset: int) -> tuple[int, bytes]:
    """The first line that begins after `offset`, and where that is."""
    start = offset + len(_line_at(disk, fd, offset))
    return start, _line_at(disk, fd, start)


def _line_at(disk: Disk, fd: int, offset: int) -> bytes:
    """The bytes from `offset` up to the end of that line, with its newline."""
    size, data = _LINE_BYTES, b""
    while True:
        more = disk.read_piece(fd, offset + len(data), size)
        data += more
        end = data.find(b"\n")
        if end >= 0 or len(more) < size:
            return data[: end + 1] if end >= 0 else data
        size = min(4 * size, _PIECE_BYTES)


def backwards(disk: Disk, stream: str, fd: int) -> Iterator[bytes]:
    """Whole lines from the last on."""
    end = end_of(disk, stream, fd)
    left = min(end.size, disk.size(fd))
    rest, size = b"", _FIRST_BYTES
    if end.size > left:  # only the newline lacks: put it back
        rest = b"\n"
    while left > 0:
        start = max(0, left - size)
        size = min(4 * size, _PIECE_BYTES)
        data = disk.read_piece(fd, start, left - start) + rest
        left = start
        cut = (data.find(b"\n") + 1 or len(data)) if start else 0
        rest, lines = data[:cut], data[cut:].split(b"\n")
        lines.pop()
        yield from reversed(lines)
    # `rest` keeps the end of a line whose beginning is in the piece before it.


def _whole(disk: Disk, stream: str, fd: int, data: bytes, start: int) -> bytes:
    """`data`, the end of a log from `start` on, without its torn tail or with the newline that a
    whole last line lacks."""
    end = data.rfind(b"\n") + 1
    tail = data[end:]
    if not tail:
        return data
    before = chain.sum_of(data[: end - 1]) if end else chain.ROOT
    is_whole = _is_whole(stream, before, tail, lambda: _count(disk, fd, start, data))
    return data + b"\n" if is_whole else data[:end]


def _is_whole(stream: str, before: bytes, tail: bytes, count: Callable[[], int]) -> bool:
    if chain.check(before, tail) is not None:
        return True
    # A zero in place of the newline is no damage: the file had grown, and the sector that begins
    # with it was not written yet.
    if tail[-1:] != b"\0" and chain.check(before, tail[:-1]) is not None:
        raise LogDamaged(stream, count() + 1, "the newline that ends it was overwritten")
    if len(tail) > LONGEST_TAIL_BYTES:
        what = f"{len(tail):,} bytes without a newline are more than a torn append leaves"
        raise LogDamaged(stream, count() + 1, what)
    return False


def _count(disk: Disk, fd: int, start: int, data: bytes) -> int:
    if start == 0 and data:
        return data.count(b"\n")
    return disk.read_all(fd).count(b"\n")
