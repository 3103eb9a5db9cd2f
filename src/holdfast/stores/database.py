"""The stores in databases have this in common: everything but their SQL dialect.

A dialect says how a query is asked and how something is written, and has queries of the same names
(see `sql/`). An append is put in line, and the group that it is in commits it (see `groups`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Any

from holdfast.errors import BadInput, LogDamaged, StoreError
from holdfast.stores import finding
from holdfast.stores.files.leftovers import NothingLeft
from holdfast.stores.groups import Groups
from holdfast.stores.held import Leases, each
from holdfast.stores.port import DERIVED_NAME, Facts, Lease, Page, Post, Query, SideKind
from holdfast.stores.queries import beyond

PAGE = 500

_GONE = "events were recorded here, and this one and those after it are gone"


class DatabaseStore(NothingLeft):
    """Streams as rows of a database."""

    url: str
    _leases: Leases
    _groups: Groups[Any]
    _closed = False

    @abstractmethod
    def _look(self, query: str, /, **given: Any) -> list[Any]:
        """All rows of a query, with what this process appended itself."""

    @abstractmethod
    def _do(self, query: str, /, **given: Any) -> int:
        """Write something, durably; returns in how many rows."""

    @abstractmethod
    def _find(self, query: Query) -> Sequence[tuple[str, Facts | None]]:
        """The streams that match, in order, and one more than asked for if there is one."""

    @abstractmethod
    def _messages(self, streams: Collection[str]) -> Sequence[Post]:
        """The messages in the inboxes of streams."""

    @abstractmethod
    def _post(self, stream: str, name: str, data: bytes) -> bool:
        """Leave a message; False if there is one of that name."""

    @abstractmethod
    def _kept(self, time: datetime | None) -> Any:
        """A time as the database keeps it; for None one that is before all others."""

    @abstractmethod
    def _facts(self, columns: Sequence[Any]) -> Facts | None:
        """The facts in the columns of a row; None if they are unknown."""

    @abstractmethod
    def _listed(self, numbers: list[int]) -> Any:
        """Numbers as a query takes them."""

    @abstractmethod
    def _blob(self, name: str) -> bytes | None:
        """The bytes of a blob; None if it is not there."""

    def _who_asks(self) -> int | None:
        """The number of this process, where the database tells what others hold of what is due."""
        return None

    def _must_be_open(self) -> None:
        if self._closed:
            raise BadInput(f"the store {self.url} was closed: open it again")

    # Logs

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        self._leases.of(lease).append(expected_seq, lines, facts, self._groups.add)

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        return each(self._sync, leases)  # the first commits for all

    def _sync(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        newest = held.newest
        if newest is not None and not (newest.done and newest.error is None):
            self._groups.wait(newest)
        if held.trouble is not None:
            held.must_be_sound()

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        seq = max(after_seq, 0)
        return self._read_back(stream, seq) if backwards else self._read_on(stream, seq)

    @abstractmethod
    def _read_on(self, stream: str, after_seq: int) -> Iterator[bytes]: ...

    @abstractmethod
    def _read_back(self, stream: str, after_seq: int) -> Iterator[bytes]: ...

    def _must_be_all(self, stream: str, id: int, head: int, found: int) -> None:
        """Raise `LogDamaged` if lines are missing at the end of a stream that is still there."""
        if found < head and any(row[0] == id for row in self._look("stream", stream=stream)):
            raise LogDamaged(stream, found + 1, _GONE)

    # Facts

    def find(self, query: Query) -> Page:
        # First what is unknown: what becomes known in between is then found twice, and not missed.
        unknown = self._unknown(query.prefix)
        told = self._find(query) if query.due_by is None else self._due(query)
        unknown += [name for name, facts in told if facts is None]
        found = [(name, facts) for name, facts in told if facts is not None]
        return finding.page_of(found, query.limit, unknown)

    def _unknown(self, prefix: str) -> list[str]:
        """The streams whose log has to be read before anything can be said."""
        found: list[str] = []
        after_id = 0
        while rows := self._look("unknown", after_id=after_id, **_bounds(prefix)):
            found += [name for name, _ in rows if name.startswith(prefix)]
            after_id = rows[-1][1]
        return found

    def _due(self, query: Query) -> list[tuple[str, Facts | None]]:
        matches, found = finding.matcher(query), list[tuple[str, Facts | None]]()
        at, name = query.beyond or (None, "")
        given = {**_bounds(query.prefix), "now": self._kept(query.due_by)}
        given |= {"after_at": self._kept(at), "after_name": name}
        given |= {"process": self._who_asks() if query.unheld else None}
        given["page"] = (query.limit or PAGE) + 1
        while rows := self._look("due", **given):
            for name, *columns, wakes_at in rows:
                given |= {"after_at": wakes_at, "after_name": name}
                facts = self._facts(columns)
                if facts is None or matches(name, facts):
                    found.append((name, facts))
            if query.limit is not None and len(found) > query.limit:
                break
        return found

    # Beside streams

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        if kind == "inbox":
            return self._post(stream, name, data)
        place = DERIVED_NAME.fullmatch(name)
        if place is None:
            return False
        given = {"seq": int(place[1]), "part": place[2]}
        return bool(self._do("put_waypoint", stream=stream, data=data, **given))

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        if kind == "inbox":
            found = self._messages(streams) if streams else ()
            return [post for post in found if names is None or post.name in names]
        if names is not None:
            return [row for stream in streams for row in self._derived(stream, names)]
        query = "waypoint_names" if only_names else "waypoints"
        return [
            Post(stream, f"{seq}.{part}", bytes(data))
            for stream in streams
            for seq, part, data in self._look(query, stream=stream)
        ]

    def _derived(self, stream: str, names: Collection[str]) -> Iterator[Post]:
        parts: dict[str, list[int]] = {}
        for place in filter(None, map(DERIVED_NAME.fullmatch, names)):
            parts.setdefault(place[2], []).append(int(place[1]))
        for part, seqs in parts.items():
            given = {"stream": stream, "part": part, "seqs": self._listed(seqs)}
            for seq, data in self._look("get_waypoints", **given):
                yield Post(stream, f"{seq}.{part}", bytes(data))

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        if kind == "inbox" and name is None:
            self._do("unpost_all", stream=stream)
        elif kind == "inbox":
            self._do("unpost", stream=stream, name=name)
        elif name is None:
            self._do("drop_waypoints", stream=stream)
        elif place := DERIVED_NAME.fullmatch(name):
            self._do("drop_waypoint", stream=stream, seq=int(place[1]), part=place[2])

    # Blobs

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        data = None
        with suppress(ValueError):
            data = self._blob(name)
        if data is None:
            raise LogDamaged(f"blobs/{name:.80}", 0, "the blob is gone")
        if checked and sha256(data).hexdigest() != name:
            raise LogDamaged(f"blobs/{name}", 0, "the blob's bytes do not fit its name")
        return data


def _bounds(prefix: str) -> dict[str, Any]:
    return {"prefix": prefix, "beyond": beyond(prefix), "page": PAGE}
