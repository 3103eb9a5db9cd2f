"""Waypoints in a database: a row for each part (see the schemas)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class _Ask(Protocol):
    def __call__(self, query: str, /, **given: Any) -> Sequence[Any]: ...


class SqlWaypoints:
    """The waypoints of a database, by who asks it and who has something written there."""

    def __init__(self, ask: _Ask, write: _Ask, listed: Callable[[Sequence[int]], Any]) -> None:
        self._ask = ask
        self._write = write
        self._listed = listed
        """How the database takes a list of numbers."""

    def put(self, stream: str, seq: int, part: str, data: bytes) -> None:
        self._write("put_waypoint", stream=stream, seq=seq, part=part, data=data)

    def get(self, stream: str, seqs: Sequence[int], part: str) -> Mapping[int, bytes]:
        rows = self._ask("get_waypoints", stream=stream, seqs=self._listed(seqs), part=part)
        return {seq: bytes(data) for seq, data in rows}

    def seqs(self, stream: str) -> Sequence[int]:
        return [seq for (seq,) in self._ask("waypoints", stream=stream)]

    def drop(self, stream: str) -> None:
        self._write("drop_waypoints", stream=stream)
