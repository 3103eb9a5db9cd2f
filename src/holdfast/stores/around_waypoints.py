"""Waypoints of a store around another one: under other names, and closed in some way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.store import Waypoints

Turn = Callable[[str, int, str, bytes], bytes | None]
"""Makes one form of a part of another: of a stream, an event and a part. None if it can't."""


def _as_it_is(stream: str, seq: int, part: str, data: bytes) -> bytes | None:
    return data


def _same(stream: str) -> str:
    return stream


class AroundWaypoints:
    """What is put is closed, what is got is opened; what does not open is as good as gone."""

    def __init__(
        self,
        inner: Waypoints,
        *,
        close: Turn = _as_it_is,
        open: Turn = _as_it_is,
        named: Callable[[str], str] = _same,
    ) -> None:
        self._inner = inner
        self._close = close
        self._open = open
        self._named = named

    def put(self, stream: str, seq: int, part: str, data: bytes) -> None:
        closed = self._close(stream, seq, part, data)
        if closed is not None:
            self._inner.put(self._named(stream), seq, part, closed)

    def get(self, stream: str, seqs: Sequence[int], part: str) -> Mapping[int, bytes]:
        found = self._inner.get(self._named(stream), seqs, part)
        opened = {seq: self._open(stream, seq, part, data) for seq, data in found.items()}
        return {seq: data for seq, data in opened.items() if data is not None}

    def seqs(self, stream: str) -> Sequence[int]:
        return self._inner.seqs(self._named(stream))

    def drop(self, stream: str) -> None:
        self._inner.drop(self._named(stream))
